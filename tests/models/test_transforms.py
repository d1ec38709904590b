"""A transform as data does what torchvision and timm do with the same numbers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision import transforms as library
from torchvision.models import ResNet50_Weights

from unswayed.errors import BadPicture, UserError
from unswayed.models import Transform
from unswayed.models.foreign_transforms import as_transform, from_processor, from_timm
from unswayed.models.transforms import cropped, paper

sides = st.integers(20, 90)


def picture(high: int, wide: int) -> np.ndarray:
    return np.random.default_rng(high * wide).integers(0, 256, (high, wide, 3), dtype=np.uint8)


@given(sides, sides, st.integers(16, 64), st.integers(16, 64), st.sampled_from(["bilinear", "bicubic"]))
@settings(max_examples=40, deadline=None)
def test_equals_torchvision_to_the_bit(high: int, wide: int, resize: int, crop: int, how: str) -> None:
    image = picture(high, wide)
    ours = Transform(resize, crop, how, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)).tensor(image)
    theirs = library.Compose(
        [
            library.Resize(resize, library.InterpolationMode(how)),
            library.CenterCrop(crop),
            library.ToTensor(),
            library.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)),
        ]
    )(Image.fromarray(image))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("mode", ["center", "squash", "border"])
@pytest.mark.parametrize("size", [(50, 80), (80, 50), (61, 61)])
def test_equals_timm(mode: str, size: tuple[int, int]) -> None:
    from timm.data import create_transform

    config = {"input_size": (3, 40, 40), "crop_pct": 0.9, "crop_mode": mode, "interpolation": "bicubic"}
    numbers = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
    image = picture(*size)
    theirs = create_transform(**config, **numbers)(Image.fromarray(image))
    assert torch.allclose(from_timm({**config, **numbers}).tensor(image), theirs, atol=1e-6)


def test_channels_last_pixels_give_the_same_numbers_to_the_bit() -> None:
    pixels = torch.rand(2, 3, 20, 30)
    transform = Transform(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    expected = (pixels - torch.tensor(transform.mean).view(3, 1, 1)) / torch.tensor(transform.std).view(3, 1, 1)
    for layout in (torch.contiguous_format, torch.channels_last):
        given = pixels.clone(memory_format=layout)
        assert torch.equal(transform.normalize(given), expected)
        assert torch.equal(transform.normalize(given, in_place=True), expected)


def test_reads_a_preset_and_a_compose() -> None:
    preset = as_transform(ResNet50_Weights.IMAGENET1K_V2.transforms())
    assert (preset.resize, preset.crop, preset.interpolation) == (232, 224, "bilinear")
    steps = [library.Resize(64), library.CenterCrop(48), library.ToTensor(), library.Normalize((0.1,) * 3, (0.9,) * 3)]
    assert as_transform(library.Compose(steps)) == Transform(64, 48, "bilinear", (0.1,) * 3, (0.9,) * 3)


def test_reads_a_processor() -> None:
    clip = {"size": {"shortest_edge": 224}, "crop_size": {"height": 224, "width": 224}, "do_center_crop": True}
    assert from_processor({**clip, "resample": 3}).fit == "short"
    squashed = from_processor({"size": {"height": 384, "width": 384}, "resample": 2, "image_mean": [0.5] * 3})
    assert (squashed.fit, squashed.crop, squashed.mean) == ("squash", 384, (0.5,) * 3)


PROCESSORS: list[tuple[str, dict[str, Any]]] = [
    ("ViT", {}),
    ("ViT", {"image_mean": 0.4, "image_std": 0.25}),
    ("DeiT", {}),
    ("Beit", {}),
    ("Bit", {"size": {"shortest_edge": 256}}),
    ("CLIP", {}),
    ("Siglip", {}),
    ("Pvt", {}),
    ("Segformer", {}),
    ("MobileNetV1", {}),
    ("MobileNetV2", {}),
    ("MobileViT", {"size": {"shortest_edge": 288}}),
    ("MobileViT", {"do_flip_channel_order": False}),
    ("Levit", {}),
    ("PoolFormer", {}),
    ("PoolFormer", {"crop_pct": 0.8, "size": {"height": 320, "width": 320}, "crop_size": 288}),
    ("Perceiver", {}),
    ("Perceiver", {"do_center_crop": False}),
    ("ConvNext", {"size": {"shortest_edge": 224}}),
    ("ConvNext", {"size": {"shortest_edge": 384}}),
    ("EfficientNet", {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.48, 0.47, 0.46]}),
    ("EfficientNet", {"include_top": False}),
    ("EfficientNet", {"rescale_offset": True, "rescale_factor": 1 / 127.5, "do_normalize": False}),
]


@pytest.mark.parametrize("backend", ["", "Pil"])
@pytest.mark.parametrize(("kind", "settings"), PROCESSORS)
def test_equals_the_processors_of_transformers(kind: str, settings: dict[str, Any], backend: str) -> None:
    import transformers

    processor = getattr(transformers, f"{kind}ImageProcessor{backend}")(**settings)
    transform = from_processor(processor.to_dict())
    # Sides that every processor here cuts at whole pixels.
    for size in ((320, 480), (480, 320)):
        image = np.array(Image.fromarray(picture(20, 30)).resize(size[::-1], Image.Resampling.BICUBIC))
        theirs = processor(images=image, return_tensors="pt")["pixel_values"][0]
        difference = (transform.tensor(image) - theirs) * torch.tensor(transform.std).view(3, 1, 1) / transform.scale
        # torchvision's resize rounds a few pixels to the neighboring one of 255 levels.
        assert difference.abs().mean() * 255 < (0.1 if backend == "" else 0.005)


def test_a_step_that_cannot_be_read_is_named() -> None:
    with pytest.raises(UserError, match="RandomRotation"):
        as_transform(library.Compose([library.Resize(64), library.RandomRotation(10)]))


@given(sides, sides, st.integers(16, 64), st.integers(8, 64), st.sampled_from(["short", "squash"]))
@settings(max_examples=40, deadline=None)
def test_surviving_share_is_that_of_the_transformed_mask(
    high: int, wide: int, resize: int, crop: int, fit: str
) -> None:
    mask = np.zeros((high, wide), np.float32)
    mask[high // 4 : high // 2 + 1, : wide // 2 + 1] = 1
    geometry = Transform(resize, crop, "nearest", fit=fit).geometry
    share = geometry.survives(mask)
    assert 0 <= share <= 1
    # The mask drawn as a picture and transformed has as much of the object, counted in the crop's larger pixels.
    drawn = np.repeat((mask * 255).astype(np.uint8)[..., None], 3, 2)
    tall, broad = geometry.size(high, wide)
    seen = (geometry.apply(drawn)[..., 0] > 127).sum() * (high * wide) / (tall * broad)
    ring = 4 * (high + wide) + 4 * (high * wide) / min(tall, broad)
    assert abs(share * mask.sum() - seen) <= ring


def test_an_object_outside_the_crop_does_not_survive() -> None:
    mask = np.zeros((256, 256), np.float32)
    mask[:10, :10] = 1
    geometry = Transform(256, 224).geometry
    assert geometry.survives(mask) == 0
    assert geometry.survives(np.ones((256, 256), np.float32)) == (224 / 256) ** 2


@pytest.mark.parametrize("size", [(64, 64), (100, 80), (30, 30)])
def test_differentiable_is_the_same_picture_with_gradients(size: tuple[int, int]) -> None:
    transform = Transform(48, 40, "bicubic")
    smooth = np.asarray(Image.fromarray(picture(8, 8)).resize(size[::-1], Image.Resampling.BICUBIC))
    pixels = torch.from_numpy(smooth.copy()).permute(2, 0, 1)[None].float().div(255).requires_grad_()
    ours = transform.differentiable(pixels)
    ours.sum().backward()
    assert pixels.grad is not None
    assert pixels.grad.abs().sum() > 0
    assert (ours[0] - transform.tensor(smooth)).abs().mean() < 0.02


def test_json_goes_both_ways_and_the_paper_keeps_the_numbers() -> None:
    transform = Transform(292, 260, "bicubic", (0.5,) * 3, (0.25,) * 3, scale=255.0, channels="BGR")
    assert Transform.from_json(json.loads(json.dumps(transform.to_json()))) == transform
    assert paper(transform) == Transform(256, 224, "bicubic", (0.5,) * 3, (0.25,) * 3, scale=255.0, channels="BGR")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"crop": 0}, "crop is 0"),
        ({"interpolation": "bicubik"}, "did you mean 'bicubic'"),
        ({"std": (0.0, 1.0, 1.0)}, "above 0"),
        ({"mean": (0.5, 0.5)}, "each of three channels"),
        ({"crops": 224}, "did you mean 'crop'"),
    ],
)
def test_bad_settings_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Transform.from_json(values)


def test_a_picture_that_is_a_line_is_refused_before_it_is_resized():
    """Before, one pixel by a million became 32 by 32 million pixels and took five gigabytes."""
    geometry = [Transform(32, 32).geometry]
    with pytest.raises(BadPicture, match="1000000 × 1"):
        cropped(np.zeros((1, 1_000_000, 3), np.uint8), None, geometry)
    assert cropped(np.zeros((1, 900, 3), np.uint8), None, geometry)[0][0].shape == (32, 32, 3)


@pytest.mark.parametrize(("side", "wide"), [(47, 46), (47, 31), (20, 19)])
def test_a_picture_that_is_one_pixel_too_narrow_is_filled(side: int, wide: int) -> None:
    """One missing pixel has no half on each side: the crop had one column too few, or a black one."""
    transform = Transform(side, side, fit="long", mean=(0.5,) * 3, std=(0.25,) * 3)
    image = np.full((side, wide, 3), 200, np.uint8)
    crop = transform.geometry.apply(image)
    assert crop.shape == (side, side, 3)
    assert {tuple(pixel) for pixel in crop.reshape(-1, 3).tolist()} == {(200,) * 3, (128,) * 3}
    pixels = torch.from_numpy(image / 255).float().permute(2, 0, 1)[None]
    assert transform.differentiable(pixels).shape == (1, 3, side, side)
