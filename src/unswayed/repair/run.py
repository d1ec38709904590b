"""`repair`: data, two fine-tunes, a benchmark of photographs held out, and what changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from unswayed.benchmark import BuildSettings, build
from unswayed.choices import OneLine
from unswayed.errors import UserError
from unswayed.evaluation.evaluation import run_evaluation
from unswayed.evaluation.facts import averaged_edits, read_facts
from unswayed.evaluation.inputs import open_pictures
from unswayed.evaluation.settings import EvaluateSettings
from unswayed.files.locks import alone
from unswayed.files.records import read_object
from unswayed.files.whole import Json, make_folder, write_json
from unswayed.jobs.monitor import Monitor, View
from unswayed.labels import LabelSpace
from unswayed.models.classifier import Classifier
from unswayed.models.deployed import export_onnx
from unswayed.models.heads import classification_layer, keys_of
from unswayed.models.label_mapping import map_labels
from unswayed.models.opening import open_model
from unswayed.models.repaired import CARD, for_classes, save_repaired
from unswayed.sources import Source, open_source
from unswayed.sources.source import same_files
from unswayed.specs import slug_of, split_alias

from .family import FROM_SCRATCH, check_trainable, family_of
from .fine_tuning import FineTuning, Progress
from .measuring import FEWEST, ORIGINAL, Answers, Row, Verdict, before_and_after, folder_rows, read_answers, verdict
from .photographs import Photograph, Photographs, listed, split
from .settings import ARMS, RepairSettings

RECIPE = "original,background-random,size-0.05,position,direction"
RESULT, LOCK = "repair.json", ".lock"


@dataclass(frozen=True, eq=False, repr=False)
class Repair(OneLine):
    """What a repair came to: the folder, the table of before and after, the verdict and its reason, the counts."""

    folder: Path
    rows: list[Row]
    verdict: Verdict
    reason: str
    counts: dict[str, int]
    warnings: list[str]


def repair(
    source: str | Source,
    model: str | Classifier,
    out: str | Path,
    settings: RepairSettings | None = None,
    *,
    new_head: bool = False,
    also: str | Source | None = None,
    tests: Sequence[str] = (),
    benchmark: str | Path | None = None,
    recipe: str = RECIPE,
    renderer: str = "paste",
    device: str | None = None,
    workers: int | None = None,
    cache: str | Path | None = None,
    onnx: bool = False,
    show: Callable[[View], None] | None = None,
    note: Callable[[str], None] | None = None,
) -> Repair:
    """Fine-tune `model` on edits of the photographs of `source`, and plainly as control; measure all three.

    new_head: give the model a new classification layer for the source's classes. also: labeled photographs without
    masks that are trained on as well. tests: folders `images:…` to measure on besides. benchmark: an existing one to
    measure on; without it a share of the source (`settings.held_out`) is left out of training, and edited by `recipe`
    with `renderer`. A file whose content is measured on is never trained on. cache: a folder for pictures without
    their objects, `removed` in `out` if None. onnx: also export the repaired model. show: called with how far reading,
    fine-tuning, building and measuring are, each with its time left; note: with what happens. The same call again
    resumes where the last one stopped.

    The folder holds the repaired model (`repaired:OUT`), the control (`repaired:OUT/control`), the benchmark, the
    predictions, and `repair.json`.
    """
    settings = settings or RepairSettings()
    scenes = open_source(source) if isinstance(source, str) else source
    base = open_model(model, device=device) if isinstance(model, str) else model
    check_trainable(base, settings)
    started = for_classes(base, _labels(scenes), settings.seed) if new_head else base
    given = None if benchmark is None else str(benchmark)
    data = _training_data(scenes, started, settings, also=also, new_head=new_head, benchmark=given, tests=tests)
    settings = settings.for_photographs(len(data.train), pretrained=family_of(started) is not FROM_SCRATCH)
    if settings.train == "head":
        try:
            classification_layer(started)
        except UserError as error:
            few = f"{error.given}; with {len(data.train)} photographs to train on only the head would be trained"
            raise UserError(few, run="the same command with --train all --learning-rate 1e-5") from None
    folder = make_folder(out)
    steps = _Steps(base, started, scenes, data, settings, folder, workers, show, note or (lambda text: None))
    if isinstance(model, str) and base.name == (split_alias(model)[0] or model):
        steps.by_name[base.name] = model
    if data.left_out:
        steps.note(f"{data.left_out} photographs are not trained on, since they are also measured on")
    if benchmark is None and len(data.test) < FEWEST:
        few = f"{len(data.test)} photographs are held out to be measured on, and a verdict needs {FEWEST}"
        steps.note(f"warning: {few}: a larger --held-out, more photographs, or --benchmark BENCH")
    busy = f"another process repairs a model in {folder}"
    with alone(folder / LOCK, busy, run="the same command again when it has ended"):
        sets = steps.read(Path(cache or folder / "removed"))
        finished = steps.fine_tune(sets)
        if onnx:
            export_onnx(finished["repaired"], folder / "model.onnx")
        bench = Path(benchmark) if benchmark is not None else steps.build(recipe, renderer, device)
        rows = steps.measure(bench, tests, finished if new_head else {"before": base, **finished})
        judged, reason = verdict(rows)
        about = steps.about(sets)
        result = {"model": base.name, "new_head": new_head, "benchmark": str(bench), "rows": rows}
        write_json(folder / RESULT, {**result, "verdict": judged, "reason": reason, **about})
        unusable = [len(photographs.unusable) for photographs in sets.values() if photographs.unusable]
        warnings = [f"{count} photographs cannot be read" for count in unusable]
        return Repair(folder, rows, judged, reason, about["photographs"], warnings + steps.warnings)


@dataclass(eq=False)
class _Steps:
    """The steps of one repair, and what they share. base: the model as given; started: what is trained from."""

    base: Classifier
    started: Classifier
    scenes: Source
    data: _TrainingData
    settings: RepairSettings
    folder: Path
    workers: int | None
    show: Callable[[View], None] | None
    note: Callable[[str], None]
    warnings: list[str] = field(default_factory=list)
    # Models that another process can open, where a picture that ends it is left out alone.
    by_name: dict[str, str] = field(default_factory=dict)

    def read(self, cache: Path) -> dict[str, Photographs]:
        """The photographs to train on and to choose the epoch with."""
        side = max(self.started.transform.resize, self.started.transform.crop)
        sets = {}
        for name, rows in {"train": self.data.train, "validation": self.data.validation}.items():
            sets[name] = photographs = Photographs(rows, side, self.settings.fill, cache)
            if len(photographs):
                self.note(f"reading {len(photographs)} photographs ({name})")
                with Monitor(self.folder, f"reading ({name})", "photographs", self.show) as monitor:
                    photographs.read(str(self.started.device), self.workers, monitor.count)
            if photographs.fill != self.settings.fill:
                beyond = f"with {self.settings.fill} they need more than 4 GiB of memory"
                self.note(f"the fill is {photographs.fill} ({name}): {beyond}")
        return sets

    def fine_tune(self, sets: dict[str, Photographs]) -> dict[str, Classifier]:
        """The model of each arm, saved in the folder."""
        keys = keys_of(row.entry.image for photographs in sets.values() for row in photographs.rows)
        finished: dict[str, Classifier] = {}
        before = 0  # steps of the arms that are finished

        def count(monitor: Monitor, now: Progress) -> None:
            total = before + (len(ARMS) - len(finished)) * now.steps
            monitor.count(before + now.step, total, note=f"{now.arm}, loss {now.loss:.3f}")

        for arm in ARMS:
            self.note(f"fine-tuning: {arm}")
            state, data = self.folder / "state" / arm, (self.data.members, sets["train"], sets["validation"])
            with Monitor(self.folder, "fine-tuning", "steps", self.show) as monitor:
                tuned = FineTuning(self.started, *data, self.settings, arm, state).run(partial(count, monitor))
            before += tuned.history["steps"]
            if tuned.history["steps_planned"] == self.settings.epochs and not finished:
                size = tuned.history["pictures_per_step"]
                few = f"{len(sets['train'])} photographs to train on are one optimizer step of {size} in each epoch"
                self.warnings.append(f"{few}; a smaller --batch-size takes more steps")
            folder = self.folder if arm == "repaired" else self.folder / arm
            name, precision = f"repaired:{folder}", self.base.precision
            finished[arm] = replace(self.started, module=tuned.module, name=name, fixed_hash=None, precision=precision)
            training = {"arm": arm, **self.about(sets), "history": tuned.history}
            save_repaired(folder, finished[arm], self.base, training, keys)
            if read_object(folder / CARD)["architecture"]:  # else it needs the code of the model that it comes from
                self.by_name[name] = name
        return finished

    def about(self, sets: dict[str, Photographs]) -> Json:
        """What the cards say about the data and the settings."""
        masked = int(sets["train"].masked.sum())
        counts = {
            "train": len(sets["train"]),
            "train_with_mask": masked,
            "train_without_mask": len(sets["train"]) - masked,
            "validation": len(sets["validation"]),
            "held_out": self.data.held_out,
            "unusable": sum(len(photographs.unusable) for photographs in sets.values()),
        }
        fill = {name: photographs.fill for name, photographs in sets.items()}
        return {
            "source": self.scenes.spec,
            "photographs": counts,
            "fill": fill,
            "settings": self.settings.to_json(),
        }

    def build(self, recipe: str, renderer: str, device: str | None) -> Path:
        """The benchmark of the photographs that were held out."""
        test = set(self.data.test)
        held = replace(self.scenes, entries=tuple(entry for entry in self.scenes.entries if entry.id in test))
        self.note(f"building a benchmark of {len(held)} photographs that were held out")
        settings = BuildSettings(recipe=recipe, renderer=renderer, device=device, workers=self.workers)
        build(held, self.folder / "benchmark", settings, show=self.show)
        return self.folder / "benchmark"

    def measure(self, bench: Path, tests: Sequence[str], models: dict[str, Classifier]) -> list[Row]:
        """The table of before and after: on the benchmark, and on each of the folders."""
        self.note("measuring")
        predictions = self.folder / "predictions"
        answers = self.answers(str(bench), models, predictions)
        facts = read_facts(predictions, models=[model.name for model in models.values()])
        edits = [edit for edit in answers["repaired"].right if edit != ORIGINAL]
        rows = before_and_after(answers, averaged_edits(edits, facts))
        for spec in tests:
            rows += folder_rows(spec, self.answers(spec, models, predictions / slug_of(spec)))
        return rows

    def answers(self, pictures: str, models: dict[str, Classifier], folder: Path) -> dict[str, Answers]:
        settings = EvaluateSettings(workers=self.workers, device=str(self.base.device))
        chosen = [self.by_name.get(model.name, model) for model in models.values()]
        done = run_evaluation(pictures, chosen, folder, settings, show=self.show)
        if done.failed:
            failures = (f"{name} could not be measured: {reason}" for name, reason in done.failed.items())
            raise UserError("\n".join(failures))
        self.warnings += [line for lines in done.warnings.values() for line in lines]
        return {arm: read_answers(folder / f"{model.slug}.parquet") for arm, model in models.items()}


def read_result(folder: str | Path) -> Row:
    """What `repair.json` of a folder says."""
    path = Path(folder) / RESULT
    if not path.is_file():
        again = f"unswayed repair SOURCE -m MODEL -o {folder}"
        if (Path(folder) / CARD).is_file():
            raise UserError(f"{folder} holds a model but no {RESULT}: the repair was not finished", run=again)
        raise UserError(f"{folder} holds no repair", run=again)
    return read_object(path)


@dataclass(frozen=True, eq=False)
class _TrainingData:
    """The photographs of each use, and the outputs of the network that stand for each target.

    left_out: how many are not trained on because they are also in the given benchmark, in a folder to be measured on,
    or among those held out; held_out: how many of the source are not trained on.
    """

    train: tuple[Photograph, ...]
    validation: tuple[Photograph, ...]
    test: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]
    held_out: int
    left_out: int


def _training_data(
    scenes: Source,
    model: Classifier,
    settings: RepairSettings,
    *,
    also: str | Source | None = None,
    new_head: bool = False,
    benchmark: str | None = None,
    tests: Sequence[str] = (),
) -> _TrainingData:
    """The photographs of `scenes`, and of `also`, to train on; those of `benchmark` and `tests` are left out.

    Without a benchmark a share of the source is held out to be measured on.
    """
    members = _members(model, scenes, new_head)
    every = listed(scenes)
    if not every:
        raise UserError(f"no photograph of '{scenes.spec}' has a label", allowed="a source with labels")
    nothing_left = UserError(
        f"all {len(every)} photographs of '{scenes.spec}' are also measured on, so none is left to be trained on",
        allowed="a --benchmark and --test folders of other photographs; without --benchmark some of these are held out",
    )
    measured = [path for spec in (benchmark, *tests) if spec is not None for path in open_pictures(spec).photographs]
    rows = _without(every, measured)
    if not rows:
        raise nothing_left
    test, validation, train = _divided(scenes, rows, settings, benchmark is None)
    more: tuple[Photograph, ...] = ()
    if also is not None:
        other = open_source(also) if isinstance(also, str) else also
        more = tuple(replace(row, masked=False) for row in listed(other, len(members)))
        members = (*members, *_members(model, other, new_head))
    held_out = [*measured, *(rows[index].entry.image for index in test)]
    trained, chosen = (_without([rows[index] for index in part], held_out) for part in (train, validation))
    kept = _without(more, held_out)
    if not trained + kept:
        raise nothing_left
    alone = len(every) - len(trained) - len(chosen)
    left_out = alone - len(test) + len(more) - len(kept)
    ids = tuple(rows[index].entry.id for index in test)
    return _TrainingData(trained + kept, chosen, ids, members, alone, left_out)


def _divided(
    scenes: Source, rows: Sequence[Photograph], settings: RepairSettings, measures: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The positions to measure on (none unless `measures`), to validate on and to train on."""
    # Only photographs with masks can be edited, so only they are held out to be measured on.
    masked = np.array([row.masked for row in rows])
    if not masked.any():
        raise UserError(
            f"no photograph of '{scenes.spec}' has a mask, so nothing can be edited",
            run="unswayed masks FOLDER -o MASKS",
        )
    editable = np.flatnonzero(masked)
    labels = np.array([row.target for row in rows])[editable]
    shares = (settings.held_out if measures else 0.0, settings.validation)
    test, validation, rest = (editable[part] for part in split(labels, shares, settings.seed))
    if settings.validation and not len(validation) and len(rest) > 1:
        # Classes of a few photographs each have none to spare, but all of them together do.
        order = rest[np.random.default_rng(settings.seed).permutation(len(rest))]
        count = max(round(settings.validation * len(rest)), 1)
        validation, rest = np.sort(order[:count]), np.sort(order[count:])
    if measures and not len(test):
        raise UserError(
            f"no photograph of '{scenes.spec}' is left to be measured on",
            allowed="a larger --held-out, more photographs of a class, or --benchmark BENCH",
        )
    return test, validation, np.sort(np.concatenate([rest, np.flatnonzero(~masked)]))


def _without(rows: Sequence[Photograph], measured: Sequence[str]) -> tuple[Photograph, ...]:
    """The photographs whose files have another content than all that are measured on."""
    known = same_files((row.entry.image for row in rows), measured)
    return tuple(row for row in rows if row.entry.image not in known)


def _labels(scenes: Source) -> LabelSpace:
    if not len(scenes.labels):
        given = f"the photographs of '{scenes.spec}' have no labels"
        raise UserError(given, allowed="class folders, or a table of labels")
    return scenes.labels


def _members(model: Classifier, scenes: Source, new_head: bool) -> tuple[tuple[int, ...], ...]:
    """The outputs of the model that stand for each class of the source."""
    needed = {entry.label for entry in scenes.entries if entry.label is not None}
    try:
        return map_labels(model.labels, _labels(scenes), needed).members
    except UserError as error:
        if new_head:
            raise
        raise UserError(
            error.given,
            allowed="a model whose classes have the source's names or WNIDs, or MODEL?labels=FILE with the names in "
            "the order of its outputs; or --new-head, which trains a new classification layer",
        ) from None
