"""Night: little, blue light, without color, darkest in the sky."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .weather import Air, Weather


@dataclass(frozen=True)
class Night(Weather):
    """The light of a night: fewer stops, most of them lost in the sky, few colors left, and a blue cast."""

    name: ClassVar[str] = "night"
    description: ClassVar[str] = "the dark, blue light of a night"
    order: ClassVar[int] = 93
    strengths: ClassVar[tuple[float, ...]] = (0.0, 0.119, 0.257, 0.422, 0.638, 1.0)

    def changed(self, light: Any, strength: Any, air: Air) -> Any:
        # Eyes and cameras see the red of a scene fade first (Purkinje), so that blue counts more for the brightness.
        gray = (light * air.color(0.10, 0.55, 0.35)).sum(1)[:, None]
        dim = light + 0.85 * strength * strength * (gray - light)
        dim = dim * (1 + strength * air.color(-0.60, -0.20, 0.70))
        # The sky and what is far away are darkest; an object is as light as the ground that it stands on.
        dim = dim * 2.0 ** (-strength * (3.2 if air.is_object else 3.4 + 5 * (1 - air.down) ** 1.5))
        grain = air.noise(1, 128 * air.x, 128 * air.y) + air.noise(2, 64 * air.x, 64 * air.y) - 1
        return dim + strength * (air.color(0.0012, 0.0028, 0.0080) + 0.02 * grain * (dim + 0.001))
