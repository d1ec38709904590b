"""Sun: a low sun that shines into the lens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .edit import Range, parameter
from .weather import Air, Weather


@dataclass(frozen=True)
class Sun(Weather):
    """Glare of a low sun in the upper part of the picture: a veil of warm light, widest around the sun, with rays."""

    name: ClassVar[str] = "sun"
    description: ClassVar[str] = "the glare of a low sun"
    order: ClassVar[int] = 95
    strengths: ClassVar[tuple[float, ...]] = (0.0, 0.109, 0.266, 0.464, 0.705, 1.0)

    side: float | None = parameter(
        None,
        Range(0.0, 1.0, unit="of the width", step=0.01),
        "where the sun is, from the left; by default the pattern decides",
        hidden=True,
    )

    def changed(self, light: Any, strength: Any, air: Air) -> Any:
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
