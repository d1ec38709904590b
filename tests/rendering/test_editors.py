"""Pipelines of diffusers as renderers: real classes with tiny random weights, opened from folders."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch

from command_line import refused, run_cli
from tiny_pipelines import FAMILIES, SIDE, sd_inpaint, sd_prudish, write_pipeline
from unswayed.benchmark.building import build
from unswayed.benchmark.rows import finished_sources, read_manifest
from unswayed.edits.geometry import resized
from unswayed.edits.layers import Layers
from unswayed.edits.recipes import open_recipe
from unswayed.files.whole import sha256
from unswayed.rendering import open_renderer
from unswayed.rendering.editors import memory, pipelines
from unswayed.rendering.editors.folders import editor_of, kind_of
from unswayed.rendering.editors.renderer import Editor
from unswayed.rendering.layers import Refusal, Rendering, forecast
from unswayed.rendering.photograph import Request, chain_of, compose, edit_photograph, replay
from unswayed.rendering.removal import hole_of, open_removal
from unswayed.rendering.settings import RenderSettings
from unswayed.scene import frame
from unswayed.sources import open_source

BEACH = "on a beach at sunset"
DOG = 207


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that returns the folder of a family, written once."""
    root = tmp_path_factory.mktemp("pipelines")

    def written(family: str) -> Path:
        folder = root / family
        return folder if folder.is_dir() else write_pipeline(family, folder)

    return written


def request_of(folder: Path, options: str = "", **edits: str) -> Request:
    chain = chain_of(edits or {"background": BEACH})
    spec = f"diffusers:{folder}?size={SIDE}{options}"
    return Request(chain, renderer=spec, steps=2, size=SIDE, label=DOG, device="cpu", removal="patches")


def layers_of(request: Request, seed: int = 0) -> Layers:
    from dataclasses import replace

    return compose(replace(request, seed=seed), replace(open_source("sample")["dog"], label=DOG))[1]


def opened(request: Request) -> Editor:
    renderer = request.open_renderer()
    assert isinstance(renderer, Editor)
    return renderer


def drawn(answer: Rendering | Refusal) -> np.ndarray:
    assert isinstance(answer, Rendering), answer
    return answer.image


@pytest.mark.parametrize("family", FAMILIES)
def test_a_photograph_end_to_end_and_again_from_its_record(family: str, folder_of, tmp_path: Path) -> None:
    request, scene = request_of(folder_of(family)), open_source("sample")["dog"]
    edited = edit_photograph(request, scene)
    photograph = resized(frame(scene).image, SIDE)
    picture, inside = np.asarray(edited.image), np.asarray(edited.mask) > 127
    assert (picture[inside] == photograph[inside]).all()
    assert (picture[~inside] != photograph[~inside]).any(axis=-1).mean() > 0.9
    record = edited.record
    assert BEACH in record["measures"]["prompt"] and record["measures"]["steps"] == 2
    assert record["rendered_by"]["pipeline"]["license"] == "openrail++"
    assert record["rendered_by"]["pipeline"]["gated"] is True
    assert all(sha256(folder_of(family) / name) == digest
               for name, digest in record["rendered_by"]["pipeline"]["weights_sha256"].items())  # fmt: skip
    _, _, path = edited.save(tmp_path / "edited.png")
    pipelines._opened.cache_clear()
    assert replay(path).record["picture_sha256"] == record["picture_sha256"]


# Reads an output folder and settings from each line, builds in a copy of this process that kills itself after its first
# photograph, and prints the exit code; so that diffusers is imported once for all families.
KILLER = """
import json, os, signal, sys
import diffusers.pipelines.auto_pipeline
import unswayed.rendering.editors.renderer
from unswayed.benchmark.building import build

def kill(now):
    if now.done == 1:
        os.kill(os.getpid(), signal.SIGKILL)

for line in sys.stdin:
    child = os.fork()
    if not child:
        folder, settings = json.loads(line)
        build("sample", folder, progress=kill, **settings)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def killed_build() -> Iterator[Callable[..., int]]:
    """A function that builds in another process, which is killed after the first photograph, and returns its exit
    code."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        commands, codes = process.stdin, process.stdout

        def build_and_kill(folder: Path, **settings: object) -> int:
            print(json.dumps([str(folder), settings]), file=commands, flush=True)
            return int(codes.readline())

        yield build_and_kill


@pytest.mark.parametrize("family", FAMILIES)
def test_a_killed_build_resumes_to_the_same_bytes_whatever_the_batch(
    family: str, folder_of, killed_build, tmp_path: Path
) -> None:
    request = request_of(folder_of(family))
    settings = {"recipe": f"background={BEACH}", "renderer": request.renderer, "steps": 2, "size": SIDE, "limit": 2,
                "device": "cpu", "workers": 1, "removal": "patches"}  # fmt: skip
    assert killed_build(tmp_path / "resumed", batch_size=4, **settings) == -signal.SIGKILL
    assert len(finished_sources(tmp_path / "resumed")) == 1
    resumed = build("sample", tmp_path / "resumed", batch_size=4, **settings)
    assert (resumed.made, resumed.counts["failed"]) == (1, 0)
    build("sample", tmp_path / "whole", batch_size=1, **settings)
    whole, again = (read_manifest(tmp_path / name).to_pylist() for name in ("whole", "resumed"))
    assert whole == again
    assert {row["status"] for row in whole} == {"ok"} and len(whole) == 8
    for row in whole:
        assert sha256(tmp_path / "whole" / row["path"]) == sha256(tmp_path / "resumed" / row["path"]) == row["sha256"]
    control = next(json.loads(row["measures"]) for row in whole if row["edit"] == "inversion")
    assert "bison" in control["prompt"]  # the class of the first photograph


def test_pictures_at_once_are_those_drawn_alone_or_are_refused(folder_of) -> None:
    requests = [request_of(folder_of("sdxl-inpaint"), options) for options in ("", "&batch=4")]
    alone, together = map(opened, requests)
    batch = [layers_of(requests[0], seed) for seed in range(5)]
    first = [drawn(answer) for answer in alone.render(batch)]
    assert all(map(np.array_equal, first, (drawn(alone.render([layers])[0]) for layers in batch)))
    whole = [drawn(answer) for answer in together.render(batch)]
    backwards = [drawn(answer) for answer in together.render(batch[::-1])][::-1]
    assert all(map(np.array_equal, whole, backwards))
    assert len({picture.tobytes() for picture in whole}) == 5
    # Kandinsky 2.2 keeps the known part of the first picture of a batch in all of them.
    with refused("does not draw 4 pictures at once", allowed="?batch=1"):
        opened(request_of(folder_of("kandinsky22-inpaint"), "&batch=4"))


def test_what_a_pipeline_is_follows_from_its_call(folder_of, tmp_path: Path) -> None:
    import diffusers

    kinds = {
        "StableDiffusionXLInpaintPipeline": "in-painting",
        "QwenImageEditPlusPipeline": "instruction",
        "Flux2Pipeline": "instruction",
        "StableDiffusionPipeline": None,
        "StableDiffusionImg2ImgPipeline": None,
        "StableDiffusionControlNetPipeline": None,
        "StableDiffusionControlNetInpaintPipeline": None,
        "WanImageToVideoPipeline": None,
        "StableDiffusionUpscalePipeline": None,
    }
    assert {name: kind_of(getattr(diffusers, name)) for name in kinds} == kinds
    assert editor_of(folder_of("sd"))[0] is diffusers.StableDiffusionInpaintPipeline
    assert editor_of(folder_of("flux"))[0] is diffusers.FluxInpaintPipeline


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("DDPMPipeline", "is no editor of pictures"),
        ("MyOwnPipeline", "does not know"),
        ("UNet2DModel", "does not know"),
    ],
)
def test_a_pipeline_that_is_no_editor_is_refused_by_name(name: str, given: str, tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": name, "unet": ["diffusers", "UNet2DModel"]}))
    with refused(name, given, allowed="a pipeline"):
        open_renderer(RenderSettings(renderer=f"diffusers:{tmp_path}", device="cpu"))


def test_code_in_a_folder_is_never_run(folder_of, tmp_path: Path) -> None:
    folder = write_pipeline("sd-inpaint", tmp_path / "evil")
    index = json.loads((folder / "model_index.json").read_text())
    index["unet"] = ["evil", "Evil"]
    (folder / "model_index.json").write_text(json.dumps(index))
    for place in (folder, folder / "unet"):
        (place / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    with refused("cannot be opened"):
        opened(request_of(folder))
    assert not (tmp_path / "ran").exists()


def test_only_safetensors_are_read(tmp_path: Path) -> None:
    folder = write_pipeline("sd-inpaint", tmp_path / "pickled")
    weights = folder / "unet" / "diffusion_pytorch_model.safetensors"
    torch.save({"a": torch.zeros(1)}, weights.with_suffix(".bin"))
    weights.unlink()
    with refused("cannot be opened"):
        opened(request_of(folder))


def test_refusals_name_what_is_allowed(folder_of) -> None:
    folder = folder_of("sd-inpaint")
    with refused("neither a folder nor", run="unswayed weights fetch diffusers:nobody/nothing"):
        opened(request_of(Path("nobody/nothing")))
    with refused("'schedular'", allowed="scheduler"):
        opened(request_of(folder, "&schedular=x"))
    with refused("no scheduler 'Nope'", allowed="DDIMScheduler"):
        opened(request_of(folder, "&scheduler=Nope"))
    with refused("no multiple of", allowed="?size="):
        open_renderer(RenderSettings(renderer=f"diffusers:{folder}?size=63", device="cpu"))
    with refused("takes no negative prompt"):
        opened(request_of(folder_of("flux-fill"), "&negative=people"))
    with refused("has no use for sampler", allowed="steps, precision, device"):
        RenderSettings(renderer=f"diffusers:{folder}", sampler="ddim")
    with refused("there is no renderer 'diffuser'", allowed="diffusion, paste, diffusers"):
        RenderSettings(renderer="diffuser:x")


def test_a_rejection_by_the_safety_checker_is_a_failed_row(tmp_path: Path) -> None:
    folder = write_pipeline(sd_prudish, tmp_path / "prudish")
    built = build("sample", tmp_path / "bench", recipe=f"background={BEACH}", renderer=request_of(folder).renderer,
                  steps=1, size=SIDE, limit=1, device="cpu", workers=1, removal="patches")  # fmt: skip
    assert built.counts["failed"] == 2
    rows = [row for row in read_manifest(tmp_path / "bench").to_pylist() if row["status"] == "failed"]
    assert {row["edit"] for row in rows} == {"inversion", "background-on-a-beach-at-sunset"}
    assert all("safety checker" in row["reason"] and row["path"] is None for row in rows)


def test_options_change_the_picture_and_are_recorded(folder_of, tmp_path: Path) -> None:
    folder = folder_of("sd-inpaint")
    lora = tmp_path / "style.safetensors"
    _write_lora(lora)
    options = ("", "&scheduler=EulerDiscreteScheduler", "&guidance_scale=1.5", "&negative=people", f"&lora={lora}@0.5",
               "&strength=0.5", "&template=a drawing of {words}")  # fmt: skip
    made = {}
    for text in options:
        request = request_of(folder, text)
        renderer = opened(request)
        made[text] = drawn(renderer.render([layers_of(request)])[0]).tobytes(), renderer.describe()
    assert len({picture for picture, _ in made.values()}) == len(options)
    assert made[options[1]][1]["pipeline"]["scheduler"] == "EulerDiscreteScheduler"
    assert made[options[2]][1]["guidance_scale"] == 1.5 and made[""][1]["guidance_scale"] == 7.5
    assert made[options[4]][1]["pipeline"]["lora"] == {
        "name": "style.safetensors",
        "sha256": sha256(lora),
        "scale": 0.5,
    }


def test_the_libraries_warn_nobody_of_their_plans(folder_of, recwarn: pytest.WarningsRecorder) -> None:
    request = request_of(folder_of("sd-inpaint"))
    pipelines._opened.cache_clear()
    drawn(opened(request).render([layers_of(request)])[0])
    assert not [str(warning.message) for warning in recwarn if issubclass(warning.category, FutureWarning)]


def _write_lora(path: Path) -> None:
    import diffusers
    from peft import LoraConfig, get_peft_model_state_dict

    with torch.random.fork_rng():
        torch.manual_seed(1)
        unet = sd_inpaint().unet
        unet.add_adapter(LoraConfig(r=2, target_modules=["to_q", "to_v"], init_lora_weights=False))
    diffusers.StableDiffusionInpaintPipeline.save_lora_weights(
        path.parent, unet_lora_layers=get_peft_model_state_dict(unet), weight_name=path.name
    )


def test_prompts_by_kind_and_the_control_that_describes_the_photograph(folder_of, tmp_path: Path) -> None:
    def prompt(family: str, options: str = "", **edits: str) -> str:
        request = request_of(folder_of(family), options, **edits)
        [answer] = opened(request).render([layers_of(request)])
        assert isinstance(answer, Rendering), answer
        return str(answer.measures["prompt"])

    assert prompt("sd-inpaint", background="a {class} in the snow") == "a golden retriever in the snow"
    assert prompt("sd-inpaint", background="inversion") == "a photo of a golden retriever"
    assert (
        prompt("sd-inpaint", "&caption=one {class} outdoors", background="inversion") == "one golden retriever outdoors"
    )
    assert prompt("instruct-pix2pix") == f"Change the background to: {BEACH}. Keep the golden retriever as it is."
    assert (
        prompt("instruct-pix2pix", background="inversion")
        == "Keep the picture as it is: a photo of a golden retriever."
    )
    captioner = _write_captioner(tmp_path / "blip")
    said = prompt("sd-inpaint", f"&captioner={captioner}", background="inversion")
    assert said and said != "a photo of a golden retriever"
    assert said == prompt("sd-inpaint", f"&captioner={captioner}", background="inversion")


def _write_captioner(folder: Path) -> Path:
    import transformers as t
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "dog", "sea", "sky", "on"])}, unk_token="[UNK]"))  # fmt: skip  # noqa: E501
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = t.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {
        **small,
        "vocab_size": 8,
        "bos_token_id": 2,
        "sep_token_id": 3,
        "pad_token_id": 0,
        "encoder_hidden_size": 16,
    }
    config = t.BlipConfig(
        text_config=text, vision_config={**small, "image_size": 32, "patch_size": 8}, projection_dim=8
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        t.BlipForConditionalGeneration(config).save_pretrained(folder)
    t.BlipProcessor(t.BlipImageProcessor(size={"height": 32, "width": 32}), tokenizer).save_pretrained(folder)
    return folder


def test_the_object_redrawn_from_words_leaves_its_surroundings_bit_for_bit(folder_of, tmp_path: Path) -> None:
    for family in ("sd-inpaint", "flux-kontext"):
        request = request_of(folder_of(family), **{"object-words": "a {class} made of wood"})
        layers = layers_of(request)
        picture = drawn(opened(request).render([layers])[0])
        outside = layers.alpha <= 0.5
        assert (picture[outside] == layers.object[outside]).all()
        assert (picture[layers.alpha >= 1] != layers.object[layers.alpha >= 1]).any(axis=-1).mean() > 0.9
    build("sample", tmp_path / "bench", recipe="object-words=a {class} made of wood", size=SIDE, limit=1, steps=1,
          renderer=request.renderer, device="cpu", workers=1)  # fmt: skip
    rows = {row["edit"]: row for row in read_manifest(tmp_path / "bench").to_pylist()}
    row = rows["object-words-a-class-made-of-wood"]
    assert json.loads(row["values"]) == {"object_words": "a bison made of wood", "label_may_change": True}
    assert row["control"] == "object-inversion" and rows["object-inversion"]["status"] == "ok"
    assert json.loads(row["validity_measures"])["object"] == 0.0  # of what is around the object
    dog = str(resources.files("unswayed.data") / "sample" / "dog")
    said = run_cli("edit", f"{dog}.jpg", "--mask", f"{dog}.png", "--label", DOG, "--object-words", "a {class} of wood",
                   "--renderer", request.renderer, "--steps", 1, "-o", tmp_path / "wood.png", code=0)  # fmt: skip
    assert "the label may change" in said.stderr
    assert not any("object-words" in item.name for name in ("imagenet-e", "demo", "beyond", "words")
                   for item in open_recipe(name).items)  # fmt: skip


def test_a_moved_object_is_blended_in_a_band_and_guided_backgrounds_are_skipped(folder_of) -> None:
    request = request_of(folder_of("sd-inpaint"), size="0.1")
    layers = layers_of(request)
    picture = drawn(opened(request).render([layers])[0])
    changed = (picture != layers.background).any(axis=-1) & (layers.alpha == 0)
    assert 0 < changed.mean() < 0.2
    assert (picture[layers.alpha > 0.5] == layers.object[layers.alpha > 0.5]).all()
    pasted = request_of(folder_of("instruct-pix2pix"), size="0.1")
    assert opened(pasted).render([layers_of(pasted)])[0].measures == {}
    guided = request_of(folder_of("sd-inpaint"), background="simple")
    [answer] = opened(guided).render([layers_of(guided)])
    assert isinstance(answer, Refusal) and "needs gradients" in answer.reason


@pytest.mark.parametrize("family", ["sd-inpaint", "qwen-image-edit"])
def test_removal_by_a_pipeline_changes_the_hole_alone(family: str, folder_of) -> None:
    remove = open_removal(f"diffusers:{folder_of(family)}?size={SIDE}&steps=2", "cpu")
    scene = frame(open_source("sample")["dog"])
    image, mask = resized(scene.image, SIDE), resized(scene.mask, SIDE)
    empty, hole = remove(image, mask, 3, None), hole_of(mask)
    assert (empty[~hole] == image[~hole]).all() and (empty[hole] != image[hole]).any(axis=-1).mean() > 0.9
    assert (remove(image, mask, 3, None) == empty).all() and (remove(image, mask, 4, None) != empty).any()
    assert remove.name.startswith("diffusers-")


def test_the_native_size_and_its_grid_are_used_and_the_benchmark_keeps_its_own(folder_of) -> None:
    folder = folder_of("sd3-inpaint")
    renderer = open_renderer(RenderSettings(renderer=f"diffusers:{folder}", steps=1, size=96, device="cpu"))
    assert isinstance(renderer, Editor) and renderer.pipeline.side == SIDE
    sizes = []
    run, renderer.pipeline.pipe = renderer.pipeline.pipe, None
    renderer.pipeline.pipe = lambda **given: sizes.append((given["image"].size, given["height"])) or run(**given)
    request = Request(chain_of({"background": BEACH}), renderer=f"diffusers:{folder}", steps=1, size=96, device="cpu")
    assert drawn(renderer.render([layers_of(request)])[0]).shape == (96, 96, 3)
    assert sizes == [((SIDE, SIDE), SIDE)]


GIB = 2**30
FLUX = {"transformer": 11_900_000_000, "text_encoder_2": 4_760_000_000, "text_encoder": 123_000_000, "vae": 84_000_000}


@pytest.mark.parametrize(
    ("free", "way"),
    [(80, ("none", False)), (33, ("model", False)), (24, ("sequential", False)), (4, ("sequential", True))],
)
def test_how_a_pipeline_is_held_follows_from_the_free_memory(monkeypatch, free: float, way: tuple[str, bool]) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: int(free * GIB))
    cuda = torch.device("cuda")
    fits = memory.fitting(memory.holdings(FLUX, 1024, 128, cuda, "bf16"), "FLUX", cuda)
    assert (fits[0].offload, fits[0].tiling, fits[0].precision) == (*way, "bf16")
    settled = memory.holdings(FLUX, 1024, 128, cuda, "bf16", offload="model", tiling=True)
    assert [(one.offload, one.tiling) for one in settled] == [("model", True)]


def test_what_does_not_fit_is_refused_with_its_size(monkeypatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: GIB)
    with refused("FLUX does not fit on cuda: it takes about", "1.0 GiB are free", run="nvidia-smi"):
        cuda = torch.device("cuda")
        memory.fitting(memory.holdings(FLUX, 1024, 128, cuda, "bf16"), "FLUX", cuda)


def test_of_several_pipelines_the_first_that_fits_is_opened(folder_of, monkeypatch) -> None:
    large, small = folder_of("kandinsky22-inpaint"), folder_of("sd-inpaint")
    names = f"{large}|{small}"
    sizes = {}
    for folder in (large, small):
        parts = {part: pipelines.elements_of(files) for part, files in pipelines.weight_files(folder).items()}
        sizes[folder] = memory.holdings(parts, SIDE, pipelines.decoder_width(folder), torch.device("cpu"), "fp32")[
            0
        ].needs
    assert sizes[large] > 1.3 * sizes[small]
    for free, chosen in ((sizes[large] * 2, large), (int(sizes[small] / memory.USABLE) + 1, small)):
        monkeypatch.setattr(memory, "free_bytes", lambda device, free=free: free)
        pipelines._opened.cache_clear()
        opened_one = pipelines.open_pipeline(pipelines.parse(f"{names}?size={SIDE}"), "cpu", "fp32")
        assert opened_one.facts["name"] == str(chosen)
    pipelines._opened.cache_clear()


def test_less_memory_than_expected_is_told_and_no_crash(folder_of) -> None:
    renderer = opened(request_of(folder_of("sd-inpaint")))
    pipelines._opened.cache_clear()

    def out(**given: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    renderer.pipeline.pipe = out
    with refused("out of memory on cpu", allowed="?tiling=yes"):
        renderer.render([layers_of(request_of(folder_of("sd-inpaint")))])


def test_without_a_gpu_the_time_is_said_before_the_work(folder_of) -> None:
    renderer = opened(request_of(folder_of("sd-inpaint")))
    assert renderer.seconds(200) > renderer.seconds(20) > 0
    renderer.__dict__["_pace"] = (10.0, 2.0)  # seconds of a picture beside its steps, and of a step
    text = "there is no GPU: 4000 steps of the pipeline will take about 7 h 46 min"
    assert forecast(renderer, 4000) == text and forecast(renderer, 0) is None


def test_damaged_numbers_are_a_failed_picture(folder_of) -> None:
    request = request_of(folder_of("sd-inpaint"))
    renderer = opened(request)
    pipelines._opened.cache_clear()
    with torch.no_grad():
        next(renderer.pipeline.pipe.vae.parameters()).fill_(torch.nan)
    [answer] = renderer.render([layers_of(request)])
    assert isinstance(answer, Refusal) and answer.status == "failed" and "NaN" in answer.reason
