"""One pass over a part of the pictures: each batch is decoded once, for every model that still needs it."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from unswayed.errors import reason_of
from unswayed.files.tables import array_of
from unswayed.jobs.parts import Parts
from unswayed.jobs.resources import copies, in_lanes, kept_heap, one_thread, shrinking
from unswayed.jobs.table_job import Share
from unswayed.models.classifier import Classifier
from unswayed.models.label_mapping import LabelMapping
from unswayed.models.opening import Model
from unswayed.models.transforms import Geometry
from unswayed.sources.pictures import read_picture

from .contract import REPEATED, SANITY, check_answers, check_originals, sanity_sample
from .decoding import Batch, Decoder, thread_count
from .inputs import Pictures
from .model_cards import SCHEMA, Picture

Values = dict[str, Any]  # columns of a batch by name: arrays of a classifier, lists of another model


@dataclass(eq=False)
class ModelPass:
    """One model's progress; `held` are predictions that wait for the contract check, `first` are the
    logits of the first batch, `most` is how many pictures fit into memory at once."""

    model: Model
    mapping: LabelMapping
    parts: Parts
    held: list[tuple[Batch, Values]] = field(default_factory=list)
    first: torch.Tensor | None = None
    most: int | None = None
    error: str | None = None


class Pass:
    """Classifies a share of the pictures, originals for the contract check first, in batches of `size`.

    A model that adapts to its pictures (`+bn-adapt`) has its own pass, one edit at a time; classifiers and models that
    answer about whole pictures do not share one. The batches are the same for every division into shares. lanes: how
    many batches a CPU classifies beside each other. processes: how many processes share the machine. careful: called
    with each picture and each model before they are used, one at a time.
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
        self.rows, self.subset, self.models, self.size = pictures.rows, pictures.subset, list(models), size
        self.labels = np.array([-1 if row.label is None else row.label for row in self.rows])
        self.adapting = self.models[0].model.adapt is not None
        assert not self.adapting or len(self.models) == 1
        self.plan, self.checked = plan_batches(pictures, size, by_edit=self.adapting)
        opened = [progress.model for progress in self.models]
        by_name = {model.name: model.transform.geometry for model in opened if isinstance(model, Classifier)}
        self.geometries = list(dict.fromkeys(by_name.values()))
        self.crops_of = {name: self.geometries.index(geometry) for name, geometry in by_name.items()}
        self.asked = [model for model in opened if not isinstance(model, Classifier)]
        device = torch.device(str(self.models[0].model.device))
        self.device = device.type
        self.lanes, self.careful = (1 if careful or self.asked else lanes), careful
        count = 0 if careful else thread_count(str(device), workers, processes)
        self.decoder = Decoder(self.rows, self.plan, self.geometries, count, dict(share.skipped), careful, self.asked)
        everything = range(len(self.plan))
        # What is not divided among shares: the batches of the contract check or, if the model adapts, those of an edit.
        units = self._by_edit(everything) if self.adapting else [[index] for index in everything[self.checked :]]
        if self.checked and not self.adapting:
            units.insert(0, list(everything[: self.checked]))
        self.own = [index for unit in share.of(units) for index in unit]

    def run(self) -> Iterator[int]:
        """Make the missing predictions of this part; yields the number of predictions added since the last time."""
        done = [progress.parts.done for progress in self.models]
        yield sum(len(self.plan[index]) for indices in done for index in self.own if index in indices)
        pending = [index for index in self.own if not all(index in indices for indices in done)]
        with _settled(self.device), one_thread() if self.device == "cpu" else contextlib.nullcontext():
            for indices in self._by_edit(pending) if self.adapting else filter(None, [pending]):
                if self.adapting:
                    self._adapt(self._edit(indices[0]))
                for batch, scored in self._scored(indices):
                    for progress, scores in scored:
                        self._keep(progress, batch, scores)
                    yield len(scored) * len(self.plan[batch.index])
        for progress in self.models:
            if progress.error is None:
                progress.parts.flush()

    def _scored(self, indices: Sequence[int]) -> Iterator[tuple[Batch, list[tuple[ModelPass, Values]]]]:
        """Yield each batch with its scores, in order."""
        models = [progress.model for progress in self.models]
        if self.device == "cpu" and self.decoder.threads == 0:
            lanes = copies(models, self.lanes, len(indices), sum(model.nbytes for model in models))
            yield from in_lanes(self._decode_and_score, lanes, indices)
            return
        launched = ((batch, self._score_all(batch, models)) for batch in self.decoder.batches(indices))
        # The results of a batch are fetched only when the next one is launched, so that the device always has work.
        pairs = itertools.pairwise(itertools.chain(launched, [None]))
        yield from (earlier for earlier, _ in pairs if earlier is not None)

    def _decode_and_score(self, models: Sequence[Model], index: int) -> tuple[Batch, list[tuple[ModelPass, Values]]]:
        batch = self.decoder.batch(index)
        return batch, self._score_all(batch, models)

    def _score_all(self, batch: Batch, models: Sequence[Model]) -> list[tuple[ModelPass, Values]]:
        pairs = zip(self.models, models, strict=True)
        return [(progress, scores) for progress, model in pairs if (scores := self._score(progress, model, batch))]

    def _score(self, progress: ModelPass, model: Model, batch: Batch) -> Values | None:
        """Return the model's scores of a batch, still on its device; None if they are already stored or it fails."""
        if progress.error is not None or batch.index in progress.parts.done:
            return None
        if self.careful:
            self.careful("model", model.name)
        try:
            if isinstance(model, Classifier):
                return self._classified(progress, model, batch)
            from .judging import judged_rows

            answers = model.answer(batch.prepared[self.asked.index(model)])
            return {"judged": judged_rows(model, answers, batch.truths, progress.mapping), "answers": answers}
        except (Exception, SystemExit) as error:
            progress.error = reason_of(error)
            return None

    def _classified(self, progress: ModelPass, model: Classifier, batch: Batch) -> Values:
        crops = batch.crops[self.crops_of[model.name]]
        count, short = len(crops), self.size - len(crops)
        if self.device == "cuda" and short > 0:
            # One shape for every batch: other pictures never change a prediction.
            crops = torch.cat([crops, crops.new_zeros(short, *crops.shape[1:])])
        whole = max(1, len(crops))
        logits, fitting = shrinking(functools.partial(model.classify, crops), min(whole, progress.most or whole))
        logits = logits[:count]
        answers = progress.mapping.apply(logits)
        if fitting < whole:
            progress.most = fitting
        if batch.index == 0:
            progress.first = logits.clone()
        return dict(score(logits, answers, torch.from_numpy(self.labels[self._rows(batch)]), self.subset))

    def _keep(self, progress: ModelPass, batch: Batch, scores: Values) -> None:
        """Store a batch's predictions; those of the first batches only after the contract check."""
        if progress.error is not None:
            return
        values = scores
        if isinstance(progress.model, Classifier):
            values = {name: value.cpu().numpy() for name, value in scores.items()}
            bad = [row for row, fine in zip(self._rows(batch), values["finite"], strict=True) if not fine]
            if bad:
                first = f"first for {self.rows[bad[0]].sample_id} ({len(bad)} of a batch)"
                progress.error = f"{progress.model.name} returns NaN or infinite logits, {first}"
                return
        progress.held.append((batch, values))
        if batch.index < self.checked - 1:
            return
        if batch.index == self.checked - 1:
            self._check(progress)
        for held, answers in progress.held if progress.error is None else []:
            rows, left_out = self._rows(held), dict(held.unreadable)
            if isinstance(progress.model, Classifier):
                pictures = [self.rows[row] for row in rows]
                columns = classified_columns(pictures, answers, held.survives[self.crops_of[progress.model.name]])
            else:
                judged = dict(zip(rows, answers["judged"], strict=True))
                left_out |= {self.rows[row].sample_id: why for row, why in judged.items() if isinstance(why, str)}
                rows = [row for row in rows if not isinstance(judged[row], str)]
                pictures = [self.rows[row] for row in rows]
                columns = {name: [judged[row].get(name) for row in rows] for name in SCHEMA.names}
            table = make_table(progress.model.name, pictures, columns, rows)
            progress.parts.add(table, held.index, left_out)
        progress.held = []

    def _check(self, progress: ModelPass) -> None:
        """Run the contract check on the held originals; a suspicion is written to a note next to the parts."""
        if "check" in progress.parts.notes():
            return
        rows = [row for batch, _ in progress.held for row in self._rows(batch)]
        try:
            if isinstance(progress.model, Classifier):
                grave, remarks = self._check_classifier(progress, progress.model, rows)
            else:
                grave, remarks = self._check_answers(progress, progress.model, rows)
        except (Exception, SystemExit) as error:
            progress.error = reason_of(error)
            return
        suspicion = "; ".join(grave) or None
        progress.parts.write_note("check", {"originals": len(rows), "suspicion": suspicion, "remarks": remarks})

    def _check_classifier(
        self, progress: ModelPass, model: Classifier, rows: Sequence[int]
    ) -> tuple[list[str], list[str]]:
        own = self.crops_of[model.name]
        held = torch.cat([batch.crops[own] for batch, _ in progress.held])
        answers, predicted = (
            np.concatenate([values[name] for _, values in progress.held]) for name in ("raw", "predicted")
        )

        def crops(geometry: Geometry, places: np.ndarray) -> torch.Tensor:
            if geometry == self.geometries[own]:
                return held[torch.from_numpy(places)]
            files = [self.rows[rows[index]].path for index in places]
            return torch.from_numpy(np.stack([geometry.apply(read_picture(file)) for file in files]))

        first = torch.zeros(0) if progress.first is None else progress.first
        if len(first):
            few = first[:REPEATED]
            check_answers(model, held[: len(few)], few, len(progress.held[0][0].kept))
        return check_originals(model, progress.mapping, crops, self.labels[rows], answers, predicted, first)

    def _check_answers(self, progress: ModelPass, model: Model, rows: Sequence[int]) -> tuple[list[str], list[str]]:
        """Only detectors and segmenters can be read wrongly; a model that answers in words says what it means."""
        from unswayed.models.objects import ObjectModel

        from .object_contract import check_objects

        if not isinstance(model, ObjectModel):
            return [], list(getattr(model, "remarks", ()))
        judged, answers = (
            [row for _, values in progress.held for row in values[name]] for name in ("judged", "answers")
        )
        truths = [truth for batch, _ in progress.held for truth in batch.truths if truth is not None]
        paths = [self.rows[row].path for row in rows]
        return check_objects(model, progress.mapping, paths, answers, truths, judged)

    def _adapt(self, edit: str) -> None:
        """Adapt the model to one edit's pictures before they are classified; a short last batch is left out."""
        (progress,) = self.models
        assert isinstance(progress.model, Classifier) and progress.model.adapt is not None
        indices = [index for index in range(len(self.plan)) if self._edit(index) == edit]
        whole = [index for index in indices if len(self.plan[index]) >= self.size / 2] or indices
        batches = (progress.model.from_pixels(batch.crops[0]) for batch in self.decoder.batches(whole))
        seen = sum(len(self.plan[index]) for index in whole)
        progress.parts.write_note("adapted", {edit: seen}, indices[0])
        try:
            progress.model.adapt(batches)
        except Exception as error:
            progress.error = reason_of(error)

    def _by_edit(self, indices: Sequence[int]) -> list[list[int]]:
        edits = dict.fromkeys(self._edit(index) for index in indices)
        return [[index for index in indices if self._edit(index) == edit] for edit in edits]

    def _edit(self, index: int) -> str:
        return self.rows[self.plan[index][0]].edit

    def _rows(self, batch: Batch) -> list[int]:
        return [self.plan[batch.index][position] for position in batch.kept]


def plan_batches(pictures: Pictures, size: int, by_edit: bool = False) -> tuple[list[list[int]], int]:
    """Return the rows of each batch, and how many of the first batches are for the contract check.

    The check's originals come first, evenly spaced; the rest follows in the order of the rows. by_edit: no
    batch mixes edits.
    """
    originals = pictures.originals or list(range(len(pictures)))
    if by_edit:
        edits = dict.fromkeys([pictures.rows[originals[0]].edit, *(row.edit for row in pictures.rows)])
        groups = [[index for index, row in enumerate(pictures.rows) if row.edit == edit] for edit in edits]
        first = min(len(originals), SANITY)
    else:
        sample = sanity_sample(originals, max(size, SANITY))
        chosen = set(sample)
        groups = [sample, [index for index in range(len(pictures)) if index not in chosen]]
        first = len(sample)
    plan = [group[start : start + size] for group in groups for start in range(0, len(group), size)]
    return plan, -(-first // size)


def score(
    logits: torch.Tensor, answers: torch.Tensor, labels: torch.Tensor, subset: Sequence[int] | None = None
) -> dict[str, torch.Tensor]:
    """Return the predictions of a batch, still on its device, by name.

    logits: (n, model's classes); answers: the same in the benchmark's label space; labels: (n,) there, -1 unknown;
    subset: the only classes that a second prediction chooses from.

    predicted (n,) int; probability (n,) of the predicted class; true_probability (n,), NaN if the label is unknown;
    rank (n,): 1 plus the number of classes with a larger logit, or an equal one and a smaller index, so that rank 1 is
    the predicted class, also among ties, and 0 if the label is unknown; top, top_probabilities (n, 5); energy (n,)
    logsumexp of the model's own logits; raw (n,) the model's own arg max; finite: whether every logit was; subset (n,):
    the prediction among the classes of a subset, -1 without one.
    """
    labels = labels.to(answers.device, non_blocking=True)
    known = labels >= 0
    true = labels.clamp_min(0)[:, None]
    logarithms = torch.log_softmax(answers, 1)
    top_logits, top = answers.topk(min(5, answers.shape[1]), 1)
    # Among equal logits, topk does not guarantee the smaller index first; arg max does.
    predicted = answers.argmax(1)
    true_logit = answers.gather(1, true)
    earlier = torch.arange(answers.shape[1], device=answers.device)[None] < true
    rank = 1 + (answers > true_logit).sum(1) + ((answers == true_logit) & earlier).sum(1)
    chosen = torch.tensor(list(subset or ()), dtype=torch.int64, device=answers.device)
    return {
        "predicted": predicted,
        "probability": logarithms.gather(1, predicted[:, None])[:, 0].exp(),
        "true_probability": torch.where(known, logarithms.gather(1, true)[:, 0].exp(), torch.nan),
        "rank": torch.where(known, rank, 0),
        "top": top,
        "top_probabilities": (top_logits - torch.logsumexp(answers, 1, keepdim=True)).exp(),
        "energy": torch.logsumexp(logits, 1),
        "raw": logits.argmax(1),
        "finite": torch.isfinite(logits).all(1),
        "subset": torch.full_like(predicted, -1) if subset is None else chosen[answers[:, chosen].argmax(1)],
    }


def classified_columns(rows: Sequence[Picture], scores: dict[str, np.ndarray], survives: np.ndarray) -> Values:
    """Return the columns that depend on a classifier's scores; values that are unknown are masked."""
    truth = np.array([-1 if row.label is None else row.label for row in rows], np.int64)
    unknown = truth < 0
    masks = {
        **dict.fromkeys(("true_probability", "correct", "rank"), unknown),
        "object_survives": np.isnan(survives),
        "subset_correct": unknown | (scores["subset"] < 0),
    }
    columns = {
        **{name: scores[name] for name in ("predicted", "probability", "true_probability", "energy")},
        "correct": scores["predicted"] == truth,
        "rank": scores["rank"].astype(np.int32),
        "top5": scores["top"],
        "top5_probabilities": scores["top_probabilities"],
        "object_survives": survives.astype(np.float32),
        "subset_correct": scores["subset"] == truth,
        "task": ["classify"] * len(rows),
    }
    return columns | {name: np.ma.array(columns[name], mask=mask) for name, mask in masks.items()}


def make_table(model: str, rows: Sequence[Picture], columns: Values, order: Sequence[int]) -> pa.Table:
    """Return the predictions of one batch; `order` is each row's overall position, kept until the parts are merged.

    columns: those that depend on the model's answers; the others of the schema are empty.
    """
    named = ("sample_id", "source_id", "file_name", "edit", "run", "label", "picture")
    values = columns | {"model": [model] * len(rows), **{name: [getattr(row, name) for row in rows] for name in named}}
    arrays = []
    for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True):
        column = values.get(name, [None] * len(rows))
        text = pa.types.is_dictionary(kind)
        arrays.append(array_of(column, pa.string()).dictionary_encode() if text else array_of(column, kind))
    return pa.Table.from_arrays(arrays, schema=SCHEMA).append_column("order", array_of(np.array(order), pa.int64()))


@contextlib.contextmanager
def _settled(device: str) -> Iterator[None]:
    """Let cuDNN choose its kernels by rules, not by timing, so that every process has the same; a CPU reuses memory."""
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        with kept_heap(device):
            yield
    finally:
        cudnn.benchmark, cudnn.deterministic = before
