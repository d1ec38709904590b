"""Weather: rain, snow, night, shadow, sun and fog, and what they have in common: a severity, a seeded pattern, and one
definition in numpy for the layers of a composition and in torch for whole batches.
"""

from __future__ import annotations

import functools
import zlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Generic

import numpy as np

from unswayed.files.whole import sha256

from .composition import Adjustment, Composition, Impossible, Layer, Pool
from .edit import Change, Edit, Range, Text, parameter, where
from .lighting import Array, from_linear, to_linear

if TYPE_CHECKING:
    from torch import Tensor

WORST = 5.0
_BITS = 0xFFFFFFFF


@dataclass(frozen=True, eq=False)
class Air(Generic[Array]):
    """What an operation knows besides the light of n pictures: everything as (n or 1, 1, H or 1, W or 1).

    x, y: where pixels are, in units of the longer side, y down; down: the row as a share of the height; pixel: the
    side of a pixel; weight: what belongs to the layer; is_object: whether that is the object; seed: int64, of each
    picture's pattern; xp: the module of the arrays, numpy or torch; scene_id: of the picture, if it is one alone.
    """

    x: Array
    y: Array
    down: Array
    pixel: float
    weight: Array
    is_object: bool
    seed: Array
    xp: ModuleType
    scene_id: str = ""

    @classmethod
    def over(cls, weight: Array, is_object: bool, seed: Array, xp: ModuleType, scene_id: str = "") -> Air[Array]:
        """Return the air before layers whose weight is (n, 1, H, W); seed: (n,)."""
        high, wide = weight.shape[-2:]
        middles = ((xp.arange(side, device=weight.device) + 0.5) / max(high, wide) for side in (wide, high))
        x, y = (xp.asarray(along, dtype=xp.float32) for along in middles)
        x, y, pixel = x.reshape(1, 1, 1, -1), y.reshape(1, 1, -1, 1), 1 / max(high, wide)
        return cls(x, y, y / (high * pixel), pixel, weight, is_object, seed.reshape(-1, 1, 1, 1), xp, scene_id)

    def drawn(self, salt: int, row: Array | int = 0, column: Array | int = 0) -> Array:
        """Return numbers in [0, 1), drawn from the seed for each salt, row and column (whole numbers)."""
        mixed = (row * 73856093) ^ (column * 19349663) ^ (self.seed * 83492791) ^ (salt * 2654435761)
        mixed = mixed & _BITS
        for _ in range(2):
            mixed = ((mixed ^ (mixed >> 16)) * 0x45D9F3B) & _BITS
        return self.xp.asarray((mixed ^ (mixed >> 16)) >> 8, dtype=self.xp.float32) / 2**24

    def turned(self, angle: Array) -> tuple[Array, Array]:
        """Return x and y turned by an angle (n, 1, 1, 1) in degrees: across that direction and along it."""
        cosine, sine = self.xp.cos(angle * (np.pi / 180)), self.xp.sin(angle * (np.pi / 180))
        return self.x * cosine - self.y * sine, self.x * sine + self.y * cosine

    def noise(self, salt: int, x: Array, y: Array) -> Array:
        """Return a smooth random field in [0, 1] at x, y, in units of its cells."""
        column, row = self.whole(x), self.whole(y)
        right, low = (share * share * (3 - 2 * share) for share in (x - self.xp.floor(x), y - self.xp.floor(y)))
        upper, lower = (
            self.drawn(salt, line, column) * (1 - right) + self.drawn(salt, line, column + 1) * right
            for line in (row, row + 1)
        )
        return upper * (1 - low) + lower * low

    def whole(self, values: Array) -> Array:
        """Return the largest whole numbers that are not above the values."""
        return self.xp.asarray(self.xp.floor(values), dtype=self.xp.int64)

    def color(self, *levels: float) -> Array:
        """Return a color as (1, 3, 1, 1), or any other numbers by channel."""
        return self.xp.asarray(levels, dtype=self.xp.float32, device=self.x.device).reshape(1, 3, 1, 1)


@dataclass(frozen=True)
class Weather(Edit):
    """A weather of some severity; each step of the severity changes a picture equally far, in mean CIE ΔE.

    strengths: the strength in [0, 1] at the severities 0 to 5, measured by `benchmarks/weather_severity.py` such that
    the mean ΔE of the sample's photographs grows evenly; between them it is interpolated.
    """

    axis = "severity"
    strengths = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

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
            values = ("edit", self), ("seed", seed), ("layer", layer), ("scene_id", composition.scene_id)
            composition = composition.adjust(Adjustment(weathered, values), layer, **{self.name: self.severity})
        return composition

    def seed(self, scene_id: str) -> int:
        """Return the seed of the pattern before a photograph."""
        return zlib.crc32(f"{self.pattern} {scene_id}".encode()) >> 1

    @abstractmethod
    def changed(self, light: Array, strength: Array, air: Air[Array]) -> Array:
        """Return linear light (n, 3, H, W) in this weather, of the strengths (n, 1, 1, 1) in (0, 1]."""

    @classmethod
    def strength_at(cls, severity: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return the strength at severities, as float32."""
        return np.asarray(np.interp(severity, np.arange(len(cls.strengths)), cls.strengths), np.float32)

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


# Of each distance, far to near: streaks are so far apart, so long and so thick (in shares of the side), and so opaque.
_STREAKS = ((0.012, 0.10, 0.0011, 0.40), (0.022, 0.20, 0.0018, 0.55), (0.05, 0.42, 0.0030, 0.65))


@dataclass(frozen=True)
class Rain(Weather):
    """Streaks of rain, and the dull, gray, slightly veiled light of a rainy day; more severe rain adds streaks."""

    name = "rain"
    description = "falling rain under a dull sky"
    order = 91
    strengths = (0.0, 0.107, 0.264, 0.452, 0.687, 1.0)

    slant: float | None = parameter(
        None,
        Range(-60.0, 60.0, unit="degrees", step=1.0),
        "where it falls to, above 0 to the right; by default the pattern decides, up to 25 to either side",
        hidden=True,
    )

    def changed(self, light: Array, strength: Array, air: Air[Array]) -> Array:
        gray = (light * air.color(0.2126, 0.7152, 0.0722)).sum(1)[:, None]
        dull = light + (0.55 * strength) * (gray - light)
        dull = dull * 2.0 ** (-1.1 * strength) * (1 + strength * air.color(-0.06, -0.01, 0.06))
        dull = dull + 0.12 * strength * (air.color(0.42, 0.46, 0.50) - dull)
        angle = air.drawn(1) * 50 - 25 if self.slant is None else 0 * air.drawn(1) + self.slant
        across, along = air.turned(angle)
        for salt, (apart, long, thick, opaque) in enumerate(_STREAKS, 2):
            share = _streaks(air, salt, across / apart, along / long, max(thick, 0.45 * air.pixel) / apart, strength)
            share = share * opaque * min(thick / (0.45 * air.pixel), 1) * (0.5 + 0.5 * strength)
            dull = dull + share * (air.color(0.70, 0.74, 0.78) - dull)
        return dull


def _streaks(air: Air[Array], salt: int, across: Array, along: Array, thick: float, strength: Array) -> Array:
    """Return how much of each pixel streaks cover: at most one lies in each cell of a grid along the rain."""
    column = air.whole(across)
    along = along + air.drawn(10 * salt, 0, column)
    row = air.whole(along)
    falls = air.drawn(10 * salt + 1, row, column) < 0.25 + 0.65 * strength
    middle = 0.2 + 0.6 * air.drawn(10 * salt + 2, row, column)
    beside = (across - air.xp.floor(across) - middle) / thick
    within, half = along - air.xp.floor(along), 0.25 + 0.2 * air.drawn(10 * salt + 3, row, column)
    tapered = (1 - ((within - 0.5) / half) ** 2).clip(0, 1)
    return falls * air.xp.exp(-beside * beside) * tapered * (0.4 + 0.6 * air.drawn(10 * salt + 4, row, column))


# Of each distance, far to near: flakes are so far apart and have such a radius (in shares of the side), and so opaque.
_FLAKES = ((0.013, 0.0025, 0.8), (0.024, 0.0042, 0.9), (0.05, 0.0080, 0.9), (0.13, 0.020, 0.6))


@dataclass(frozen=True)
class Snow(Weather):
    """Falling flakes, larger and softer the nearer they are, in pale and slightly blue light; more severe snow adds
    flakes and covers the ground."""

    name = "snow"
    description = "falling snow in pale light"
    order = 92
    strengths = (0.0, 0.113, 0.316, 0.531, 0.73, 1.0)

    def changed(self, light: Array, strength: Array, air: Air[Array]) -> Array:
        gray = (light * air.color(0.2126, 0.7152, 0.0722)).sum(1)[:, None]
        pale = light + (0.5 * strength) * (gray - light)
        pale = pale + 0.30 * strength * (air.color(0.62, 0.68, 0.76) - pale)
        if not air.is_object:  # snow lies on the ground, in patches that grow together towards the viewer
            patchy = 0.5 * air.noise(5, 9 * air.x, 18 * air.y) + 0.3 * air.noise(6, 24 * air.x, 48 * air.y)
            lies = 1.7 * strength + 0.9 * air.down + patchy - 2.0
            cover = air.color(0.78, 0.83, 0.90) * (0.6 + 0.8 * gray).clip(0, 1.1)
            pale = pale + (2 * lies).clip(0, 0.85) * (cover - pale)
        for salt, (apart, radius, opaque) in enumerate(_FLAKES, 1):
            share = _flakes(air, salt, apart, max(radius, 0.6 * air.pixel), strength) * opaque
            pale = pale + share * (air.color(0.93, 0.95, 0.98) - pale)
        return pale


def _flakes(air: Air[Array], salt: int, apart: float, radius: float, strength: Array) -> Array:
    """Return how much of each pixel flakes cover: at most one lies in each cell of a tilted grid."""
    x, y = (along / apart for along in air.turned(90 * air.drawn(10 * salt)))
    column, row = air.whole(x), air.whole(y)
    falls = air.drawn(10 * salt + 1, row, column) < 0.12 + 0.6 * strength
    size = radius / apart * (0.6 + 0.6 * air.drawn(10 * salt + 2, row, column))
    free = 1 - 2 * size
    beside, below = (
        (along - air.xp.floor(along) - size - free * air.drawn(10 * salt + 3 + number, row, column)) / size
        for number, along in enumerate((x, y))
    )
    return falls * (1 - beside * beside - below * below).clip(0, 1) ** 0.7


@dataclass(frozen=True)
class Night(Weather):
    """The light of a night: fewer stops, most of them lost in the sky, few colors left, and a blue cast."""

    name = "night"
    description = "the dark, blue light of a night"
    order = 93
    strengths = (0.0, 0.119, 0.257, 0.422, 0.638, 1.0)

    def changed(self, light: Array, strength: Array, air: Air[Array]) -> Array:
        # Eyes and cameras see the red of a scene fade first (Purkinje), so that blue counts more for the brightness.
        gray = (light * air.color(0.10, 0.55, 0.35)).sum(1)[:, None]
        dim = light + 0.85 * strength * strength * (gray - light)
        dim = dim * (1 + strength * air.color(-0.60, -0.20, 0.70))
        # The sky and what is far away are darkest; an object is as light as the ground that it stands on.
        dim = dim * 2.0 ** (-strength * (3.2 if air.is_object else 3.4 + 5 * (1 - air.down) ** 1.5))
        grain = air.noise(1, 128 * air.x, 128 * air.y) + air.noise(2, 64 * air.x, 64 * air.y) - 1
        return dim + strength * (air.color(0.0012, 0.0028, 0.0080) + 0.02 * grain * (dim + 0.001))


@dataclass(frozen=True)
class Shadow(Weather):
    """The dappled shade of a tree: direct sunlight is missing where a leaf is before the sun, and the blue light of
    the sky is left."""

    name = "shadow"
    description = "the dappled shade of a tree"
    order = 94
    strengths = (0.0, 0.334, 0.589, 0.776, 0.909, 1.0)

    def changed(self, light: Array, strength: Array, air: Air[Array]) -> Array:
        across, along = air.turned(30 + 120 * air.drawn(1))
        leaves = 0 * across
        for salt, (share, cells) in enumerate(((0.45, 5.0), (0.30, 12.0), (0.25, 27.0)), 2):
            leaves = leaves + share * air.noise(salt, cells * across, cells / 2 * along)
        shade = ((leaves - 0.42) / 0.11).clip(0, 1)
        shade = shade * shade * (3 - 2 * shade)
        sunlit = light * (1 + strength * air.color(0.45, 0.30, 0.10))
        return sunlit * (1 - strength * shade * air.color(0.93, 0.90, 0.84))


@dataclass(frozen=True)
class Sun(Weather):
    """Glare of a low sun in the upper part of the picture: a veil of warm light, widest around the sun, with rays."""

    name = "sun"
    description = "the glare of a low sun"
    order = 95
    strengths = (0.0, 0.109, 0.266, 0.464, 0.705, 1.0)

    side: float | None = parameter(
        None,
        Range(0.0, 1.0, unit="of the width", step=0.01),
        "where the sun is, from the left; by default the pattern decides",
        hidden=True,
    )

    def changed(self, light: Array, strength: Array, air: Air[Array]) -> Array:
        xp = air.xp
        left = 0.1 + 0.8 * air.drawn(1) if self.side is None else 0 * air.drawn(1) + self.side
        across, below = air.x - left, air.y - (0.04 + 0.14 * air.drawn(2))
        away = xp.sqrt(across * across + below * below) + 1e-4
        angle = xp.arctan2(below, across)
        rays = 0.5 + 0.5 * xp.cos(9 * angle + 6.3 * air.drawn(3)) + 0.4 * xp.cos(14 * angle + 6.3 * air.drawn(4))
        near, wide = xp.exp(-away / 0.09), xp.exp(-away / 0.40)
        veil = air.color(1.2, 1.05, 0.75) * near + air.color(1.0, 0.72, 0.36) * (0.5 + 0.6 * rays) * wide
        if not air.is_object:  # the sun itself is behind everything
            veil = veil + 5 * xp.exp(-((away / 0.035) ** 2))
        return light * (1 + strength * air.color(0.35, 0.10, -0.25)) + strength * veil


_NEAR = 2.5  # how many times nearer the ground is at the lower border than at the horizon, less one
_DENSEST = 5.0  # optical depth of the strongest fog at the horizon


@dataclass(frozen=True)
class Fog(Weather):
    """Fog (Koschmieder 1924): light · t + airlight · (1 − t), t = exp(−density · depth), in linear light.

    Without a depth map the ground is a plane that ends at the horizon, so that everything above it is far; the object
    stands on that ground, so its lowest row says how far it is.
    """

    name = "fog"
    description = "fog that hides what is far away"
    order = 90
    strengths = (0.0, 0.166, 0.283, 0.419, 0.605, 1.0)

    horizon: float = parameter(0.35, Range(0.0, 0.9, unit="of the height", step=0.01), "how far down the horizon is")
    depth: str | None = parameter(
        None,
        Text("the path of a gray picture of the framed photograph, black near and white far"),
        "a depth map in place of the ground; {id} in it is the photograph's id",
    )

    def apply(self, composition: Composition, rng: np.random.Generator, pool: Pool) -> Composition:
        foggy = super().apply(composition, rng, pool)
        if self.depth is None:
            return foggy
        path = self._map_of(composition.scene_id)
        if not Path(path).is_file():
            raise Impossible(f"there is no depth map {path}")
        return replace(foggy, requested={**foggy.requested, "depth_sha256": sha256(path)})

    def _map_of(self, scene_id: str) -> str:
        return str(self.depth).replace("{id}", scene_id)

    def changed(self, light: Array, strength: Array, air: Air[Array]) -> Array:
        patchy = 0.6 + 0.5 * air.noise(1, 2.5 * air.x, 5 * air.y) + 0.3 * air.noise(2, 6 * air.x, 12 * air.y)
        through = air.xp.exp(-_DENSEST * strength * strength * self._depth(air) * patchy)
        return light * through + air.color(0.66, 0.69, 0.72) * (1 - through)

    def _depth(self, air: Air[Array]) -> Array | np.ndarray:
        """Return how far away the pixels of a layer are, 1 at the horizon; an object is at one distance."""
        if self.depth is not None:
            mapped = _depth_map(self._map_of(air.scene_id), *air.weight.shape[-2:])[None, None]
            if not air.is_object:
                return mapped
            return (mapped * air.weight).sum() / max(float(air.weight.sum()), 1e-6)
        row = air.down
        if air.is_object:
            covered = air.xp.any(air.weight > 0.5, -1)[..., None]
            row = air.xp.amax(row * covered, (1, 2, 3)).reshape(-1, 1, 1, 1)
        return 1 / (1 + _NEAR * ((row - self.horizon) / (1 - self.horizon)).clip(0, None))


@functools.lru_cache(maxsize=4)
def _depth_map(path: str, high: int, wide: int) -> np.ndarray:
    """Return a depth map as (high, wide) float32 in [0, 1]."""
    import cv2

    from unswayed.sources.pictures import read_picture

    gray = read_picture(path).astype(np.float32).mean(axis=2) / 255
    return cv2.resize(gray, (wide, high), interpolation=cv2.INTER_AREA)
