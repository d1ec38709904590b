"""The directions in which one attribute of a photograph can be changed, from no change to the end of its range."""

from __future__ import annotations

import math
from dataclasses import dataclass

from unswayed.edits import Edit, all_edits
from unswayed.edits.edit import Change, Range, allowed
from unswayed.errors import UserError, unknown


@dataclass(frozen=True)
class Direction:
    """One direction in which a parameter of an edit can be varied."""

    edit: type[Edit]
    change: Change

    @property
    def name(self) -> str:
        return self.change.name

    @property
    def range(self) -> Range:
        found = allowed(self.edit, self.change.parameter)
        assert isinstance(found, Range)
        return found

    def at(self, level: float) -> Edit:
        return self.edit(**{self.change.parameter: level}, **dict(self.change.others))

    def neutral(self, rate: float) -> float:
        """Return the level that changes nothing; rate: the share of the framed picture that the object covers."""
        return rate if self.change.neutral is None else self.change.neutral

    def levels(self, neutral: float, count: int) -> tuple[float, ...]:
        """Return `count` levels, from the first that changes something to the end of the range.

        Raises UserError if the photograph is already at the end or beyond it.
        """
        declared, far = self.range, self.change.extreme
        if self.change.neutral is None and (neutral <= far if self.change.falls else neutral >= far):
            raise UserError(
                f"the object covers {self.describe(neutral)} and “{self.name}” ends at {self.describe(far)}"
            )
        levels = declared.levels(neutral, far, count + 1)[1:]
        return tuple(min(max(level, declared.low), declared.high) for level in levels)

    def share(self, level: float, neutral: float) -> float:
        """Return how far a level lies between no change (0) and the end of the range (1), in the range's spacing.

        >>> directions()["object darker"].share(-1.25, 0.0)
        0.25
        """
        far = self.change.extreme
        if self.range.spacing == "log":
            return math.log(level / neutral) / math.log(far / neutral) if far != neutral else 0.0
        return (level - neutral) / (far - neutral) if far != neutral else 0.0

    def describe(self, level: float) -> str:
        """Return a level with its unit.

        >>> directions()["object darker"].describe(-1.25)
        '-1.25 stops'
        """
        return f"{level:.3g} {self.range.unit}".rstrip()


def directions() -> dict[str, Direction]:
    """Return every direction that an edit declares, by name, in the order in which edits are applied."""
    return {change.name: Direction(edit, change) for edit in all_edits().values() for change in edit.changes}


def find_direction(name: str) -> Direction:
    """Return the direction of that name."""
    known = directions()
    if name not in known:
        raise unknown("change", name, known)
    return known[name]
