"""transformers' processors: a folder's answers are the library's own, and what cannot be read as data is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from command_line import refused
from unswayed.errors import UserError
from unswayed.models import Transform, from_transformers, open_model
from unswayed.models.foreign_transforms import from_processor

SIDE = 56
STATED = "?resize=64&crop=56&mean=0.5&std=0.25"


def save(folder: Path, kind: str, side: int = SIDE, **settings: Any) -> tuple[torch.nn.Module, Any]:
    """A tiny network and a processor of class `kind`, saved in a folder as a hub's repository has them."""
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=side,
        patch_size=side // 8,
        num_labels=3,
        initializer_range=0.5,  # answers that depend on the picture
    )
    network = transformers.ViTForImageClassification(config).eval()
    processor = getattr(transformers, f"{kind}ImageProcessor")(**settings)
    network.save_pretrained(folder)
    processor.save_pretrained(folder)
    return network, processor


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("MobileViT", {"size": {"shortest_edge": 64}, "crop_size": {"height": SIDE, "width": SIDE}}),
        ("Levit", {"size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE}}),
        ("EfficientNet", {"size": {"height": SIDE, "width": SIDE}, "image_std": [0.48, 0.47, 0.46]}),
        ("Perceiver", {"size": {"height": SIDE, "width": SIDE}, "crop_size": {"height": 64, "width": 64}}),
        ("ConvNext", {"size": {"shortest_edge": SIDE}}),
        ("ConvNext", {"size": {"shortest_edge": 384}, "side": 384}),
    ],
)
def test_a_folder_answers_as_the_library_does(tmp_path: Path, kind: str, settings: dict[str, Any]) -> None:
    network, processor = save(tmp_path, kind, **settings)
    image = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    image = np.array(Image.fromarray(image).resize((480, 320), Image.Resampling.BICUBIC))
    model = open_model(f"transformers:{tmp_path}", device="cpu")
    with torch.inference_mode():
        expected = network(**processor(images=image, return_tensors="pt")).logits
    assert torch.allclose(model.logits(model.prepare(image)[None]), expected, atol=0.05)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("ViT", {"size": {"shortest_edge": SIDE}}, r"makes \(3, 56, 84\) of a picture of 480×320"),
    ("ViT", {"do_resize": False}, r"makes \(3, 320, 480\)"),
    (
        "PPLCNet",
        {"size": {"height": 64, "width": 64}, "resize_short": 64, "crop_size": SIDE},
        "does not match its settings",
    ),
    ("ImageGPT", {"clusters": [[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]]}, "returns input_ids"),
    ("Siglip2", {}, "states no size"),
]


@pytest.mark.parametrize(("kind", "settings", "message"), REFUSED)
def test_what_no_transform_says_is_refused_until_it_is_stated(
    tmp_path: Path, kind: str, settings: dict[str, Any], message: str
) -> None:
    save(tmp_path, kind, **settings)
    with pytest.raises(UserError, match=message):
        open_model(f"transformers:{tmp_path}", device="cpu")
    with pytest.raises(UserError, match=message):
        open_model(f"transformers:{tmp_path}?resize=64&crop=56", device="cpu")
    transform = open_model(f"transformers:{tmp_path}{STATED}&interpolation=box&fit=long", device="cpu").transform
    assert transform == Transform(64, 56, "box", (0.5,) * 3, (0.25,) * 3, "long")


@pytest.mark.parametrize(
    "mistake",
    [
        {"mean": (0.485, 0.456, 0.406)},
        {"std": (0.229, 0.224, 0.225)},
        {"channels": "BGR"},
        {"resize": 66},
        {"fit": "squash"},
        {"scale": 2.0},
        {"interpolation": "nearest"},
    ],
)
def test_a_processor_read_wrongly_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: dict[str, Any]
) -> None:
    crop = {"height": SIDE, "width": SIDE}
    save(tmp_path, "CLIP", size={"shortest_edge": 64}, crop_size=crop)
    assert open_model(f"transformers:{tmp_path}", device="cpu").transform.crop == SIDE
    monkeypatch.setattr(from_transformers, "from_processor", lambda config: replace(from_processor(config), **mistake))
    with refused(r"\?resize=…&crop=…&mean=…&std=…", given=r"does not match its settings"):
        open_model(f"transformers:{tmp_path}", device="cpu")


def test_options_that_would_do_nothing_are_refused(tmp_path: Path) -> None:
    save(tmp_path, "ViT", size={"height": SIDE, "width": SIDE})
    (tmp_path / "names.txt").write_text("cat\ndog")
    with pytest.raises(UserError, match="names 2 classes, but the model has 3 outputs"):
        open_model(f"transformers:{tmp_path}?labels={tmp_path}/names.txt", device="cpu")
    with pytest.raises(UserError, match="prompt would have no effect"):
        open_model(f"transformers:{tmp_path}?prompt=a {{}}", device="cpu")


def test_a_network_without_pixels_is_refused(tmp_path: Path) -> None:
    config = transformers.ImageGPTConfig(vocab_size=3, n_positions=16, n_embd=8, n_layer=1, n_head=1)
    transformers.ImageGPTForImageClassification(config).save_pretrained(tmp_path)
    transformers.ImageGPTImageProcessor(clusters=[[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]]).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="which does not take pixels"):
        open_model(f"transformers:{tmp_path}{STATED}", device="cpu")


def test_timms_models_inside_transformers_keep_timms_transform(tmp_path: Path) -> None:
    details = {"input_size": [3, 64, 64], "crop_pct": 0.9, "interpolation": "bicubic", "mean": [0.5] * 3}
    config = transformers.TimmWrapperConfig(
        architecture="test_resnet", num_labels=1000, pretrained_cfg={**details, "std": [0.25] * 3, "num_classes": 1000}
    )
    transformers.TimmWrapperForImageClassification(config).save_pretrained(tmp_path)
    model = open_model(f"transformers:{tmp_path}", device="cpu")
    assert model.transform == Transform(71, 64, "bicubic", (0.5,) * 3, (0.25,) * 3)
