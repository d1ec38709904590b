"""Transforms of other libraries as a Transform: torchvision presets and Compose, timm and transformers configs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unswayed.errors import UserError
from unswayed.files.whole import Json

from .transforms import IMAGENET_MEAN, IMAGENET_STD, INTERPOLATIONS, Transform

# How a user states what a library's own transform does not.
STATED = "?resize=…&crop=…&mean=…&std=…, the values that the model was trained with, instead of the library's own"
# Steps that only make numbers of the pixels.
_AS_NUMBERS = ("ToTensor", "MaybeToTensor", "PILToTensor", "ToImage", "ToDtype", "ConvertImageDtype", "function")
Config = Json  # of a library
_NAMES = {number: name for name, number in INTERPOLATIONS.items()}


def as_transform(value: Any) -> Transform:
    """`value` as a Transform: one already, its JSON, a torchvision preset, or a Compose of resize, crop, normalize."""
    if isinstance(value, Transform):
        return value
    if isinstance(value, Mapping):
        return Transform.from_json(dict(value))
    if hasattr(value, "crop_size") and hasattr(value, "resize_size"):  # a preset: `weights.transforms()`
        mean, std, name = tuple(value.mean), tuple(value.std), interpolation_name(value.interpolation)
        return Transform(value.resize_size[0], value.crop_size[0], name, mean, std)
    if hasattr(value, "transforms"):
        return _from_compose(value)
    raise UserError(
        f"a transform cannot be read from a {type(value).__name__}",
        allowed="unswayed.models.Transform(resize=…, crop=…, mean=…, std=…), its JSON, a torchvision preset, or a "
        "torchvision Compose of Resize, CenterCrop, ToTensor and Normalize",
    )


def _from_compose(compose: Any) -> Transform:
    """A torchvision Compose whose steps can all be expressed as a Transform."""
    values: Json = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
    for step in compose.transforms:
        kind = type(step).__name__
        if kind == "Resize":
            values["resize"] = _square(step.size)
            values["fit"] = "short" if isinstance(step.size, int) or len(step.size) == 1 else "squash"
            values["interpolation"] = interpolation_name(step.interpolation)
        elif kind == "CenterCrop":
            values["crop"] = _square(step.size)
        elif kind == "Normalize":
            values["mean"], values["std"] = (tuple(map(float, numbers)) for numbers in (step.mean, step.std))
        elif kind not in _AS_NUMBERS:
            raise UserError(
                f"a transform with the step {kind} cannot be read",
                allowed="Resize, CenterCrop, ToTensor, Normalize; or unswayed.models.Transform(…)",
            )
    if "resize" not in values:
        allowed = "unswayed.models.Transform(resize=…, crop=…)"
        raise UserError("a transform without a Resize cannot be read", allowed=allowed)
    values.setdefault("crop", values["resize"])
    if values["fit"] == "short" and values["crop"] > values["resize"]:
        values["resize"] = values["crop"]
    return Transform(**values)


def from_timm(config: Config) -> Transform:
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


def from_processor(config: Config) -> Transform:
    """transformers' image processor, given as its dict; its class determines what the numbers in it mean."""
    if "data_config" in config:  # a timm model inside transformers
        return from_timm(config["data_config"])
    kind = str(config.get("image_processor_type", "")).partition("ImageProcessor")[0]
    resize, crop, fit = _processor_geometry(kind, config)
    if not resize or not crop:
        raise UserError(
            f"the image processor {config.get('image_processor_type', dict(config))} states no size", allowed=STATED
        )
    # MobileViT takes unnormalized numbers in [0, 1], although its dict may state a mean.
    normalized = kind != "MobileViT" and config.get("do_normalize", True)
    spread = np.array(config.get("image_std") or IMAGENET_STD, float)
    mean: Any = np.array(config.get("image_mean") or IMAGENET_MEAN, float) if normalized else np.zeros(3)
    std: Any = spread if normalized else np.ones(3)
    if kind == "EfficientNet" and config.get("rescale_offset"):
        mean = mean + 1
    if kind == "EfficientNet" and config.get("include_top"):
        std = std * spread
    resample = config.get("resample")
    return Transform(
        int(resize),
        int(crop),
        interpolation_name(2 if resample is None else resample),
        mean.tolist(),
        std.tolist(),
        fit,
        scale=round(float(config.get("rescale_factor", 1 / 255)) * 255, 6) if config.get("do_rescale", True) else 255.0,
        channels="BGR" if config.get("do_flip_channel_order") else "RGB",
    )


def _processor_geometry(kind: str, config: Config) -> tuple[int | None, int | None, str]:
    """The resize, the crop and the fit of a processor of class `kind`; None if it states no number."""
    size, crop = dict(config.get("size") or {}), config.get("crop_size")
    short, high, long = (size.get(name, 0) for name in ("shortest_edge", "height", "longest_edge"))
    resize = short or high or long
    fit = "short" if short else "squash" if high else "long"
    if not resize:
        return None, None, fit
    cut = dict(crop).get("height") if isinstance(crop, Mapping) else crop
    if not config.get("do_center_crop"):
        cut = resize
    elif kind == "Perceiver":
        # It cuts size / crop_size of the shorter side and resizes that to `size`.
        resize, cut, fit = cut, resize, "short"
    if kind == "Levit" and fit == "short":
        resize = int(256 / 224 * resize)
    if kind == "PoolFormer" and config.get("crop_pct"):
        resize, fit = int(resize / config["crop_pct"]), "short"
    if kind == "ConvNext":
        # Below 384 pixels it resizes to size / crop_pct and cuts `size` out; from there on it squashes.
        share = config.get("crop_pct") or 224 / 256
        return (int(resize / share), resize, "short") if resize < 384 else (resize, resize, "squash")
    return resize, cut, fit


def interpolation_name(value: object) -> str:
    """`bicubic` from PIL's number, torchvision's enum or a name."""
    value = getattr(value, "value", value)
    return _NAMES.get(value, "bilinear") if isinstance(value, int) else str(value).split(",")[0].strip().lower()


def _square(size: int | Sequence[int]) -> int:
    sides = [size] if isinstance(size, int) else list(size)
    if len(sides) > 1 and sides[0] != sides[1]:
        raise UserError(f"a transform to {sides[1]}×{sides[0]} is not square")
    return int(sides[0])
