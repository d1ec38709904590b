"""The smallest change of one attribute that changes a model's prediction, by a scan and bisection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from unfazed.edits import Edit, all_edits, in_order
from unfazed.edits.edit import Change
from unfazed.edits.items import CONTROLS
from unfazed.edits.parameters import Range, allowed
from unfazed.errors import UserError
from unfazed.report.words import plural
from unfazed.scene import frame

from .photographs import Photograph
from .preview import framed, needs_network, request_of
from .studio import Studio

SCANNED, HALVED = 8, 5
# The largest number of pictures: the control, the scan with two smaller first steps, the bisection.
MOST = 1 + SCANNED + 2 + HALVED


@dataclass(frozen=True)
class Direction:
    """One direction in which a parameter of an edit can be varied: from no change to the end of its range."""

    edit: type[Edit]
    change: Change

    @property
    def range(self) -> Range:
        found = allowed(self.edit, self.change.parameter)
        assert isinstance(found, Range)
        return found

    def at(self, level: float) -> Edit:
        return self.edit(**{self.change.parameter: level}, **dict(self.change.others))


def directions() -> dict[str, Direction]:
    """Return every direction that an edit declares, by name, in the order in which edits are applied."""
    return {change.name: Direction(edit, change) for edit in all_edits().values() for change in edit.changes}


@dataclass(frozen=True, eq=False)
class Found:
    """The result of a search.

    before: the prediction for the photograph; level: the smallest tried change that changes it, None if none does;
    held: the largest smaller level that was tried and did not; after: the prediction at `level`; picture: there;
    tried: every level with its prediction, in the order of the change; impossible: why a level was not possible, or
    None; control: the prediction after removing the object and putting it back, if that changes it.
    """

    direction: Direction
    before: str
    level: float | None
    held: float
    after: str | None
    picture: np.ndarray | None
    tried: tuple[tuple[float, str], ...]
    impossible: str | None = None
    control: str | None = None

    @property
    def sentence(self) -> str:
        """Return the result as a sentence that claims only what was tried."""
        unit, tried = self.direction.range.unit, len(self.tried)
        if not tried:
            return f"No level was possible: {self.impossible}."
        if self.level is None:
            said = (
                f"The prediction stayed “{self.before}” at each of {plural(tried, 'level')} tried, the last one "
                f"{self.held:.3g} {unit}. "
                "A level in between may still change it."
            )
        else:
            said = (
                f"At {self.level:.3g} {unit} the prediction changes from “{self.before}” to “{self.after}”; at "
                f"{self.held:.3g} it was unchanged. {plural(tried, 'level')} tried, from the smallest change upward. "
                "The prediction may also change at smaller levels that were not tried."
            )
        if self.control is not None:
            said += (
                f" But removing the object and putting it back where it was already changes it to “{self.control}”, so "
                "this attribute alone is not the cause."
            )
        if self.impossible is not None:
            said += f" Some levels were not possible: {self.impossible}."
        return said


def find_smallest(
    studio: Studio,
    model: str,
    photograph: Photograph,
    direction: Direction,
    chain: tuple[Edit, ...] = (),
    *,
    seed: int = 0,
    steps: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Found:
    """Return the smallest change of one attribute, in addition to `chain`, at which the model's prediction changes.

    steps: of diffusion, None for the paste preview.
    """
    others = tuple(edit for edit in chain if edit.name != direction.edit.name)
    if steps is None and any(map(needs_network, others)):
        raise UserError("the background needs a network and cannot be pasted", allowed="a search with diffusion")
    [before] = studio.answers(model, [framed(photograph)])
    neutral = frame(photograph.scene).pixel_rate if direction.change.neutral is None else direction.change.neutral
    asked: list[tuple[int, str, np.ndarray]] = []

    def ask(edit: Edit) -> tuple[int, str, np.ndarray]:
        request = request_of(in_order((*others, edit)), photograph, seed, steps)
        image = np.asarray(studio.edit(request, photograph).image)
        [answer] = studio.answers(model, [image])
        asked.append((answer.best, answer.names[0], image))
        if progress is not None:
            progress(min(len(asked), MOST), MOST)
        return asked[-1]

    search = _Search(neutral)
    name = direction.edit.control
    control = None if name is None or needs_network(CONTROLS[name].chain[0]) else ask(CONTROLS[name].chain[0])

    def turned(level: float) -> bool | None:
        """Return whether the prediction changes there; None if the level is not possible."""
        try:
            search.seen[level] = ask(direction.at(level))
        except UserError as error:
            search.impossible = error.given
            return None
        return search.seen[level][0] != before.best

    search.run(scan_levels(direction, neutral), turned)
    seen, level = search.seen, search.level
    after, picture = (None, None) if level is None else seen[level][1:]
    return Found(
        direction,
        before.names[0],
        level,
        search.held,
        after,
        picture,
        tuple((one, seen[one][1]) for one in sorted(seen, key=lambda one: abs(one - neutral))),
        search.impossible,
        control[1] if control is not None and control[0] != before.best else None,
    )


class _Search:
    """held: the largest level below `level` without a change of the prediction; seen: the prediction at each level."""

    def __init__(self, neutral: float) -> None:
        self.held = neutral
        self.level: float | None = None
        self.seen: dict[float, tuple[int, str, np.ndarray]] = {}
        self.impossible: str | None = None

    def run(self, levels: Sequence[float], turned: Callable[[float], bool | None]) -> None:
        """Try increasing levels until the prediction changes, then bisect between that level and the one before."""
        for candidate in levels:
            answer = turned(candidate)
            if answer is None and not self.seen:
                # The first step is already too large: half of it, or a quarter, may be possible.
                for share in (0.5, 0.25):
                    nearer = self._between(candidate, share)
                    if (answer := turned(nearer)) is not None:
                        candidate = nearer
                        break
            if answer:
                self.level = candidate
                break
            if answer is False:
                self.held = candidate
        for _ in range(HALVED if self.level is not None else 0):
            assert self.level is not None
            middle = self._between(self.level, 0.5)
            if middle in (self.held, self.level) or (answer := turned(middle)) is None:
                break
            if answer:
                self.level = middle
            else:
                self.held = middle

    def _between(self, far: float, share: float) -> float:
        return float(f"{self.held + share * (far - self.held):.4g}")


def scan_levels(direction: Direction, neutral: float) -> tuple[float, ...]:
    """Return the levels of the scan, from the first that changes something to the end of the range."""
    declared = direction.range
    if declared.spacing == "log":
        return declared.levels(neutral, direction.change.extreme, SCANNED + 1)[1:]
    levels = (neutral + (direction.change.extreme - neutral) * step / SCANNED for step in range(1, SCANNED + 1))
    return tuple(float(f"{min(max(level, declared.low), declared.high):.4g}") for level in levels)
