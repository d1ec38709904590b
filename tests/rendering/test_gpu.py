"""What holds on a CPU, on a real GPU: `pytest -m gpu`."""

import contextlib
import copy
import dataclasses
from pathlib import Path

import cv2
import numpy as np
import pytest
import timm
import torch
from safetensors.torch import load_file

from command_line import refused
from sample_scenes import SAMPLE_IDS, sample_scene
from unswayed.edits.composition import Guidance
from unswayed.labels import imagenet
from unswayed.models import Classifier
from unswayed.models.transforms import Transform
from unswayed.rendering import load_network
from unswayed.rendering.diffusion import open_diffusion
from unswayed.rendering.layers import Layers, Rendering
from unswayed.rendering.networks import compact
from unswayed.rendering.networks.loading import Recording
from unswayed.rendering.sampling import as_seeds, normal

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
]
DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(autouse=True)
def all_of_the_memory():
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def allow(memory):
    """No more GPU memory than so many bytes, for this process."""
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(memory / torch.cuda.get_device_properties(0).total_memory)


def photographs(count, guidance=None):
    """Sample photographs of 256×256, re-made around their objects, each with a seed of its own."""
    for seed in range(count):
        scene = sample_scene(SAMPLE_IDS[seed % len(SAMPLE_IDS)])
        image, mask = (cv2.resize(one, (256, 256), interpolation=cv2.INTER_AREA) for one in (scene.image, scene.mask))
        yield Layers(image, mask, image, 0.5, guidance, scene.label, seed)


def decibels(one, other):
    return 10 * np.log10(255**2 / max(1e-9, np.mean((one.image.astype(float) - other.image) ** 2)))


def test_noise_is_the_same_on_the_gpu():
    here = normal(as_seeds([1, 2]), 3, (3, 64, 64))
    there = normal(as_seeds([1, 2], "cuda"), 3, (3, 64, 64)).cpu()
    assert torch.allclose(here, there, atol=1e-4)


def test_float32_is_the_originals(monkeypatch):
    golden = load_file(DATA / "adm_mini_io.safetensors", device="cuda")
    network = load_network(DATA / "adm_mini_weights.safetensors").on("cuda")

    def apart():
        found = network(golden["x"], golden["model_t"])
        return float((found - golden["raw"]).norm() / golden["raw"].norm())

    before = torch.backends.cudnn.conv.fp32_precision
    assert apart() < 1e-5
    assert torch.backends.cudnn.conv.fp32_precision == before
    # without the care, ten bits of each factor are left of it
    monkeypatch.setattr("unswayed.rendering.networks.true_float32", contextlib.nullcontext)
    assert apart() > 1e-5


def test_a_classifier_answers_as_on_a_cpu():
    torch.manual_seed(0)
    module = timm.create_model("resnet18", num_classes=1000)
    here, there = (
        Classifier(copy.deepcopy(module), Transform(resize=256, crop=224), imagenet(), device=device, precision="fp32")
        for device in ("cpu", "cuda")
    )
    batch = torch.rand(4, 3, 224, 224)
    expected = here.logits(batch)
    assert float((there.logits(batch).cpu() - expected).norm() / expected.norm()) < 1e-5


@pytest.mark.parametrize("guidance", [None, Guidance("complexity", 20.0)])
def test_alone_or_among_sixteen_a_picture_is_the_same(guidance):
    renderer = open_diffusion("compact", steps=20, device="cuda", batch_size=16)
    batch = list(photographs(16, guidance))
    together = renderer.render(batch)
    for one, answer in zip(batch[:3], together, strict=False):
        assert np.array_equal(renderer.render([one])[0].image, answer.image)
        assert np.array_equal(answer.image[one.alpha == 1], one.object[one.alpha == 1])


def test_a_gpu_in_bf16_makes_the_cpu_s_picture():
    here, there = (
        open_diffusion("compact", steps=20, device=device, precision=precision)
        for device, precision in (("cpu", "fp32"), ("cuda", "bf16"))
    )
    for one, other in zip(*(renderer.render(list(photographs(3))) for renderer in (here, there)), strict=True):
        assert decibels(one, other) > 40


def test_where_memory_runs_out_fewer_pictures_pass_at_once():
    renderer = open_diffusion("compact", steps=4, device="cuda", batch_size=32, compile=False)
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    batch = list(photographs(32))
    wide = renderer.render(batch)
    assert renderer.batch_size == 32
    allow(held + (torch.cuda.max_memory_allocated() - held) // 3)
    narrow = renderer.render(batch)
    assert 1 <= renderer.batch_size < 32
    for one, other in zip(wide, narrow, strict=True):
        assert isinstance(other, Rendering)
        assert decibels(one, other) > 40


def test_where_not_even_one_picture_fits_the_error_says_what_to_do():
    renderer = open_diffusion("compact", steps=4, device="cuda", batch_size=2, compile=False)
    allow(torch.cuda.memory_allocated() + 8 * 2**20)
    with refused("GiB are free", "--device cpu", given="out of memory on cuda"):
        renderer.render(list(photographs(2)))


def passes(network, count=2):
    """Raw outputs for pictures of noise, some of whose pixels are known."""
    generator = torch.Generator("cuda").manual_seed(3)
    for number in range(count):
        x, known = (torch.randn(4, channels, 256, 256, generator=generator, device="cuda") for channels in (3, 4))
        yield network(x, torch.full((4,), 900.0 - 400 * number, device="cuda"), None, known).clone()


@torch.no_grad()
def test_recorded_passes_have_the_bytes_of_those_that_are_launched():
    launched = load_network("compact").on("cuda", torch.bfloat16)
    recorded = dataclasses.replace(launched, module=Recording(launched.module))
    for there, here in zip(passes(launched), passes(recorded), strict=True):
        assert torch.equal(there, here)
    assert None not in recorded.module.replayed.recorded.values()


def test_fused_kernels_compute_what_the_separate_operations_compute():
    network = load_network("compact").on("cuda", torch.bfloat16)
    assert compact._fused() is not None
    with torch.no_grad():
        fused = list(passes(network))
    for there, here in zip(passes(network), fused, strict=True):  # with gradients, nothing is fused
        assert 0 < (there - here).norm() / there.norm() < 0.02
