"""`--convention released`: what RIVAL10's released code puts into a network, and one convention for a folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import functional

from command_line import refusal, run_cli
from paper_layouts import rival10
from unswayed.evaluation.noise import NoiseProbe, ablate, at_input
from unswayed.evaluation.settings import SensitivitySettings
from unswayed.models import open_model
from unswayed.sources import open_source

SCENE = next(iter(open_source("sample")))
RUN = ("--limit", 2, "--levels", "60", "--resamples", 10, "--device", "cpu")


def test_pictures_and_masks_are_resized_as_torchvision_does_and_stay_soft() -> None:
    picture, masks = at_input(SCENE, 224, "squash", "released")
    resize = transforms.Resize((224, 224))
    assert np.array_equal(picture, np.asarray(resize(Image.fromarray(SCENE.image))))
    soft = functional.to_tensor(resize(Image.fromarray(np.uint8(255 * SCENE.mask))))[0].numpy()
    assert np.allclose(masks["foreground"], soft, atol=1e-6)
    assert np.allclose(masks["background"], 1 - soft, atol=1e-6)
    assert ((soft > 0) & (soft < 1)).any()
    pixels, weights = torch.rand(3, 224, 224), torch.from_numpy(soft)
    assert torch.allclose(ablate(pixels, weights[None])[0], 0.5 * weights + pixels * (1 - weights), atol=1e-6)
    assert at_input(SCENE, 224, "squash")[1]["foreground"].dtype == bool


def test_no_normalization_is_applied(tmp_path: Path) -> None:
    inputs = []
    model = open_model("lite:0", device="cpu").without_normalization()
    model.module.register_forward_pre_hook(lambda _, given: inputs.append(given[0].clone()))
    settings = SensitivitySettings(levels="60", attributes=False, frame="squash", convention="released")
    with NoiseProbe(model, open_source("sample", limit=1), tmp_path, settings) as probe:
        probe.measure(SCENE.id, probe.load(SCENE.id))
    clean = functional.to_tensor(transforms.Resize((224, 224))(Image.fromarray(SCENE.image)))
    assert torch.allclose(inputs[0][0], clean, atol=1e-6)
    assert 0 <= min(float(batch.min()) for batch in inputs) <= max(float(batch.max()) for batch in inputs) <= 1


def test_a_folder_belongs_to_one_convention(tmp_path: Path) -> None:
    released = run_cli("sensitivity", "sample", "-m", "lite:0", "-o", tmp_path, *RUN, "--convention", "released")
    assert released.exit_code == 0, released.output
    assert "without normalization" in " ".join(released.output.split())
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")}
    card = json.loads((tmp_path / "noise" / "lite-0.json").read_text())["settings"]
    assert (card["convention"], card["transform"]["mean"], card["transform"]["std"]) == (
        "released",
        [0.0] * 3,
        [1.0] * 3,
    )
    other = run_cli("sensitivity", "sample", "-m", "lite:0", "-o", tmp_path, *RUN)
    refusal(other, given="with --convention released, not default", allowed="--convention released, or another folder")
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")} == before


@pytest.mark.parametrize("preset", ["default", "released"])
def test_a_head_remembers_how_its_pictures_entered_the_network(preset: str, tmp_path: Path) -> None:
    source = f"rival10:{rival10(tmp_path / 'data')['RIVAL10']}?split=train"
    run = ("-m", "lite:0", "-o", tmp_path / "head", "--preset", preset, "--epochs", 1, "--device", "cpu")
    trained = run_cli("fit-head", source, *run)
    assert trained.exit_code == 0, trained.output
    head = open_model(f"head:{tmp_path}/head", device="cpu")
    usual = open_model("lite:0", device="cpu").transform
    assert head.transform.mean == ((0.0, 0.0, 0.0) if preset == "released" else usual.mean)
    assert head.transform.geometry.crop == usual.crop
