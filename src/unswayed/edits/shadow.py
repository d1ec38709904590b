"""Shadow: the shade of leaves and branches over a sunlit scene."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .weather import Air, Weather


@dataclass(frozen=True)
class Shadow(Weather):
    """The dappled shade of a tree: direct sunlight is missing where a leaf is before the sun, and the blue light of
    the sky is left."""

    name: ClassVar[str] = "shadow"
    description: ClassVar[str] = "the dappled shade of a tree"
    order: ClassVar[int] = 94
    strengths: ClassVar[tuple[float, ...]] = (0.0, 0.334, 0.589, 0.776, 0.909, 1.0)

    def changed(self, light: Any, strength: Any, air: Air) -> Any:
        across, along = air.turned(30 + 120 * air.drawn(1))
        leaves = sum(
            share * air.noise(salt, cells * across, cells / 2 * along)
            for salt, (share, cells) in enumerate(((0.45, 5.0), (0.30, 12.0), (0.25, 27.0)), 2)
        )
        shade = ((leaves - 0.42) / 0.11).clip(0, 1)
        shade = shade * shade * (3 - 2 * shade)
        sunlit = light * (1 + strength * air.color(0.45, 0.30, 0.10))
        return sunlit * (1 - strength * shade * air.color(0.93, 0.90, 0.84))
