"""What fog, rain, snow, night, shadow and sun have in common: a severity, a seeded pattern, and one definition in numpy
for the layers of a composition and in torch for whole batches.
"""

from __future__ import annotations

import zlib
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .composition import Adjustment, Composition, Layer, Pool
from .edit import Change, Edit, Range, parameter, where
from .lighting import from_linear, to_linear

if TYPE_CHECKING:
    from torch import Tensor

WORST = 5.0
_BITS = 0xFFFFFFFF


@dataclass(frozen=True, eq=False)
class Air:
    """What an operation knows besides the light of n pictures: everything as (n or 1, 1, H or 1, W or 1).

    x, y: where pixels are, in units of the longer side, y down; down: the row as a share of the height; pixel: the
    side of a pixel; weight: what belongs to the layer; is_object: whether that is the object; seed: int64, of each
    picture's pattern; xp: the module of the arrays, numpy or torch; scene_id: of the picture, if it is one alone.
    """

    x: Any
    y: Any
    down: Any
    pixel: float
    weight: Any
    is_object: bool
    seed: Any
    xp: Any
    scene_id: str = ""

    @classmethod
    def over(cls, weight: Any, is_object: bool, seed: Any, xp: Any, scene_id: str = "") -> Air:
        """Return the air before layers whose weight is (n, 1, H, W); seed: (n,)."""
        high, wide = weight.shape[-2:]
        options = {} if xp is np else {"device": weight.device}
        x, y = ((xp.arange(side, **options) + 0.5) / max(high, wide) for side in (wide, high))
        x, y = _float(x, xp).reshape(1, 1, 1, -1), _float(y, xp).reshape(1, 1, -1, 1)
        pixel = 1 / max(high, wide)
        return cls(x, y, y / (high * pixel), pixel, weight, is_object, seed.reshape(-1, 1, 1, 1), xp, scene_id)

    def drawn(self, salt: int, row: Any = 0, column: Any = 0) -> Any:
        """Return numbers in [0, 1), drawn from the seed for each salt, row and column (whole numbers)."""
        mixed = (row * 73856093) ^ (column * 19349663) ^ (self.seed * 83492791) ^ (salt * 2654435761)
        mixed = mixed & _BITS
        for _ in range(2):
            mixed = ((mixed ^ (mixed >> 16)) * 0x45D9F3B) & _BITS
        return _float((mixed ^ (mixed >> 16)) >> 8, self.xp) / 2**24

    def turned(self, angle: Any) -> tuple[Any, Any]:
        """Return x and y turned by an angle (n, 1, 1, 1) in degrees: across that direction and along it."""
        cosine, sine = self.xp.cos(angle * (np.pi / 180)), self.xp.sin(angle * (np.pi / 180))
        return self.x * cosine - self.y * sine, self.x * sine + self.y * cosine

    def noise(self, salt: int, x: object, y: object) -> Any:
        """Return a smooth random field in [0, 1] at x, y, in units of its cells."""
        column, row = self.whole(x), self.whole(y)
        right, low = (share * share * (3 - 2 * share) for share in (x - self.xp.floor(x), y - self.xp.floor(y)))
        upper, lower = (
            self.drawn(salt, line, column) * (1 - right) + self.drawn(salt, line, column + 1) * right
            for line in (row, row + 1)
        )
        return upper * (1 - low) + lower * low

    def whole(self, values: Any) -> Any:
        """Return the largest whole numbers that are not above the values."""
        return np.floor(values).astype(np.int64) if self.xp is np else values.floor().long()

    def color(self, *levels: float) -> Any:
        """Return a color as (1, 3, 1, 1), or any other numbers by channel."""
        tensor = np.array(levels, np.float32) if self.xp is np else self.x.new_tensor(levels)
        return tensor.reshape(1, 3, 1, 1)


def _float(values: Any, xp: Any) -> Any:
    return values.astype(np.float32) if xp is np else values.float()


@dataclass(frozen=True)
class Weather(Edit):
    """A weather of some severity; each step of the severity changes a picture equally far, in mean CIE ΔE.

    strengths: the strength in [0, 1] at the severities 0 to 5, measured by `benchmarks/weather_severity.py` such that
    the mean ΔE of the sample's photographs grows evenly; between them it is interpolated.
    """

    axis: ClassVar[str] = "severity"
    strengths: ClassVar[tuple[float, ...]] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

    severity: float = parameter(3.0, Range(0.0, WORST, step=0.1), "how severe; 0 is the photograph itself")
    where: str = where("both", "what the weather changes")
    pattern: float | str = parameter(
        0.0,
        Range(0.0, 1e6, step=1.0, words=("random",)),
        "which random pattern; each photograph has its own, the same at every severity",
        hidden=True,
    )

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        name = vars(cls).get("name", "")
        cls.axis_label = f"severity of {name}, steps of equal ΔE"
        cls.changes = (Change(name, "severity", 0.0, WORST),)

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        seed = int(rng.integers(2**31)) if self.pattern == "random" else self.seed(composition.scene_id)
        for layer in ("background", "object") if self.where == "both" else (self.where,):
            values = {"edit": self, "seed": seed, "layer": layer, "scene_id": composition.scene_id}
            change = Adjustment(weathered, tuple(values.items()))
            composition = composition.adjust(change, layer, **{self.name: self.severity})
        return composition

    def seed(self, scene_id: str) -> int:
        """Return the seed of the pattern before a photograph."""
        return zlib.crc32(f"{self.pattern} {scene_id}".encode()) >> 1

    @abstractmethod
    def changed(self, light: Any, strength: Any, air: Air) -> Any:
        """Return linear light (n, 3, H, W) in this weather, of the strengths (n, 1, 1, 1) in (0, 1]."""

    @classmethod
    def strength_at(cls, severity: Any) -> Any:
        """Return the strength at severities, as float32."""
        return np.interp(severity, np.arange(len(cls.strengths)), cls.strengths).astype(np.float32)

    def describe(self) -> str:
        subject = "" if self.where == "both" else f" on the {self.where}"
        return f"{self.name} of severity {self.severity:g}{subject}"

    def words(self, chained: bool = False) -> str:
        return f"{self.name} {self.severity:g}" + ("" if self.where == "both" else f", {self.where}")


def weathered(image: np.ndarray, weight: np.ndarray, edit: Weather, seed: int, layer: str, scene_id: str) -> Layer:
    """Return a layer in a weather; at severity 0 it is the same array."""
    if edit.severity == 0:
        return image, weight
    air = Air.over(weight[None, None], layer == "object", np.array([seed]), np, scene_id)
    light = _LIGHT[image].transpose(2, 0, 1)[None]
    changed = edit.changed(light, edit.strength_at([edit.severity]).reshape(1, 1, 1, 1), air)
    values = from_linear(changed.clip(0, 1), np)[0].transpose(1, 2, 0)
    return np.ascontiguousarray(np.rint(values * 255).astype(np.uint8)), weight


_LIGHT = to_linear(np.arange(256) / 255, np).astype(np.float32)


def weathered_batch(edit: Weather, pictures: Tensor, alpha: Tensor, severity: np.ndarray, seed: np.ndarray) -> Tensor:
    """Return pictures (n, 3, H, W) in [0, 1] as `edit` changes object and background, of severities and seeds (n,).

    alpha: (n, 1, H, W), the objects. A picture without an object stays as it is.
    """
    import torch

    before, alpha = pictures.float(), alpha.float()
    strength, seeds = (torch.from_numpy(drawn).to(pictures.device) for drawn in (edit.strength_at(severity), seed))
    strength = strength.view(-1, 1, 1, 1) * (alpha.amax((1, 2, 3), keepdim=True) > 0.5)
    behind, front = (
        edit.changed(to_linear(before, torch), strength, Air.over(weight, is_object, seeds, torch))
        for weight, is_object in ((1 - alpha, False), (alpha, True))
    )
    behind, front = (from_linear(light.clip(0, 1), torch) for light in (behind, front))
    return torch.where(strength > 0, torch.lerp(behind, front, alpha), before).to(pictures.dtype)
