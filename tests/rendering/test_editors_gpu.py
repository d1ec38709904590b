"""Pipelines on a GPU whose memory runs out: the largest that fits is opened, less is kept there, and nothing crashes.

python -m pytest tests/rendering/test_editors_gpu.py -m gpu
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny_pipelines
from tiny_pipelines import SIDE, sd_parts, write_pipeline
from unswayed.rendering.editors import memory, pipelines
from unswayed.rendering.editors.pipelines import Call, EditRequest, Pipeline, open_pipeline, parse

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
MIB = 2**20
WIDTHS = {"large": 640, "middle": 320, "small": 64}  # channels; the weights are about 770, 190 and 8 MB in bf16


def in_painting(width: int) -> Callable[[], Any]:
    import diffusers

    def made() -> Any:
        network = tiny_pipelines.unet(
            9, cross=16, block_out_channels=(width, 2 * width), norm_num_groups=32, attention_head_dim=8
        )
        return diffusers.StableDiffusionInpaintPipeline(**(sd_parts(9) | {"unet": network}))

    return made


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("pipelines")
    return {name: write_pipeline(in_painting(width), root / name) for name, width in WIDTHS.items()}


@pytest.fixture(autouse=True)
def fresh():
    pipelines._opened.cache_clear()
    torch.cuda.empty_cache()
    yield
    pipelines._opened.cache_clear()
    torch.cuda.empty_cache()


def leave(free: int) -> torch.Tensor:
    """Fill the memory of the GPU until so many bytes are free; the memory is held as long as the result."""
    torch.cuda.empty_cache()
    return torch.empty(torch.cuda.mem_get_info()[0] - free, dtype=torch.uint8, device="cuda")


def filled() -> list[torch.Tensor]:
    """Memory of the GPU in ever smaller blocks until less than a MiB can be had."""
    blocks, size = [], torch.cuda.mem_get_info()[0]
    while size >= MIB:
        try:
            blocks.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    return blocks


def needs(folder: Path) -> int:
    parts = {part: pipelines.elements_of(files) for part, files in pipelines.weight_files(folder).items()}
    return memory.holdings(parts, SIDE, 8, torch.device("cuda"), "bf16", offload="none")[0].needs


def picture(pipeline: Pipeline) -> np.ndarray:
    gray = np.full((SIDE, SIDE, 3), 128, np.uint8)
    [made] = pipeline.draw([EditRequest(gray, np.ones((SIDE, SIDE), bool), "a beach", None, 5)], Call(2, None, 1.0))
    assert isinstance(made, np.ndarray), made
    return made


def test_the_largest_pipeline_that_fits_is_opened_and_draws(folders: dict[str, Path]) -> None:
    for folder in folders.values():  # so that kernels, which take memory, are loaded before it is scarce
        picture(open_pipeline(parse(f"{folder}?size={SIDE}&offload=none"), "cuda", "bf16"))
    pipelines._opened.cache_clear()
    spec = parse("|".join(str(folders[name]) for name in WIDTHS) + f"?size={SIDE}&offload=none")
    larger = torch.cuda.mem_get_info()[1]
    for chosen in ("large", "middle", "small"):
        enough = needs(folders[chosen])
        room = min(300 * MIB, (larger - enough) * 4 // 5)  # to compute with, and too little for the larger one
        ballast, larger = leave(int((enough + room) / memory.USABLE)), enough
        opened = open_pipeline(spec, "cuda", "bf16")
        assert opened.facts["name"] == str(folders[chosen])
        assert picture(opened).shape == (SIDE, SIDE, 3)
        del opened, ballast
        pipelines._opened.cache_clear()


def test_a_real_out_of_memory_keeps_less_on_the_gpu_and_makes_the_same_picture(folders: dict[str, Path]) -> None:
    opened = open_pipeline(parse(f"{folders['large']}?size={SIDE}"), "cuda", "bf16")
    assert [way.offload for way in opened.ways] == ["none", "model", "sequential"]
    before = picture(opened)
    ballast = filled()
    after = picture(opened)
    assert opened.ways[0].offload in ("model", "sequential")
    assert (after == before).all()
    del ballast


def test_what_cannot_fit_is_refused_with_its_size(folders: dict[str, Path]) -> None:
    ballast = leave(16 * MIB)
    with pytest.raises(Exception, match="does not fit on cuda"):
        open_pipeline(parse(f"{folders['large']}?size={SIDE}&offload=none"), "cuda", "bf16")
    del ballast
