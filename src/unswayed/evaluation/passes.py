"""One pass over a part of the pictures: each batch is decoded once, for every model that still needs it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from unswayed.errors import reason_of
from unswayed.jobs.parts import Parts
from unswayed.jobs.resources import copies, in_lanes, kept_heap, one_thread, shrinking
from unswayed.jobs.table_job import Share
from unswayed.models.classifier import Classifier
from unswayed.models.label_mapping import LabelMapping
from unswayed.models.transforms import Geometry
from unswayed.sources.pictures import read_picture

from .contract import REPEATED, SANITY, check_answers, check_originals, sanity_sample
from .decoding import Batch, Decoder, worker_count
from .inputs import Pictures
from .model_cards import SCHEMA, Picture
from .scoring import Scores, score


@dataclass(eq=False)
class ModelPass:
    """One model's progress; `held` are predictions that wait for the contract check, `first` are the
    logits of the first batch, `most` is how many pictures fit into memory at once."""

    model: Classifier
    mapping: LabelMapping
    parts: Parts
    held: list[tuple[Batch, dict[str, np.ndarray]]] = field(default_factory=list)
    first: torch.Tensor | None = None
    most: int | None = None
    error: str | None = None


class Pass:
    """Classifies a share of the pictures, originals for the contract check first, in batches of `size`.

    A model that adapts to its pictures (`+bn-adapt`) has its own pass, one edit at a time. The batches are the same for
    every division into shares. lanes: how many batches a CPU classifies beside each other. processes: how many
    processes share the machine. careful: called with each picture and each model before they are used, one at a time.
    """

    def __init__(
        self,
        pictures: Pictures,
        models: Sequence[ModelPass],
        size: int,
        workers: int | None,
        lanes: int,
        processes: int,
        share: Share,
        careful: Callable[[str, str], None] | None = None,
    ) -> None:
        self.pictures, self.models, self.size = pictures, list(models), size
        self.adapting = self.models[0].model.adapt is not None
        assert not self.adapting or len(self.models) == 1
        self.plan, self.checked = plan_batches(pictures, size, by_edit=self.adapting)
        self.geometries = list(dict.fromkeys(progress.model.transform.geometry for progress in self.models))
        self.device = str(self.models[0].model.device)
        self.on_cpu = torch.device(self.device).type == "cpu"
        self.lanes, self.careful = (1 if careful else lanes), careful
        picture_bytes = sum(3 * geometry.crop**2 for geometry in self.geometries)
        count = 0 if careful else worker_count(self.device, workers, picture_bytes, processes)
        self.decoder = Decoder(pictures.rows, self.plan, self.geometries, count, dict(share.skipped), careful)
        self.own = [index for unit in share.of(self._units()) for index in unit]

    def run(self) -> Iterator[int]:
        """Make the missing predictions of this part; yields the number of predictions added since the last time."""
        pending = [index for index in self.own if any(index not in progress.parts.done for progress in self.models)]
        yield sum(
            len(self.plan[index]) for progress in self.models for index in self.own if index in progress.parts.done
        )
        with _settled(self.device), one_thread() if self.on_cpu else contextlib.nullcontext():
            for indices in self._sets(pending):
                if self.adapting:
                    self._adapt(self._edit(indices[0]))
                for batch, scored in self._scored(indices):
                    for progress, scores in scored:
                        self._keep(progress, batch, scores)
                    yield len(scored) * len(self.plan[batch.index])
        for progress in self.models:
            if progress.error is None:
                progress.parts.flush()

    def _scored(self, indices: Sequence[int]) -> Iterator[tuple[Batch, list[tuple[ModelPass, Scores]]]]:
        """Yield each batch with its scores, in order."""
        if self.on_cpu and self.decoder.workers == 0:
            models = [progress.model for progress in self.models]
            size = sum(model.nbytes for model in models)
            lanes = [functools.partial(self._in_lane, some) for some in copies(models, self.lanes, len(indices), size)]
            yield from in_lanes(lanes, indices)
            return
        waiting = None
        for batch in self.decoder.batches(indices):
            launched = batch, self._launch(batch, [progress.model for progress in self.models])
            # The results of the previous batch are fetched only now, so that the device always has work.
            if waiting is not None:
                yield waiting
            waiting = launched
        if waiting is not None:
            yield waiting

    def _in_lane(self, models: Sequence[Classifier], index: int) -> tuple[Batch, list[tuple[ModelPass, Scores]]]:
        """Decode and classify one batch in one thread."""
        batch = self.decoder.batch(index)
        return batch, self._launch(batch, models)

    def _launch(self, batch: Batch, models: Sequence[Classifier]) -> list[tuple[ModelPass, Scores]]:
        pairs = zip(self.models, models, strict=True)
        return [(progress, scores) for progress, model in pairs if (scores := self._score(progress, model, batch))]

    def _score(self, progress: ModelPass, model: Classifier, batch: Batch) -> Scores | None:
        """Return the model's scores of a batch, still on its device; None if they are already stored or it fails."""
        if progress.error is not None or batch.index in progress.parts.done:
            return None
        rows = self._rows(batch)
        labels = torch.tensor(
            [-1 if label is None else label for label in (self.pictures.rows[row].label for row in rows)]
        )
        crops = batch.crops[self.geometries.index(model.transform.geometry)]
        short = self.size - len(crops)
        if torch.device(self.device).type == "cuda" and short > 0:
            # One shape for every batch: other pictures never change a prediction.
            crops = torch.cat([crops, crops.new_zeros(short, *crops.shape[1:])])
        if self.careful:
            self.careful("model", model.name)

        def run(size: int) -> torch.Tensor:
            return torch.cat([model.logits(model.from_pixels(part)) for part in crops.split(size)])

        try:
            whole = max(1, len(crops))
            logits, fitting = shrinking(run, min(whole, progress.most or whole))
            if fitting < whole:
                progress.most = fitting
            if batch.index == 0:
                progress.first = logits[: len(rows)].clone()
            return score(logits[: len(rows)], labels, progress.mapping, self.pictures.subset)
        except (Exception, SystemExit) as error:
            progress.error = reason_of(error)
            return None

    def _keep(self, progress: ModelPass, batch: Batch, scores: Scores) -> None:
        """Store a batch's predictions; those of the first batches only after the contract check."""
        if progress.error is not None:
            return
        values = scores.numpy()
        if not values["finite"].all():
            rows = [row for row, fine in zip(self._rows(batch), values["finite"], strict=True) if not fine]
            first = self.pictures.rows[rows[0]].sample_id
            progress.error = (
                f"{progress.model.name} returns NaN or infinite logits, first for {first} ({len(rows)} of a batch)"
            )
        elif batch.index >= self.checked:
            self._add(progress, batch, values)
        else:
            progress.held.append((batch, values))
            if batch.index == self.checked - 1:
                self._check(progress)
                for held, answers in progress.held if progress.error is None else []:
                    self._add(progress, held, answers)
                progress.held = []

    def _add(self, progress: ModelPass, batch: Batch, values: dict[str, np.ndarray]) -> None:
        rows = self._rows(batch)
        survives = batch.survives[self.geometries.index(progress.model.transform.geometry)]
        table = make_table(progress.model.name, [self.pictures.rows[row] for row in rows], values, survives, rows)
        progress.parts.add(table, batch.index, dict(batch.unreadable))

    def _check(self, progress: ModelPass) -> None:
        """Run the contract check on the held originals; a suspicion is written to a note next to the parts."""
        if progress.parts.note("check"):
            return
        own = progress.model.transform.geometry
        held = torch.cat([batch.crops[self.geometries.index(own)] for batch, _ in progress.held])
        rows = [self.pictures.rows[row] for batch, _ in progress.held for row in self._rows(batch)]
        answers, predicted = (
            np.concatenate([values[name] for _, values in progress.held]) for name in ("raw", "predicted")
        )
        labels = np.array([-1 if row.label is None else row.label for row in rows])

        def crops(geometry: Geometry, places: np.ndarray) -> torch.Tensor:
            if geometry == own:
                return held[torch.from_numpy(places)]
            return torch.from_numpy(np.stack([geometry.apply(read_picture(rows[place].path)) for place in places]))

        first = torch.zeros(0) if progress.first is None else progress.first
        try:
            if len(first):
                few = first[:REPEATED]
                check_answers(progress.model, held[: len(few)], few, len(progress.held[0][0].kept))
            grave, remarks = check_originals(progress.model, progress.mapping, crops, labels, answers, predicted, first)
        except (Exception, SystemExit) as error:
            progress.error = reason_of(error)
            return
        suspicion = "; ".join(grave) or None
        progress.parts.write_note("check", {"originals": len(rows), "suspicion": suspicion, "remarks": remarks})

    def _adapt(self, edit: str) -> None:
        """Adapt the model to one edit's pictures before they are classified; a short last batch is left out."""
        (progress,) = self.models
        assert progress.model.adapt is not None
        indices = [index for index in range(len(self.plan)) if self._edit(index) == edit]
        whole = [index for index in indices if len(self.plan[index]) >= self.size / 2] or indices
        batches = (progress.model.from_pixels(batch.crops[0]) for batch in self.decoder.batches(whole))
        seen = sum(len(self.plan[index]) for index in whole)
        progress.parts.write_note("adapted", {edit: seen}, indices[0])
        try:
            progress.model.adapt(batches)
        except Exception as error:
            progress.error = reason_of(error)

    def _units(self) -> list[list[int]]:
        """Return the batches in lists that are not divided: those of the contract check; the edits, if it adapts."""
        everything = range(len(self.plan))
        if self.adapting:
            return self._sets(everything)
        first = [list(everything[: self.checked])] if self.checked else []
        return first + [[index] for index in everything[self.checked :]]

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


def make_table(
    model: str, rows: Sequence[Picture], scores: dict[str, np.ndarray], survives: np.ndarray, order: Sequence[int]
) -> pa.Table:
    """Return the predictions of one batch; `order` is each row's overall position, kept until the parts are merged."""
    labels = [row.label for row in rows]
    known = np.array([label is not None for label in labels], bool)
    truth = np.array([-1 if label is None else label for label in labels], np.int64)
    columns = {
        "model": [model] * len(rows),
        "sample_id": [row.sample_id for row in rows],
        "source_id": [row.source_id for row in rows],
        "file_name": [row.file_name for row in rows],
        "edit": [row.edit for row in rows],
        "run": [row.run for row in rows],
        "label": labels,
        "predicted": scores["predicted"],
        "probability": scores["probability"],
        "true_probability": pa.array(scores["true_probability"], pa.float32(), mask=~known),
        "correct": pa.array(scores["predicted"] == truth, pa.bool_(), mask=~known),
        "rank": pa.array(scores["rank"].astype(np.int32), pa.int32(), mask=~known),
        "top5": scores["top"].astype(np.int32).tolist(),
        "top5_probabilities": scores["top_probabilities"].astype(np.float32).tolist(),
        "energy": scores["energy"],
        "object_survives": pa.array(survives.astype(np.float32), pa.float32(), mask=np.isnan(survives)),
        "picture": [row.picture for row in rows],
        "subset_correct": pa.array(scores["subset"] == truth, pa.bool_(), mask=~known | (scores["subset"] < 0)),
    }
    arrays = [_array(columns[field.name], field.type) for field in SCHEMA]
    table = pa.Table.from_arrays(arrays, schema=SCHEMA)
    return table.append_column("order", pa.array(list(order), pa.int64()))


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode()
    return pa.array(values, kind)


@contextlib.contextmanager
def _settled(device: str) -> Iterator[None]:
    """Let cuDNN choose its kernels by rules, not by timing, so that every process has the same; a CPU reuses memory."""
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        with kept_heap(torch.device(device).type):
            yield
    finally:
        cudnn.benchmark, cudnn.deterministic = before
