"""The smallest change of one attribute that turns a model's answer: a scan from no change outwards, then bisection."""

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
# All that are tried at most: the control, the scan with two nearer first steps, the halvings.
MOST = 1 + SCANNED + 2 + HALVED


@dataclass(frozen=True)
class Direction:
    """One way in which one parameter of an edit can be moved: from what changes nothing to the end of its range."""

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
    """Every direction that an edit declares, by name, in the order in which edits are chained."""
    return {change.name: Direction(edit, change) for edit in all_edits().values() for change in edit.changes}


@dataclass(frozen=True, eq=False)
class Found:
    """What the search saw.

    before: the model's answer to the photograph; level: the smallest change tried that turns it, None if none does;
    held: the largest change below it that was tried and did not; after: the answer at `level`; picture: there;
    tried: every level with the answer that it got, in the order of the change; impossible: why a level could not be
    made, or None; control: what taking the object out and putting it back makes of the answer, where it turns it.
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
        """The finding in words that claim no more than was seen."""
        unit, tried = self.direction.range.unit, len(self.tried)
        if not tried:
            return f"No level could be made: {self.impossible}."
        if self.level is None:
            said = (
                f"The answer stayed “{self.before}” at each of {plural(tried, 'level')} tried, the furthest "
                f"{self.held:.3g} {unit}. "
                "A level in between may still turn it."
            )
        else:
            said = (
                f"At {self.level:.3g} {unit} the answer turns from “{self.before}” to “{self.after}”; at "
                f"{self.held:.3g} it still held. {plural(tried, 'level')} tried, from no change outwards. An answer "
                "can turn and turn back between two of them, so a smaller change that was not tried may turn it too."
            )
        if self.control is not None:
            said += (
                f" But taking the object out and putting it back where it was already makes it “{self.control}”: "
                "the turn is not this attribute's doing alone."
            )
        if self.impossible is not None:
            said += f" Some levels could not be made: {self.impossible}."
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
    """The smallest change of one attribute, beside the other edits of `chain`, at which the model's answer turns.

    steps: None for the paste preview, else diffusion in so many steps.
    """
    others = tuple(edit for edit in chain if edit.name != direction.edit.name)
    if steps is None and any(map(needs_network, others)):
        raise UserError("a background that the network makes cannot be pasted", allowed="search with diffusion")
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
        """Whether the answer turns there; None where it cannot be made."""
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
    """held: the furthest level below `level` that did not turn the answer; seen: what each level was answered with."""

    def __init__(self, neutral: float) -> None:
        self.held = neutral
        self.level: float | None = None
        self.seen: dict[float, tuple[int, str, np.ndarray]] = {}
        self.impossible: str | None = None

    def run(self, levels: Sequence[float], turned: Callable[[float], bool | None]) -> None:
        """Outwards to the first level that turns the answer, then between it and the one before."""
        for candidate in levels:
            answer = turned(candidate)
            if answer is None and not self.seen:
                # The first step is too far already: half of it, or a quarter, may be possible.
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
    """The levels of the scan, from the first that changes something to the end of the range."""
    declared = direction.range
    if declared.spacing == "log":
        return declared.levels(neutral, direction.change.extreme, SCANNED + 1)[1:]
    levels = (neutral + (direction.change.extreme - neutral) * step / SCANNED for step in range(1, SCANNED + 1))
    return tuple(float(f"{min(max(level, declared.low), declared.high):.4g}") for level in levels)
