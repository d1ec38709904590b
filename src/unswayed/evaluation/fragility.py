"""How small a change of each attribute of a photograph already changes a prediction, and sweeps of one change.

`fragility` finds it for every change by a scan and bisection.
"""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from unswayed.choices import OneLine
from unswayed.edits import Edit, all_edits, in_order
from unswayed.edits.edit import Change, Range, allowed
from unswayed.edits.recipes import CONTROLS
from unswayed.errors import UserError, check_known
from unswayed.masks.segment import Box
from unswayed.models.classifier import Classifier
from unswayed.models.opening import open_model
from unswayed.rendering.photograph import Request, compose, exact_mask, read_scene, render_chain
from unswayed.rendering.removal import RememberedRemoval
from unswayed.rendering.settings import removal_of
from unswayed.scene import Scene, frame
from unswayed.sources.pictures import PictureLike


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
        space = allowed(self.edit, self.change.parameter)
        assert isinstance(space, Range)
        return space

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
        if self.range.unit.startswith("of "):  # a share
            return f"{100 * level:.3g} % {self.range.unit}"
        return f"{level:.3g} {self.range.unit}".rstrip()


def directions() -> dict[str, Direction]:
    """Return every direction that an edit declares, by name, in the order in which edits are applied."""
    return {change.name: Direction(edit, change) for edit in all_edits().values() for change in edit.changes}


def find_direction(name: str) -> Direction:
    """Return the direction of that name."""
    known = directions()
    check_known("change", [name], known)
    return known[name]


SCANNED, HALVED = 8, 5
# The largest number of pictures: the control, the scan with two smaller first steps, the bisection.
MOST = 1 + SCANNED + 2 + HALVED

Progress = Callable[[int, int], None]  # called with the number of pictures done and in total


@dataclass(frozen=True, eq=False)
class Subject:
    """The photograph that is changed.

    make: the picture of a chain of edits, () for the photograph itself: (S, S, 3) uint8; it raises UserError if the
    chain is not possible; rate: the share of the framed picture that the object covers.
    """

    make: Callable[[tuple[Edit, ...]], np.ndarray]
    rate: float


@dataclass(frozen=True, eq=False)
class Predictor:
    """A model: predict returns the probabilities, (classes,), of a picture (S, S, 3) uint8; classes: their names."""

    name: str
    predict: Callable[[np.ndarray], np.ndarray]
    classes: Sequence[str]


def predictor(model: Classifier) -> Predictor:
    """Return a classifier as a predictor, with its own transform."""

    def predict(image: np.ndarray) -> np.ndarray:
        return model.logits(model.prepare(image)[None]).double().softmax(1)[0].cpu().numpy()

    return Predictor(model.name, predict, model.labels.classes)


@dataclass(frozen=True, eq=False, repr=False)
class Still(OneLine):
    """One tried level: its picture (S, S, 3) uint8, the predicted class with its probability, and `kept`, the
    probability of the class that is predicted without the change."""

    level: float
    image: np.ndarray
    best: int
    name: str
    probability: float
    kept: float


@dataclass(frozen=True, eq=False, repr=False)
class Strip(OneLine):
    """Pictures of one change in its order, first the one without it; impossible: why a level is missing."""

    direction: Direction
    stills: tuple[Still, ...]
    impossible: str | None = None

    @property
    def before(self) -> Still:
        return self.stills[0]

    def describe(self, still: Still) -> str:
        """Return a level in words."""
        return "unchanged" if still is self.before else self.direction.describe(still.level)


@dataclass(frozen=True, eq=False, repr=False)
class SmallestChange(OneLine):
    """The result of a search.

    model: its name; strip: the picture without the change and every level that was tried; turn: the smallest tried
    change that changes the prediction, None if none does; held: the largest smaller level that was tried and did not;
    control: the prediction after removing the object and putting it back, if that changes it.
    """

    model: str
    strip: Strip
    turn: Still | None
    held: float
    control: str | None = None

    @property
    def direction(self) -> Direction:
        return self.strip.direction

    @property
    def tried(self) -> int:
        return len(self.strip.stills) - 1

    @property
    def share(self) -> float | None:
        """Return how far the turn lies between no change (0) and the end of the range (1); None without a turn."""
        return None if self.turn is None else self.direction.share(self.turn.level, self.strip.before.level)

    @property
    def short(self) -> str:
        """Return the result in a few words."""
        if not self.tried:
            return f"not possible: {self.strip.impossible}"
        if self.turn is None:
            limit = self.direction.describe(self.held)
            if self.strip.impossible is not None:
                return f"no change up to {limit} changes it; more is not possible"
            return f"no change up to the limit ({limit}) changes it"
        said = f"{self.turn.name} at {self.direction.describe(self.turn.level)}"
        return said if self.control is None else f"{said}; removing the object and putting it back changes it already"

    def to_json(self) -> dict[str, object]:
        """Return the result as JSON, without the pictures."""
        return {
            "model": self.model,
            "change": self.direction.name,
            "before": self.strip.before.name,
            "level": None if self.turn is None else self.turn.level,
            "unit": self.direction.range.unit,
            "share": self.share,
            "after": None if self.turn is None else self.turn.name,
            "held": self.held,
            "control": self.control,
            "impossible": self.strip.impossible,
            "tried": [
                {"level": still.level, "answer": still.name, "probability": still.probability, "kept": still.kept}
                for still in self.strip.stills
            ],
        }

    @property
    def sentence(self) -> str:
        """Return the result as a sentence that claims only what was tried."""
        before, impossible = self.strip.before.name, self.strip.impossible
        tried = "1 level" if self.tried == 1 else f"{self.tried} levels"
        if not self.tried:
            return f"No level was possible: {impossible}."
        if self.turn is None:
            said = (
                f"The prediction stayed “{before}” at each of {tried} tried, the last one "
                f"{self.direction.describe(self.held)}. A level in between may still change it."
            )
        else:
            said = (
                f"At {self.direction.describe(self.turn.level)} the prediction changes from “{before}” to "
                f"“{self.turn.name}”; at {self.direction.describe(self.held)} it was unchanged. {tried} tried, from "
                "the smallest change upward. The prediction may also change at smaller levels that were not tried."
            )
        if self.control is not None:
            said += (
                f" But removing the object and putting it back where it was already changes it to “{self.control}”, so "
                "this attribute alone is not the cause."
            )
        if impossible is not None:
            said += f" Some levels were not possible: {impossible}."
        return said


def find_smallest(
    subject: Subject,
    model: Predictor,
    direction: Direction,
    chain: tuple[Edit, ...] = (),
    progress: Progress | None = None,
) -> SmallestChange:
    """Return the smallest change of one attribute, in addition to `chain`, at which the model's prediction changes.

    The prediction without this change is that for the chain; an edit of the chain that has this attribute is left out.
    """
    tried = _TriedLevels(subject, model, direction, chain, progress, MOST)
    name = direction.edit.control
    control = None if name is None else CONTROLS[name].chain[0]
    after = None if control is None or "network" in control.needs else tried.picture(control, 0.0)
    level, held = tried.search(tried.levels(SCANNED))
    turn = None if level is None else tried.seen[level]
    shown = after.name if after is not None and after.best != tried.before.best else None
    return SmallestChange(model.name, tried.strip(), turn, held, shown)


def change_strip(
    subject: Subject,
    model: Predictor,
    direction: Direction,
    chain: tuple[Edit, ...] = (),
    count: int = 12,
    progress: Progress | None = None,
) -> Strip:
    """Return the photograph and `count` levels of one change, in addition to `chain`, up to the end of its range."""
    tried = _TriedLevels(subject, model, direction, chain, progress, count)
    for level in tried.levels(count):
        tried.at(level)
    return tried.strip()


def fragility_profile(
    subject: Subject, models: Iterable[Predictor], changes: Iterable[Direction]
) -> Iterator[SmallestChange]:
    """Yield the smallest change that changes the prediction, for each change and each model, as soon as it is found."""
    models = list(models)
    for direction in changes:
        shared = replace(subject, make=functools.cache(subject.make))  # the models share the pictures
        for model in models:
            yield find_smallest(shared, model, direction)


@dataclass(eq=False)
class _TriedLevels:
    """The pictures of one change, made and predicted. before: the photograph; seen: the possible levels."""

    subject: Subject
    model: Predictor
    direction: Direction
    chain: tuple[Edit, ...]
    progress: Progress | None
    most: int
    done: int = 0
    seen: dict[float, Still] = field(default_factory=dict)
    impossible: str | None = None

    def __post_init__(self) -> None:
        self.others = tuple(edit for edit in self.chain if edit.name != self.direction.edit.name)
        self.before = self._predicted(in_order(self.others), self.direction.neutral(self.subject.rate), None)

    def picture(self, edit: Edit, level: float) -> Still:
        still = self._predicted(in_order((*self.others, edit)), level, self.before.best)
        self.done += 1
        if self.progress is not None:
            self.progress(min(self.done, self.most), self.most)
        return still

    def _predicted(self, chain: tuple[Edit, ...], level: float, before: int | None) -> Still:
        image = self.subject.make(chain)
        probabilities = self.model.predict(image)
        best = int(probabilities.argmax())
        kept = float(probabilities[best if before is None else before])
        return Still(level, image, best, self.model.classes[best], float(probabilities[best]), kept)

    def levels(self, count: int) -> tuple[float, ...]:
        """Return the levels to try; none if the photograph is beyond them already."""
        try:
            return self.direction.levels(self.before.level, count)
        except UserError as error:
            self.impossible = error.given
            return ()

    def at(self, level: float) -> bool | None:
        """Return whether the prediction changes there; None if the level is not possible."""
        try:
            self.seen[level] = self.picture(self.direction.at(level), level)
        except UserError as error:
            self.impossible = error.given
            return None
        return self.seen[level].best != self.before.best

    def strip(self) -> Strip:
        ordered = sorted(self.seen.values(), key=lambda still: abs(still.level - self.before.level))
        return Strip(self.direction, (self.before, *ordered), self.impossible)

    def search(self, levels: Sequence[float]) -> tuple[float | None, float]:
        """Try increasing levels until the prediction changes, then bisect between that level and the one before.

        Returns the smallest level that changes the prediction, and the largest level below it that does not.
        """
        turn, held = None, self.before.level
        for candidate in levels:
            answer = self.at(candidate)
            if answer is None and not self.seen:
                # The first step is already too large: half of it, or a quarter, may be possible.
                for nearer in (_between(held, candidate, 0.5), _between(held, candidate, 0.25)):
                    if (answer := self.at(nearer)) is not None:
                        candidate = nearer
                        break
            if answer:
                turn = candidate
                break
            held = candidate if answer is False else held
        for _ in range(HALVED):
            middle = held if turn is None else _between(held, turn, 0.5)
            if middle in (held, turn) or (answer := self.at(middle)) is None:
                break
            turn, held = (middle, held) if answer else (turn, middle)
        return turn, held


def _between(low: float, high: float, share: float) -> float:
    return float(f"{low + share * (high - low):.4g}")


def fragility(
    image: PictureLike | Scene,
    mask: PictureLike | Box | None = None,
    *,
    models: Sequence[str | Classifier] = ("lite:0",),
    changes: Sequence[str] | None = None,
    renderer: str = "paste",
    steps: int | None = None,
    seed: int = 0,
    device: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[SmallestChange]:
    """Return the smallest change that changes the prediction, for each change and each model.

    image, mask, seed: as for `unswayed.edit`. models: specs of `unswayed models`, or opened ones. changes: names such
    as `object smaller`, all of them if None. renderer: `paste` needs no network. steps: of diffusion. progress: called
    with the number of results that are done and in total.

    >>> from unswayed.sources import open_source
    >>> [smallest] = fragility(open_source("sample")["koala"], changes=["object blurred"])
    >>> smallest.turn.level, smallest.turn.name, round(smallest.share, 2)
    (5.0, 'langur', 0.16)
    """
    scene = read_scene(image, mask)
    request = Request((), renderer=renderer, steps=steps, seed=seed, label=scene.label, device=device)
    chosen = list(directions().values()) if changes is None else [find_direction(name) for name in changes]
    opened = [open_model(model, device=device) if isinstance(model, str) else model for model in models]
    results = []
    for result in fragility_profile(subject_of(request, scene), map(predictor, opened), chosen):
        results.append(result)
        if progress is not None:
            progress(len(results), len(chosen) * len(opened))
    return results


def subject_of(request: Request, scene: Scene) -> Subject:
    """Return the scene as a subject; request: all settings but the chain."""
    exact = replace(scene, mask=exact_mask(scene.mask))
    renderer, remove = request.open_renderer(), RememberedRemoval(removal_of(request))

    def make(chain: tuple[Edit, ...]) -> np.ndarray:
        asked = replace(request, chain=chain)
        if not chain:
            return compose(asked, exact, remove)[1].background
        return render_chain(asked, exact, renderer, remove)[2].image

    return Subject(make, frame(scene, request.frame).pixel_rate)


LINE = 15  # pixels of one line of text
SECONDS, LAST = 0.5, 1.5


def gif(strip: Strip) -> bytes:
    """Return the strip as a GIF that repeats: one frame per picture, the last one shown longer."""
    font = ImageFont.load_default(size=12)
    frames = []
    for still in strip.stills:
        side = still.image.shape[0]
        frame = Image.new("RGB", (still.image.shape[1], side + 2 * LINE + 6), "white")
        frame.paste(Image.fromarray(np.ascontiguousarray(still.image)))
        pen = ImageDraw.Draw(frame)
        lines = (strip.describe(still), f"{still.name}, {100 * still.probability:.0f} %")
        for number, text in enumerate(lines):
            color = "#000000" if number == 0 or still.best == strip.before.best else "#b3261e"
            pen.text((4, side + 2 + number * LINE), text, fill=color, font=font)
        frames.append(frame)
    stream = io.BytesIO()
    shown = [round(1000 * SECONDS)] * (len(frames) - 1) + [round(1000 * LAST)]
    frames[0].save(stream, "GIF", save_all=True, append_images=frames[1:], duration=shown, loop=0)
    return stream.getvalue()
