"""One pass over the pictures: each batch is decoded once and classified by every model that still needs it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from unfazed.engine.memory import in_parts, kept_heap
from unfazed.engine.threads import Threads
from unfazed.errors import UserError
from unfazed.models.classifier import Classifier
from unfazed.models.label_mapping import LabelMapping

from .contract import REPEATED, check_accuracy, check_answers, sanity_sample
from .decoding import Batch, Decoder, worker_count
from .inputs import Pictures
from .scoring import Scores, score
from .storage import Parts, make_table

SANITY = 64  # originals that are checked before any prediction is stored


@dataclass(eq=False)
class Job:
    """One model's progress; `held` are predictions that wait for the contract check, `first` are the
    logits of the first few pictures of the first batch."""

    model: Classifier
    mapping: LabelMapping
    fingerprint: str
    parts: Parts
    held: list[tuple[Batch, dict[str, np.ndarray]]] = field(default_factory=list)
    first: torch.Tensor | None = None
    error: str | None = None


class Pass:
    """Classifies the pictures, originals for the contract check first, in batches of `size` with the models of `jobs`.

    A model that adapts to its pictures (`+bn-adapt`) has its own pass, one edit at a time.
    """

    def __init__(self, pictures: Pictures, jobs: Sequence[Job], size: int, workers: int | None = None) -> None:
        self.pictures, self.jobs, self.size = pictures, list(jobs), size
        self.adapting = self.jobs[0].model.adapt is not None
        assert not self.adapting or len(self.jobs) == 1
        self.plan, self.checked = plan_batches(pictures, size, by_edit=self.adapting)
        self.geometries = list(dict.fromkeys(job.model.transform.geometry for job in self.jobs))
        self.device = str(self.jobs[0].model.device)
        picture_bytes = sum(3 * geometry.crop**2 for geometry in self.geometries)
        count = worker_count(self.device, workers, picture_bytes)
        self.decoder = Decoder(pictures.rows, self.plan, self.geometries, count)

    def run(self) -> Iterator[int]:
        """Make all missing predictions; yields the number of predictions added since the last time."""
        everything = range(len(self.plan))
        pending = [index for index in everything if any(index not in job.parts.done for job in self.jobs)]
        yield sum(len(self.plan[index]) for job in self.jobs for index in job.parts.done if index in everything)
        with _settled(self.device), Threads(self._one_picture) as threads:
            for indices in self._sets(pending):
                if self.adapting:
                    self._adapt(self._edit(indices[0]))
                waiting: list[tuple[Job, Batch, Scores]] = []
                for batch in self.decoder.batches(indices):
                    if torch.device(self.device).type == "cpu":
                        threads.adjust()
                    launched = [(job, batch, scores) for job in self.jobs if (scores := self._score(job, batch))]
                    # The results of the previous batch are fetched only now, so that the device always has work.
                    for job, before, scores in waiting:
                        self._keep(job, before, scores)
                    waiting = launched
                    yield len(launched) * len(self.plan[batch.index])
                for job, before, scores in waiting:
                    self._keep(job, before, scores)
        for job in self.jobs:
            if job.error is None:
                job.parts.flush()

    def _one_picture(self) -> None:
        """Run one forward pass of the first model without an error, to see how quick it is."""
        model = next((job.model for job in self.jobs if job.error is None), None)
        if model is not None:
            side = model.transform.crop
            with contextlib.suppress(Exception):  # the error occurs again, and is recorded, in the pass
                model.logits(torch.zeros(1, 3, side, side))

    def _score(self, job: Job, batch: Batch) -> Scores | None:
        """Return the model's scores of a batch, still on its device; None if they are already stored or it fails."""
        if job.error is not None or batch.index in job.parts.done:
            return None
        rows = self._rows(batch)
        labels = torch.tensor(
            [-1 if label is None else label for label in (self.pictures.rows[row].label for row in rows)]
        )
        crops = batch.crops[self.geometries.index(job.model.transform.geometry)]
        short = self.size - len(crops)
        if torch.device(self.device).type == "cuda" and short > 0:
            # One shape for every batch: kernels are chosen once, and other pictures never change a prediction.
            crops = torch.cat([crops, crops.new_zeros(short, *crops.shape[1:])])
        try:
            logits = in_parts(lambda part: job.model.logits(job.model.from_pixels(part)), crops)
            if job.first is None:
                job.first = logits[: min(REPEATED, len(rows))].clone()
            return score(logits[: len(rows)], labels, job.mapping, self.pictures.subset)
        except Exception as error:
            job.error = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            return None

    def _keep(self, job: Job, batch: Batch, scores: Scores) -> None:
        """Store a batch's predictions; those of the first batches only after the contract check."""
        if job.error is not None:
            return
        values = scores.numpy()
        if not values["finite"].all():
            rows = [row for row, fine in zip(self._rows(batch), values["finite"], strict=True) if not fine]
            first = self.pictures.rows[rows[0]].sample_id
            job.error = f"{job.model.name} returns NaN or infinite logits, first for {first} ({len(rows)} of a batch)"
        elif batch.index >= self.checked:
            self._add(job, batch, values)
        else:
            job.held.append((batch, values))
            if batch.index == self.checked - 1:
                self._check(job)
                for held, answers in job.held if job.error is None else []:
                    self._add(job, held, answers)
                job.held = []

    def _add(self, job: Job, batch: Batch, values: dict[str, np.ndarray]) -> None:
        rows = self._rows(batch)
        survives = batch.survives[self.geometries.index(job.model.transform.geometry)]
        table = make_table(job.model.name, [self.pictures.rows[row] for row in rows], values, survives, rows)
        job.parts.add(batch.index, table, batch.unreadable)

    def _check(self, job: Job) -> None:
        """Run the contract check on the held originals; a suspicion is written to a note next to the parts."""
        if job.parts.note("check"):
            return
        number = self.geometries.index(job.model.transform.geometry)
        crops = torch.cat([batch.crops[number] for batch, _ in job.held])
        labels = [self.pictures.rows[row].label for batch, _ in job.held for row in self._rows(batch)]
        answers, predicted = (np.concatenate([values[name] for _, values in job.held]) for name in ("raw", "predicted"))
        known = np.array([-1 if label is None else label for label in labels])
        try:
            # These batches have other shapes; choosing kernels for them would cost more than running them.
            with torch.backends.cudnn.flags(enabled=True, benchmark=False):
                if job.first is not None:
                    check_answers(job.model, crops[: len(job.first)], job.first, len(job.held[0][0].kept))
                suspicion = check_accuracy(job.model, job.mapping, crops, known, answers, predicted)
        except Exception as error:
            job.error = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            return
        job.parts.write_note("check", {"originals": len(labels), "suspicion": suspicion})

    def _adapt(self, edit: str) -> None:
        """Adapt the model to one edit's pictures before they are classified; a short last batch is left out."""
        (job,) = self.jobs
        assert job.model.adapt is not None
        indices = [index for index in range(len(self.plan)) if self._edit(index) == edit]
        whole = [index for index in indices if len(self.plan[index]) >= self.size / 2] or indices
        batches = (job.model.from_pixels(batch.crops[0]) for batch in self.decoder.batches(whole))
        seen = sum(len(self.plan[index]) for index in whole)
        job.parts.write_note("adapted", {**job.parts.note("adapted"), edit: seen})
        try:
            job.model.adapt(batches)
        except Exception as error:
            job.error = f"{type(error).__name__}: {error}"

    def _sets(self, pending: Sequence[int]) -> list[list[int]]:
        """Return the batches in one list per edit for a model that adapts, in one list for the others."""
        if not self.adapting:
            return [list(pending)] if pending else []
        edits = dict.fromkeys(self._edit(index) for index in pending)
        return [[index for index in pending if self._edit(index) == edit] for edit in edits]

    def _edit(self, index: int) -> str:
        return self.pictures.rows[self.plan[index][0]].edit

    def _rows(self, batch: Batch) -> list[int]:
        return [self.plan[batch.index][place] for place in batch.kept]


def plan_batches(pictures: Pictures, size: int, by_edit: bool = False) -> tuple[list[list[int]], int]:
    """Return the rows of each batch, and how many of the first batches are for the contract check.

    The check's originals come first, evenly spaced; the rest follows in the order of the rows. by_edit: no
    batch mixes edits.
    """
    originals = pictures.originals or list(range(len(pictures)))
    if by_edit:
        edits = dict.fromkeys([pictures.rows[originals[0]].edit, *(row.edit for row in pictures.rows)])
        groups = [[place for place, row in enumerate(pictures.rows) if row.edit == edit] for edit in edits]
        first = min(len(originals), SANITY)
    else:
        sample = sanity_sample(originals, max(size, SANITY))
        chosen = set(sample)
        groups = [sample, [place for place in range(len(pictures)) if place not in chosen]]
        first = len(sample)
    plan = [group[start : start + size] for group in groups for start in range(0, len(group), size)]
    return plan, -(-first // size)


@contextlib.contextmanager
def _settled(device: str) -> Iterator[None]:
    """Tune for batches of one shape: cuDNN chooses the quickest kernels once, a CPU reuses its memory."""
    before = torch.backends.cudnn.benchmark
    kind = torch.device(device).type
    torch.backends.cudnn.benchmark = kind == "cuda"
    try:
        with kept_heap(kind):
            yield
    finally:
        torch.backends.cudnn.benchmark = before
