"""Other libraries' transforms read as ours: torchvision presets and Compose, timm configs, transformers' processors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from unfazed.errors import UserError

from .transforms import IMAGENET_MEAN, IMAGENET_STD, Transform

_NAMES = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def as_transform(value: Any) -> Transform:
    """`value` as a Transform: one already, its JSON, a torchvision preset, or a Compose of resize, crop, normalise."""
    if isinstance(value, Transform):
        return value
    if isinstance(value, Mapping):
        return Transform.from_json(dict(value))
    if hasattr(value, "crop_size") and hasattr(value, "resize_size"):
        return from_preset(value)
    if hasattr(value, "transforms"):
        return from_compose(value)
    raise UserError(
        f"a transform cannot be read from a {type(value).__name__}",
        allowed="unfazed.models.Transform(resize=…, crop=…, mean=…, std=…), its JSON, a torchvision preset, or a "
        "torchvision Compose of Resize, CenterCrop, ToTensor and Normalize",
    )


def from_preset(preset: Any) -> Transform:
    """A torchvision weight's own preset (`weights.transforms()`)."""
    return Transform(
        preset.resize_size[0],
        preset.crop_size[0],
        interpolation_name(preset.interpolation),
        tuple(preset.mean),
        tuple(preset.std),
    )


def from_compose(compose: Any) -> Transform:
    """A torchvision Compose whose steps are all of a kind that a Transform can say."""
    values: dict[str, Any] = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
    for step in compose.transforms:
        kind = type(step).__name__
        if kind == "Resize":
            size = step.size if isinstance(step.size, int) else list(step.size)
            values["fit"] = "short" if isinstance(size, int) or len(size) == 1 else "squash"
            values["resize"] = size if isinstance(size, int) else _square(size)
            values["interpolation"] = interpolation_name(step.interpolation)
        elif kind == "CenterCrop":
            values["crop"] = step.size if isinstance(step.size, int) else _square(step.size)
        elif kind == "Normalize":
            values["mean"], values["std"] = (tuple(float(one) for one in numbers) for numbers in (step.mean, step.std))
        elif kind not in (
            "ToTensor",
            "MaybeToTensor",
            "PILToTensor",
            "ToImage",
            "ToDtype",
            "ConvertImageDtype",
            "function",
        ):
            raise UserError(
                f"a transform with the step {kind} cannot be read",
                allowed="Resize, CenterCrop, ToTensor, Normalize; or unfazed.models.Transform(…)",
            )
    if "resize" not in values:
        raise UserError(
            "a transform without a Resize cannot be read", allowed="unfazed.models.Transform(resize=…, crop=…)"
        )
    values.setdefault("crop", values["resize"])
    if values["fit"] == "short" and values["crop"] > values["resize"]:
        values["resize"] = values["crop"]
    return Transform(**values)


def from_timm(config: Mapping[str, Any]) -> Transform:
    """timm's data config (`resolve_model_data_config`): the resize is the crop divided by `crop_pct`."""
    high, wide = config["input_size"][-2:]
    if high != wide:
        raise UserError(f"a model with an input of {wide}×{high} is not square")
    fit = {"center": "short", "squash": "squash", "border": "long"}[config.get("crop_mode") or "center"]
    return Transform(
        math.floor(high / (config.get("crop_pct") or 0.875)),
        high,
        interpolation_name(config.get("interpolation") or "bilinear"),
        tuple(config.get("mean") or IMAGENET_MEAN),
        tuple(config.get("std") or IMAGENET_STD),
        fit,
    )


def from_processor(config: Mapping[str, Any]) -> Transform:
    """transformers' image processor, given as its dict."""
    size, crop = dict(config.get("size") or {}), config.get("crop_size")
    fit = (
        "squash" if "height" in size else "long" if "longest_edge" in size and "shortest_edge" not in size else "short"
    )
    resize = size.get("shortest_edge") or size.get("height") or size.get("longest_edge")
    cut = dict(crop).get("height") if isinstance(crop, Mapping) else crop
    if not config.get("do_center_crop"):
        cut = resize
    # A processor that states crop_pct (ConvNeXT) resizes to size / crop_pct and cuts `size` out, below 384 pixels.
    if config.get("crop_pct") and resize and resize < 384:
        cut, resize = resize, int(resize / config["crop_pct"])
    if not resize or not cut:
        raise UserError(f"the image processor states no size: {dict(config)}")
    normalised = config.get("do_normalize", True)
    return Transform(
        int(resize),
        int(cut),
        interpolation_name(config.get("resample", 2)),
        tuple(config.get("image_mean") or IMAGENET_MEAN) if normalised else (0.0, 0.0, 0.0),
        tuple(config.get("image_std") or IMAGENET_STD) if normalised else (1.0, 1.0, 1.0),
        fit,
        scale=round(float(config.get("rescale_factor", 1 / 255)) * 255, 6) if config.get("do_rescale", True) else 255.0,
    )


def interpolation_name(value: Any) -> str:
    """`bicubic` from PIL's number, torchvision's enum or a name."""
    value = getattr(value, "value", value)
    return _NAMES.get(value, "bilinear") if isinstance(value, int) else str(value).split(",")[0].strip().lower()


def _square(size: Any) -> int:
    sides = list(size)
    if len(sides) > 1 and sides[0] != sides[1]:
        raise UserError(f"a transform to {sides[1]}×{sides[0]} is not square")
    return int(sides[0])
