"""An edit with a range, a choice, a control, an axis label and a direction in which its strength is searched."""

from dataclasses import dataclass
from typing import ClassVar

from unswayed.edits import Edit
from unswayed.edits.composition import Adjustment
from unswayed.edits.edit import Change, Choice, Range, parameter
from unswayed.edits.geometry import after, kept_inside, outline, relocated, shift


@dataclass(frozen=True)
class Shake(Edit):
    name: ClassVar[str] = "hand-shake"
    axis: ClassVar[str] = "reach"
    axis_label: ClassVar[str] = "reach of the shake, share of the frame"
    description: ClassVar[str] = "how far a hand shakes the object"
    control: ClassVar[str] = "reinsertion"
    order: ClassVar[int] = 45
    changes: ClassVar[tuple] = (Change("object shaken", "reach", 0.0, 0.5),)

    reach: float = parameter(0.1, Range(0.0, 0.5, step=0.02), "largest step")
    along: str = parameter("both", Choice(("both", "x", "y")), "which way")

    @property
    def random(self):
        return True

    @property
    def needs(self):
        return ("removal",)

    def apply(self, composition, rng, pool):
        x, y = rng.uniform(-self.reach, self.reach, 2)
        step = shift(x if self.along != "y" else 0.0, y if self.along != "x" else 0.0)
        placement = kept_inside(after(step, composition.placement), outline(composition.mask), "shake")
        return relocated(composition.adjust(Adjustment(inverted, ()), "object"), placement, 0.0, shake=self.reach)

    def describe(self):
        return f"object shaken by up to {self.reach:g} of the frame"


def inverted(pixels, weight):
    return 255 - pixels, weight
