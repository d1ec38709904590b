"""Rain: streaks of falling drops in three distances, under a dull sky."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .edit import Range, parameter
from .weather import Air, Weather

# Of each distance, far to near: streaks are so far apart, so long and so thick (in shares of the side), and so opaque.
_DISTANCES = ((0.012, 0.10, 0.0011, 0.40), (0.022, 0.20, 0.0018, 0.55), (0.05, 0.42, 0.0030, 0.65))


@dataclass(frozen=True)
class Rain(Weather):
    """Streaks of rain, and the dull, gray, slightly veiled light of a rainy day; more severe rain adds streaks."""

    name: ClassVar[str] = "rain"
    description: ClassVar[str] = "falling rain under a dull sky"
    order: ClassVar[int] = 91
    strengths: ClassVar[tuple[float, ...]] = (0.0, 0.107, 0.264, 0.452, 0.687, 1.0)

    slant: float | None = parameter(
        None,
        Range(-60.0, 60.0, unit="degrees", step=1.0),
        "where it falls to, above 0 to the right; by default the pattern decides, up to 25 to either side",
        hidden=True,
    )

    def changed(self, light: Any, strength: Any, air: Air) -> Any:
        gray = (light * air.color(0.2126, 0.7152, 0.0722)).sum(1)[:, None]
        dull = light + (0.55 * strength) * (gray - light)
        dull = dull * 2.0 ** (-1.1 * strength) * (1 + strength * air.color(-0.06, -0.01, 0.06))
        dull = dull + 0.12 * strength * (air.color(0.42, 0.46, 0.50) - dull)
        angle = air.drawn(1) * 50 - 25 if self.slant is None else 0 * air.drawn(1) + self.slant
        across, along = air.turned(angle)
        for salt, (apart, long, thick, opaque) in enumerate(_DISTANCES, 2):
            share = _streaks(air, salt, across / apart, along / long, max(thick, 0.45 * air.pixel) / apart, strength)
            share = share * opaque * min(thick / (0.45 * air.pixel), 1) * (0.5 + 0.5 * strength)
            dull = dull + share * (air.color(0.70, 0.74, 0.78) - dull)
        return dull


def _streaks(air: Air, salt: int, across: Any, along: Any, thick: float, strength: Any) -> Any:
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
