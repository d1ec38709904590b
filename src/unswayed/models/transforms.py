"""A model's transform as data: how a photograph becomes the model's input tensor.

The geometry (resize, crop) gives an 8-bit picture, so models that share it share the work; the numbers (mean,
standard deviation, channel order) are applied afterward, on the model's own device.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, get_type_hints

import numpy as np

from unswayed.errors import BadPicture, UserError, check_known
from unswayed.files.records import require_fields
from unswayed.files.whole import Json

if TYPE_CHECKING:
    import torch

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FITS = ("short", "squash", "long")
INTERPOLATIONS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


@dataclass(frozen=True)
class Geometry:
    """The part of a transform that is done on pixels: any picture -> (crop, crop, 3) uint8."""

    resize: int
    crop: int
    interpolation: str
    fit: str
    fill: tuple[int, int, int] = (0, 0, 0)

    def size(self, high: int, wide: int) -> tuple[int, int]:
        """Height and width after resizing."""
        if self.fit == "squash":
            return self.resize, self.resize
        side = min(high, wide) if self.fit == "short" else max(high, wide)
        # The other side is truncated for `short` and rounded for `long`, exactly as torchvision and timm do.
        other = (int if self.fit == "short" else round)(self.resize * (high + wide - side) / side)
        other = max(1, other)
        return (self.resize, other) if side == high else (other, self.resize)

    def window(self, high: int, wide: int) -> tuple[float, float, float, float]:
        """The part of the picture that the model sees: top, left, bottom, right in pixels of the picture."""
        tall, broad = self.size(high, wide)
        top, left = _start(tall, self.crop), _start(broad, self.crop)
        return (
            max(0.0, top * high / tall),
            max(0.0, left * wide / broad),
            min(high, (top + self.crop) * high / tall),
            min(wide, (left + self.crop) * wide / broad),
        )

    def apply(self, image: np.ndarray) -> np.ndarray:
        """The picture as the model's crop: (H, W, 3) uint8 -> (crop, crop, 3) uint8."""
        from PIL import Image

        high, wide = image.shape[:2]
        tall, broad = self.size(high, wide)
        top, left = _start(tall, self.crop), _start(broad, self.crop)
        is_smaller = min(tall, broad) < self.crop
        if (tall, broad) == (high, wide) and not is_smaller:
            return image[top : top + self.crop, left : left + self.crop]
        picture = Image.fromarray(image)
        if (tall, broad) != (high, wide):
            picture = picture.resize((broad, tall), Image.Resampling(INTERPOLATIONS[self.interpolation]))
        if is_smaller:
            canvas = Image.new("RGB", (self.crop, self.crop), self.fill)
            canvas.paste(picture, (-left, -top))
            return np.asarray(canvas)
        return np.asarray(picture.crop((left, top, left + self.crop, top + self.crop)))

    def survives(self, mask: np.ndarray) -> float:
        """The share of the object's pixels, mask (H, W) > 0.5, whose centers lie inside the model's crop."""
        inside = mask > 0.5
        top, left, bottom, right = self.window(*inside.shape)
        cut = inside[_first(top) : _first(bottom), _first(left) : _first(right)]
        total = int(np.count_nonzero(inside))
        return int(np.count_nonzero(cut)) / total if total else float("nan")


MOST_LONGER = 1000


def cropped(
    image: np.ndarray, mask: np.ndarray | None, geometries: Sequence[Geometry]
) -> tuple[list[np.ndarray], list[float]]:
    """The picture's crop for each geometry, and the share of the object that it shows: NaN without a mask."""
    high, wide = image.shape[:2]
    if max(high, wide) > MOST_LONGER * min(high, wide):  # resized to a shorter side of 224 it would take gigabytes
        raise BadPicture(f"the picture has {wide} × {high} pixels", allowed=f"sides up to 1 : {MOST_LONGER}")
    crops = [geometry.apply(image) for geometry in geometries]
    return crops, [float("nan") if mask is None else geometry.survives(mask) for geometry in geometries]


@dataclass(frozen=True)
class Transform:
    """The preprocessing of one model; stored in its card as JSON.

    resize: the side after resizing, in pixels; `fit` states which side: `short` (the shorter one, as usual),
    `squash` (both, the shape is lost), `long` (the longer one, the rest is filled with the mean). crop: the central
    square that is cut out. mean, std: of RGB in [0, 1]; scale: the factor applied first (255 for networks that take
    0…255); channels: RGB or BGR, the order the network takes (mean and std are in that order). checked: you know that
    the transform is that of the training, so no other is tried before an evaluation.

    >>> Transform(resize=256, crop=224).geometry.window(256, 256)
    (16.0, 16.0, 240.0, 240.0)
    """

    resize: int = 256
    crop: int = 224
    interpolation: str = "bilinear"
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    fit: str = "short"
    scale: float = 1.0
    channels: str = "RGB"
    checked: bool = False

    def __post_init__(self) -> None:
        for name in ("resize", "crop"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 1 <= value <= 8192:
                allowed = "an integer number of pixels, 1 to 8192"
                raise UserError(f"the transform's {name} is {value!r}", allowed=allowed)
        check_known("interpolation", [self.interpolation], INTERPOLATIONS)
        check_known("fit", [self.fit], FITS)
        check_known("channel order", [self.channels], ("RGB", "BGR"))
        for name in ("mean", "std"):
            object.__setattr__(self, name, _three(name, getattr(self, name)))
        if min(self.std) <= 0:
            raise UserError(f"the transform's std is {self.std}", allowed="three numbers above 0")

    @property
    def geometry(self) -> Geometry:
        red, green, blue = (min(255, max(0, round(255 * value / self.scale))) for value in self.mean)
        fill = (red, green, blue) if self.fit == "long" else (0, 0, 0)
        return Geometry(self.resize, self.crop, self.interpolation, self.fit, fill)

    def normalize(self, pixels: torch.Tensor, in_place: bool = False) -> torch.Tensor:
        """(N, 3, h, w) RGB in [0, 1] -> the network's input; differentiable unless done in place."""
        if self.channels == "BGR":
            pixels = pixels.flip(1)
        if self.scale != 1.0:
            pixels = pixels * self.scale
        # For channels-last pixels the numbers are repeated for a whole row: three at a time are four times slower.
        wide = pixels.shape[-1] if pixels.stride(1) == 1 else 1
        mean, std = (_on(numbers, str(pixels.device), wide).to(pixels.dtype) for numbers in (self.mean, self.std))
        return pixels.sub_(mean).div_(std) if in_place else (pixels - mean) / std

    def tensor(self, image: np.ndarray) -> torch.Tensor:
        """(H, W, 3) uint8 -> (3, crop, crop) float32: the whole transform of one picture."""
        import torch

        crop = torch.from_numpy(self.geometry.apply(image).copy()).permute(2, 0, 1)
        return self.normalize(crop[None].float() / 255)[0]

    def differentiable(self, pixels: torch.Tensor) -> torch.Tensor:
        """(N, 3, H, W) in [0, 1] -> the network's input, differentiable; resizes as PIL does."""
        import torch.nn.functional as functional

        from .libraries import torchvision

        tall, broad = self.geometry.size(*pixels.shape[-2:])
        if (tall, broad) != tuple(pixels.shape[-2:]):
            mode = self.interpolation if self.interpolation in ("bilinear", "bicubic") else "bilinear"
            pixels = functional.interpolate(pixels, (tall, broad), mode=mode, antialias=True).clamp(0, 1)
        # Where the crop is larger, zeros are added around the picture; both are centered as in `Geometry`.
        return self.normalize(torchvision.transforms.functional.center_crop(pixels, [self.crop, self.crop]))

    def to_json(self) -> Json:
        values = {**asdict(self), "mean": list(self.mean), "std": list(self.std)}
        if not self.checked:
            del values["checked"]
        return values

    @staticmethod
    def from_json(value: Json) -> Transform:
        check_known("transform setting", value, TRANSFORM)
        require_fields(value, {name: _KINDS[name] for name in value}, "the transform")
        return Transform(**value)

    def __str__(self) -> str:
        how = {"short": "shorter side to", "squash": "squashed to", "long": "longer side to"}[self.fit]
        mean, std = (", ".join(f"{value:.4g}" for value in numbers) for numbers in (self.mean, self.std))
        text = f"{how} {self.resize} ({self.interpolation}), crop {self.crop}, mean ({mean}), std ({std})"
        times = f", times {self.scale:g}" if self.scale != 1 else ""
        return f"{text}{times}{', BGR' if self.channels == 'BGR' else ''}"


# In JSON one number may stand for all channels.
_KINDS = get_type_hints(Transform) | dict.fromkeys(("mean", "std"), float | list[float])
TRANSFORM = tuple(_KINDS)
# The options that a name of every source may have.
COMMON = (*TRANSFORM, "labels", "layer")


def transform_from(options: Mapping[str, str], base: Transform) -> Transform:
    """`base` with the settings that the options name: `?crop=240&mean=0.5&interpolation=bicubic`."""
    values: Json = {name: _value(name, options[name]) for name in TRANSFORM if name in options}
    return replace(base, **values)


def _value(name: str, text: str) -> int | float | bool | str | tuple[float, ...]:
    try:
        if name in ("resize", "crop"):
            return int(text)
        if name == "scale":
            return float(text)
        if name == "checked":
            return {"yes": True, "no": False}[text]
        if name in ("mean", "std"):
            numbers = [float(number) for number in text.split(",")]
            return numbers[0] if len(numbers) == 1 else tuple(numbers)
    except KeyError:
        raise UserError(f"the option {name} is '{text}'", allowed=f"{name}=yes or {name}=no") from None
    except ValueError:
        raise UserError(f"{name}={text} is not a number", allowed=f"{name}=256, {name}=0.5,0.5,0.5 …") from None
    return text


def paper(own: Transform) -> Transform:
    """The transform with the published protocol's geometry, resize 256 and crop 224."""
    return replace(own, resize=256, crop=224, fit="short")


@functools.lru_cache(maxsize=64)
def _on(numbers: tuple[float, float, float], device: str, wide: int) -> torch.Tensor:
    """Three numbers as (1, 3, 1, wide) on a device, cached: sending them again would make a GPU wait."""
    import torch

    values = torch.tensor(numbers, dtype=torch.float32, device=device).view(1, 3, 1, 1).expand(1, 3, 1, wide)
    return values.contiguous(memory_format=torch.channels_last)


def _start(side: int, crop: int) -> int:
    """Where a centered crop starts; negative if the crop is larger than the side."""
    return int(round((side - crop) / 2)) if side >= crop else -((crop - side) // 2)


def _first(edge: float) -> int:
    """The first pixel whose center lies at or beyond `edge`."""
    return int(np.ceil(edge - 0.5))


def _three(name: str, value: float | Sequence[float]) -> tuple[float, float, float]:
    numbers = tuple(map(float, value if isinstance(value, Sequence) else (value,) * 3))
    if len(numbers) != 3 or not np.isfinite(numbers).all():
        raise UserError(f"the transform's {name} is {value!r}", allowed="one finite number for each of three channels")
    return numbers
