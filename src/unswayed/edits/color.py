"""Color: the object's hue and saturation, at unchanged lightness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .composition import Adjustment, Composition, Layer, Pool
from .edit import Change, Edit, Range, parameter
from .lighting import from_linear, to_linear

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Color(Edit):
    """The object in another color: hue rotated and saturation scaled in CIELAB; a pixel edit without diffusion."""

    name = "color"
    axis = "hue"
    axis_label = "rotation of the hue, degrees"
    description = "the object's hue and saturation"
    order = 80
    changes = (
        Change("object's hue turned", "hue", 0.0, 180.0),
        Change("object losing its color", "saturation", 1.0, 0.0),
    )

    hue: float = parameter(0.0, Range(-180.0, 180.0, unit="degrees", step=1.0), "how far the hue is turned")
    saturation: float = parameter(
        1.0, Range(0.0, 3.0, unit="times its saturation", step=0.05), "factor on the saturation; 0 is gray"
    )

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        change = Adjustment(recolored, (("hue", self.hue), ("saturation", self.saturation)))
        return composition.adjust(change, "object", color=[self.hue, self.saturation])

    def describe(self) -> str:
        if self.saturation == 0:
            return "object without color"
        scaled = "" if self.saturation == 1 else f", saturation times {self.saturation:g}"
        return f"object's hue turned by {self.hue:g}°{scaled}".replace("-", "−")

    def words(self, chained: bool = False) -> str:
        return "gray object" if self.saturation == 0 else f"hue {self.hue:+g}°".replace("-", "−")


def recolored(image: np.ndarray, weight: np.ndarray, hue: float, saturation: float) -> Layer:
    """Return the pixels with the hue rotated by `hue` degrees and the saturation scaled, at unchanged lightness."""
    import cv2

    lab = cv2.cvtColor(image.astype(np.float32) / 255, cv2.COLOR_RGB2Lab)
    cosine, sine = saturation * np.cos(np.radians(hue)), saturation * np.sin(np.radians(hue))
    a, b = lab[..., 1].copy(), lab[..., 2].copy()
    lab[..., 1], lab[..., 2] = cosine * a - sine * b, sine * a + cosine * b
    turned = cv2.cvtColor(lab, cv2.COLOR_Lab2RGB)
    return np.clip(np.round(turned * 255), 0, 255).astype(np.uint8), weight


# Linear RGB to XYZ and back, in units of the white point D65, as OpenCV has them.
_RGB_TO_XYZ = ((0.412453, 0.357580, 0.180423), (0.212671, 0.715160, 0.072169), (0.019334, 0.119193, 0.950227))
_TO_XYZ = np.divide(_RGB_TO_XYZ, ((0.950456,), (1.0,), (1.088754,))).tolist()
_FROM_XYZ = np.linalg.inv(_TO_XYZ).tolist()


def recolored_batch(pictures: Tensor, hue: Tensor, saturation: Tensor) -> Tensor:
    """Return pictures (n, 3, H, W) in [0, 1] as `recolored` changes them, each by its own hue and saturation (n,).

    OpenCV computes CIELAB exactly for 33 levels of each channel and interpolates between them, in steps of a sixteenth.
    """
    import torch
    from torch.nn.functional import grid_sample

    along = torch.linspace(0, 1, 33, device=pictures.device)
    channels = torch.meshgrid(along, along, along, indexing="ij")
    xyz = _product(_TO_XYZ, [to_linear(channel, torch) for channel in channels])
    x, y, z = (torch.where(part > 0.008856, part ** (1 / 3), 7.787 * part + 16 / 116) for part in xyz)
    table = torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)])
    steps = pictures.float().mul(16384).round().div(32).floor()
    places = steps.div(256).sub(1).movedim(1, -1).flip(-1)
    lab = grid_sample(table.expand(len(pictures), -1, -1, -1, -1), places[:, None], align_corners=True)[:, :, 0]
    lightness, a, b = lab.unbind(1)
    turn = torch.deg2rad(hue.float())
    cosine, sine = ((saturation.float() * part).view(-1, 1, 1) for part in (turn.cos(), turn.sin()))
    a, b = cosine * a - sine * b, sine * a + cosine * b
    middle = (lightness + 16) / 116
    y = torch.where(lightness <= 8, lightness / 903.3, middle**3)
    middle = torch.where(lightness <= 8, 7.787 * y + 16 / 116, middle)
    x, z = (torch.where(f > 6 / 29, f**3, (f - 16 / 116) / 7.787) for f in (middle + a / 500, middle - b / 200))
    light = torch.stack(_product(_FROM_XYZ, (x, y, z)), dim=1).clamp(0, 1)
    return from_linear(light, torch).to(pictures.dtype)


def _product(matrix: list[list[float]], channels: Sequence[Tensor]) -> list[Tensor]:
    first, second, third = channels
    return [row[0] * first + row[1] * second + row[2] * third for row in matrix]
