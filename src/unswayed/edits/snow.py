"""Snow: flakes in four distances, in the pale light of a snowy day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .weather import Air, Weather

# Of each distance, far to near: flakes are so far apart and have such a radius (in shares of the side), and so opaque.
_DISTANCES = ((0.013, 0.0025, 0.8), (0.024, 0.0042, 0.9), (0.05, 0.0080, 0.9), (0.13, 0.020, 0.6))


@dataclass(frozen=True)
class Snow(Weather):
    """Falling flakes, larger and softer the nearer they are, in pale and slightly blue light; more severe snow adds
    flakes and covers the ground."""

    name: ClassVar[str] = "snow"
    description: ClassVar[str] = "falling snow in pale light"
    order: ClassVar[int] = 92
    strengths: ClassVar[tuple[float, ...]] = (0.0, 0.113, 0.316, 0.531, 0.73, 1.0)

    def changed(self, light: Any, strength: Any, air: Air) -> Any:
        gray = (light * air.color(0.2126, 0.7152, 0.0722)).sum(1)[:, None]
        pale = light + (0.5 * strength) * (gray - light)
        pale = pale + 0.30 * strength * (air.color(0.62, 0.68, 0.76) - pale)
        if not air.is_object:  # snow lies on the ground, in patches that grow together towards the viewer
            patchy = 0.5 * air.noise(5, 9 * air.x, 18 * air.y) + 0.3 * air.noise(6, 24 * air.x, 48 * air.y)
            lies = 1.7 * strength + 0.9 * air.down + patchy - 2.0
            pale = pale + (2 * lies).clip(0, 0.85) * (
                air.color(0.78, 0.83, 0.90) * (0.6 + 0.8 * gray).clip(0, 1.1) - pale
            )
        for salt, (apart, radius, opaque) in enumerate(_DISTANCES, 1):
            share = _flakes(air, salt, apart, max(radius, 0.6 * air.pixel), strength) * opaque
            pale = pale + share * (air.color(0.93, 0.95, 0.98) - pale)
        return pale


def _flakes(air: Air, salt: int, apart: float, radius: float, strength: Any) -> Any:
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
