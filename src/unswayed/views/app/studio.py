"""Models and renderers that all visitors share: a few are kept loaded, and one visitor at a time uses them."""

from __future__ import annotations

import contextvars
import functools
import hashlib
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from unswayed.errors import UserError, unknown
from unswayed.evaluation.fragility import Predictor, predictor
from unswayed.evaluation.judging import Truth, judged_rows
from unswayed.evaluation.saliency import heat_maps
from unswayed.files.whole import canonical
from unswayed.labels import imagenet
from unswayed.masks.segment import default_segmenter, open_segmenter
from unswayed.models import Classifier, ObjectModel, open_any
from unswayed.models.label_mapping import map_objects
from unswayed.rendering.layers import CountedRenderer, NetworkRenderer, Renderer
from unswayed.rendering.photograph import EditedPhotograph, Request, edit_photograph
from unswayed.rendering.removal import RememberedRemoval, open_removal
from unswayed.rendering.settings import RenderSettings
from unswayed.sources.coco import run_length_mask
from unswayed.views.report.pictures import overlay
from unswayed.views.tables import Row
from unswayed.views.text import percent

from .photographs import Photograph

T = TypeVar("T")
Event = TypeVar("Event")
Progress = Callable[[int, int], None]  # called with the number of steps done and in total


class Canceled(Exception):
    """The visitor pressed Cancel, or left the page."""


@dataclass(frozen=True)
class Step:
    """How far a job is; seconds: since it began."""

    done: int
    total: int
    seconds: float

    @property
    def left(self) -> float | None:
        """The estimated seconds that are left; None before the first step is done."""
        return None if not self.done else self.seconds * (self.total - self.done) / self.done

    def words(self, unit: str) -> str:
        """Return the progress in words.

        >>> Step(3, 12, 6.0).words("passes"), Step(0, 12, 6.0).words("passes")
        ('3 of 12 passes done, about 18 s left', '0 of 12 passes done')
        """
        left = "" if self.left is None else f", about {max(round(self.left), 1)} s left"
        return f"{self.done} of {self.total} {unit} done{left if self.done < self.total else ''}"


@dataclass(frozen=True, eq=False)
class Report:
    """What a job calls after each step, with the number of steps done and in total."""

    stop: threading.Event = field(default_factory=threading.Event)
    steps: queue.SimpleQueue[Step | None] = field(default_factory=queue.SimpleQueue)
    began: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """Raise Canceled if the visitor canceled the job."""
        if self.stop.is_set():
            raise Canceled

    def __call__(self, done: int, total: int) -> None:
        self.check()
        self.steps.put(Step(done, total, time.monotonic() - self.began))


class Jobs:
    """The jobs that are running, at most one for each visitor."""

    def __init__(self) -> None:
        self._stops: dict[str, threading.Event] = {}
        # Torch keeps memory for every thread that ever called it, so all jobs share one.
        self._thread = ThreadPoolExecutor(1, "job")

    def cancel(self, visitor: str) -> None:
        """Stop the visitor's job at its next step."""
        if visitor in self._stops:
            self._stops[visitor].set()

    def followed(
        self, visitor: str, work: Callable[[Report], T], show: Callable[[Step], Event]
    ) -> Generator[Event, None, T]:
        """Run `work` and yield what `show` makes of each step; return its result, or raise Canceled.

        The work calls the report that it is given after each step, and a call after the cancellation ends the work.
        """
        self.cancel(visitor)
        report = Report()
        self._stops[visitor] = report.stop
        future = self._thread.submit(contextvars.copy_context().run, work, report)
        future.add_done_callback(lambda _: report.steps.put(None))
        try:
            while (step := report.steps.get()) is not None:
                yield show(step)
        finally:
            # If the visitor left, this generator is closed here, and nobody needs the result.
            report.stop.set()
            if self._stops.get(visitor) is report.stop:
                del self._stops[visitor]
        return future.result()


COUNT = 5


@dataclass(frozen=True, eq=False)
class ObjectPicture:
    """A picture (S, S, 3) uint8, and what is known about its object: the mask (S, S) in [0, 1], the ImageNet class."""

    image: np.ndarray
    mask: np.ndarray | None = None
    label: int | None = None

    @property
    def key(self) -> bytes:
        known = b"" if self.mask is None else self.mask.tobytes()
        return hashlib.blake2b(self.image.tobytes() + known + str(self.label).encode(), digest_size=16).digest()


@dataclass(frozen=True)
class Answer:
    """classes: the most likely first, as indices into the model's label space; with their names and probabilities."""

    classes: tuple[int, ...]
    names: tuple[str, ...]
    probabilities: tuple[float, ...]

    @property
    def best(self) -> int:
        return self.classes[0]

    @property
    def best_words(self) -> str:
        return f"{self.names[0]} {self.short}"

    @property
    def short(self) -> str:
        return percent(self.probabilities[0], 0)


@dataclass(frozen=True, eq=False)
class FoundObjects:
    """What a detector or segmenter found; row: the columns of `judging`, or why it cannot be asked."""

    row: Row | str
    truth: Truth

    @property
    def best(self) -> bool | None:
        """Whether the object was found; None if the model cannot be asked about it."""
        return None if isinstance(self.row, str) else self.row["correct"]

    @property
    def best_words(self) -> str:
        if isinstance(self.row, str):
            return f"not asked: {self.row}"
        row = self.row
        score = "" if row["probability"] is None else f" {percent(row['probability'], 0)}"
        if row["correct"]:
            return f"found: {row['found_class']}{score}, IoU {row['iou']:.2f}"
        instead = "" if row["found_class"] is None else f": {row['found_class']}{score} in its place"
        return f"not found{instead}" + (f"; IoU {row['iou']:.2f}" if row["iou"] else "")

    @property
    def short(self) -> str:
        return self.best_words.removeprefix("found: ") if self.best else ""

    @property
    def box(self) -> Sequence[float] | None:
        """What was found, or the best of its class that does not fit: left, top, right, bottom in pixels."""
        return None if isinstance(self.row, str) else self.row["box"]

    @property
    def region(self) -> np.ndarray | None:
        """The mask of a segmenter, (H, W) bool."""
        runs = None if isinstance(self.row, str) else self.row.get("mask")
        return None if runs is None or self.truth.mask is None else run_length_mask(runs, *self.truth.mask.shape) > 0


RENDERERS_HELD, ANSWERS_HELD = 2, 512  # an answer has some hundred bytes


class Studio:
    """models: the names that can be opened, first the initial one; segmenter: as for `unswayed.masks.segment`;
    better: the command that gets a better segmenter than the one that `auto` finds here, or None; renderer: what
    renders, which must have a network."""

    def __init__(
        self,
        models: Sequence[str],
        segmenter: str = "auto",
        device: str | None = None,
        renderer: str = "diffusion",
    ) -> None:
        if not models:
            raise UserError("no model is given", run="unswayed app -m lite:0")
        self.models = tuple(dict.fromkeys(models))
        self.segmenter, self.better = default_segmenter() if segmenter == "auto" else (segmenter, None)
        open_segmenter(self.segmenter)
        if not RenderSettings(renderer=renderer).has_network:
            raise UserError(f"the renderer {renderer} has no network", allowed="diffusion, diffusers:NAME_OR_FOLDER")
        self.renderer, self.jobs = renderer, Jobs()
        self._open = functools.cache(functools.partial(open_any, device=device))
        self._renderers: OrderedDict[str, Renderer] = OrderedDict()
        self._said: OrderedDict[tuple[str, bytes], Answer | FoundObjects] = OrderedDict()
        # Heat maps register hooks in a model and a renderer counts its passes, so neither can be used by two visitors
        # at once. One thread each, because torch keeps memory for every thread that ever called it.
        self._looking, self._rendering = ThreadPoolExecutor(1, "looking"), ThreadPoolExecutor(1, "rendering")

    def model(self, name: str) -> Classifier | ObjectModel:
        """Return the model of that name, loaded once; only models that the page was started with are allowed."""
        if name not in self.models:
            raise unknown("model of this page", name, self.models, run=f"unswayed app -m {name}")
        model = _alone(self._looking, self._open, name)
        if not isinstance(model, Classifier | ObjectModel):
            raise UserError(f"{name} would be asked anew at every move", allowed="classifiers, detectors, segmenters")
        return model

    def knows(self, photograph: Photograph) -> bool:
        """Return whether the first model has a class for the photograph's object."""
        space = self.model(self.models[0]).labels
        return space == imagenet() or bool(map_objects(space, imagenet(), ()).members[photograph.label or 0])

    def classifier(self, name: str) -> Classifier:
        """Return the model of that name, which must be a classifier."""
        model = self.model(name)
        if not isinstance(model, Classifier):
            raise UserError(f"{name} is no classifier: its task is `{model.task}`", allowed="a classifier")
        return model

    def answers(self, name: str, pictures: Sequence[ObjectPicture]) -> list[Answer | FoundObjects]:
        """Return the model's predictions for pictures; the last ones are remembered."""
        return _alone(self._looking, self._answers, self.model(name), name, pictures)

    def heat(self, name: str, images: Sequence[np.ndarray], targets: Sequence[int]) -> list[np.ndarray]:
        """Return the pictures, all of one shape, with the heat maps of these classes: (H, W, 3) uint8 each."""
        heats = _alone(self._looking, heat_maps, self.classifier(name), images, targets)
        return [overlay(image, heat) for image, heat in zip(images, heats, strict=True)]

    def edit(self, request: Request, photograph: Photograph, progress: Progress | None = None) -> EditedPhotograph:
        """Return the edited photograph with its record; progress is called after each diffusion pass."""
        remove = remembered_removal(request.removal)
        work = functools.partial(edit_photograph, request, photograph.scene, Path(photograph.path), remove=remove)
        return work() if request.renderer == "paste" else self.rendered(request, work, progress)

    def rendered(self, request: Request, work: Callable[[Renderer], T], progress: Progress | None = None) -> T:
        """Return what `work` makes with the renderer of this request; progress: passes of the network done, in all."""
        return _alone(self._rendering, self._render, request, work, progress)

    def passes(self, request: Request) -> int:
        """Return how many passes of the network the request takes."""
        return 0 if request.renderer == "paste" else self.rendered(request, request.passes)

    def predictor(self, name: str) -> Predictor:
        """Return the model of that name for a search."""
        asked = predictor(self.classifier(name))
        return replace(asked, predict=lambda image: _alone(self._looking, asked.predict, image))

    def _answers(
        self, model: Classifier | ObjectModel, name: str, pictures: Sequence[ObjectPicture]
    ) -> list[Answer | FoundObjects]:
        keys = [(name, picture.key) for picture in pictures]
        new = {key: picture for key, picture in zip(keys, pictures, strict=True) if key not in self._said}
        said = {key: self._said[key] for key in keys if key not in new}
        if new:
            asked = list(new.values())
            answers = _predicted(model, asked) if isinstance(model, Classifier) else _found(model, asked)
            said.update(zip(new, answers, strict=True))
        self._said.update(said)
        while len(self._said) > ANSWERS_HELD:
            self._said.popitem(last=False)
        return [said[key] for key in keys]

    def _render(self, request: Request, work: Callable[[Renderer], T], progress: Progress | None) -> T:
        """Do the work with the renderer that a replay of this request would open, so that both make the same bytes."""
        key = canonical([request.renderer, request.to_json()["options"], request.used_guide, request.size])
        if key not in self._renderers:
            while len(self._renderers) >= RENDERERS_HELD:
                self._renderers.popitem(last=False)
            self._renderers[key] = request.open_renderer()
        self._renderers.move_to_end(key)
        renderer = self._renderers[key]
        if progress is None or not isinstance(renderer, NetworkRenderer):
            return work(renderer)
        total, done = request.passes(renderer), 0

        def passed(pictures: int) -> None:
            nonlocal done
            done += pictures
            progress(min(done, total), total)  # what it raises ends the work

        return work(CountedRenderer(renderer, passed))


def _predicted(model: Classifier, pictures: Sequence[ObjectPicture]) -> list[Answer]:
    batch = torch.stack([model.prepare(picture.image) for picture in pictures])
    best = model.logits(batch).double().softmax(1).topk(min(COUNT, len(model.labels)))
    return [
        Answer(tuple(classes), tuple(model.labels.classes[index] for index in classes), tuple(shares))
        for classes, shares in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def _found(model: ObjectModel, pictures: Sequence[ObjectPicture]) -> list[FoundObjects]:
    answers = model.answer([model.prepare(picture.image) for picture in pictures])
    truths = [Truth.read(picture.label, picture.mask, None, "") for picture in pictures]
    rows = judged_rows(model, answers, truths, map_objects(model.labels, imagenet(), ()))
    return [FoundObjects(row, truth) for row, truth in zip(rows, truths, strict=True)]


def _alone(thread: ThreadPoolExecutor, work: Callable[..., T], *given: object) -> T:
    """Run `work` in that thread, with the caller's context, which gradio needs for its progress bar."""
    return thread.submit(contextvars.copy_context().run, work, *given).result()


@functools.cache
def remembered_removal(method: str) -> RememberedRemoval:
    """Return the removal method of that name, opened once."""
    return RememberedRemoval(open_removal(method))
