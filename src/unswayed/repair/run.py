"""`repair`: data, two fine-tunes, a benchmark of photographs held out, and what changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from unswayed.choices import RendererName
from unswayed.errors import UserError
from unswayed.evaluation.facts import read_facts
from unswayed.evaluation.inputs import open_pictures
from unswayed.files.locks import alone
from unswayed.files.whole import make_folder, read_json, write_json
from unswayed.jobs.monitor import Monitor, View
from unswayed.labels import LabelSpace
from unswayed.models.classifier import Classifier
from unswayed.models.label_mapping import map_labels
from unswayed.models.opening import open_model
from unswayed.models.repaired import CARD, for_classes, save_repaired
from unswayed.models.training_photographs import keys_of
from unswayed.sources import Source, open_source
from unswayed.sources.source import same_files
from unswayed.specs import slug_of

from .family import check_trainable
from .fine_tuning import Now, fine_tune
from .measuring import Answers, Verdict, before_and_after, folder_rows, read_answers, verdict
from .photographs import Photograph, Photographs, listed, split
from .settings import ARMS, RepairSettings

RECIPE = "original,background-random,size-0.05,position,direction"
RESULT, LOCK = "repair.json", ".lock"


@dataclass(frozen=True, eq=False)
class Repair:
    """What a repair came to: the folder, the table of before and after, the verdict and its reason, the counts."""

    folder: Path
    rows: list[dict[str, Any]]
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
    renderer: RendererName = "paste",
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
    say = note or (lambda text: None)
    scenes = open_source(source) if isinstance(source, str) else source
    base = open_model(model, device=device) if isinstance(model, str) else model
    check_trainable(base, settings)
    started = for_classes(base, _known(scenes), settings.seed) if new_head else base
    measured = [spec for spec in (benchmark, *tests) if spec is not None]
    data = _Data.of(scenes, started, also, settings, new_head, benchmark is None, list(map(str, measured)))
    if data.left_out:
        say(f"{data.left_out} photographs are not trained on, since they are also measured on")
    folder = make_folder(out)
    busy = UserError(f"another process repairs a model in {folder}", run="the same command again when it has ended")
    with alone(folder / LOCK, busy):
        plans = {"train": data.train, "validation": data.validation}
        size = max(started.transform.resize, started.transform.crop)
        sets = {
            name: Photographs(rows, size, settings.fill, Path(cache or folder / "removed"))
            for name, rows in plans.items()
        }
        for name, photographs in sets.items():
            if len(photographs):
                say(f"reading {len(photographs)} photographs ({name})")
                with Monitor(folder, f"reading ({name})", "photographs", show) as monitor:
                    photographs.read(str(started.device), workers, monitor.count)
                if photographs.fill != settings.fill:
                    beyond = f"with {settings.fill} they need more than 4 GiB of memory"
                    say(f"the fill is {photographs.fill} ({name}): {beyond}")
        fills = {name: one.fill for name, one in sets.items()}
        keys = keys_of(row.entry.image for one in sets.values() for row in one.rows)
        finished: dict[str, Classifier] = {}
        steps = 0
        for arm in ARMS:
            say(f"fine-tuning: {arm}")
            left = len(ARMS) - len(finished)
            with Monitor(folder, "fine-tuning", "steps", show) as monitor:
                tuned = fine_tune(
                    started,
                    data.members,
                    sets["train"],
                    sets["validation"],
                    settings,
                    arm,
                    folder / "state" / arm,
                    partial(_count_step, monitor, steps, left),
                )
            steps += tuned.history["steps"]
            place = folder if arm == "repaired" else folder / arm
            name = f"repaired:{place}"
            made = replace(started, module=tuned.module, name=name, fixed_hash=None, precision=base.precision)
            training = {
                "arm": arm,
                "source": scenes.spec,
                "photographs": data.counts(sets),
                "fill": fills,
                "settings": settings.to_json(),
                "history": tuned.history,
            }
            save_repaired(place, made, base, training, keys)
            finished[arm] = made
        if onnx:
            from .onnx_export import export_onnx

            export_onnx(finished["repaired"], folder / "model.onnx")
        warnings = [f"{len(one.unusable)} photographs cannot be read" for one in sets.values() if one.unusable]
        bench = (
            Path(benchmark)
            if benchmark is not None
            else _build(folder, scenes, data, recipe, renderer, device, workers, say, show)
        )
        models = {"before": base, **finished} if not new_head else finished
        say("measuring")
        measure = partial(_answers, models=models, workers=workers, warnings=warnings, show=show)
        predictions = folder / "predictions"
        measured_by = measure(str(bench), folder=predictions)
        rows = before_and_after(measured_by, read_facts(predictions, models=[one.name for one in models.values()]))
        for spec in tests:
            answers = measure(spec, folder=predictions / slug_of(spec))
            rows += folder_rows(spec, answers)
        judged, reason = verdict(rows)
        counts = data.counts(sets)
        result = {
            "model": base.name,
            "new_head": new_head,
            "source": scenes.spec,
            "benchmark": str(bench),
            "verdict": judged,
            "reason": reason,
            "photographs": counts,
            "fill": fills,
            "settings": settings.to_json(),
            "rows": rows,
        }
        write_json(folder / RESULT, result)
        return Repair(folder, rows, judged, reason, counts, warnings)


def _count_step(monitor: Monitor, before: int, arms: int, now: Now) -> None:
    """Count the steps of both arms; before: those of the arms that are finished; arms: how many are not."""
    monitor.count(before + now.step, before + arms * now.steps, note=f"{now.arm}, loss {now.loss:.3f}")


@dataclass(frozen=True, eq=False)
class _Data:
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

    @staticmethod
    def of(
        scenes: Source,
        model: Classifier,
        also: str | Source | None,
        settings: RepairSettings,
        new_head: bool,
        measures: bool,
        others: Sequence[str],
    ) -> _Data:
        members = _members(model, scenes, new_head)
        rows = listed(scenes, lambda label: label)
        if not rows:
            raise UserError(f"no photograph of '{scenes.spec}' has a label", allowed="a source with labels")
        total = len(rows)
        measured = [path for spec in others for path in open_pictures(spec).photographs]
        rows = _without(rows, measured)
        if not rows:
            raise _nothing_left(scenes, total)
        labels = np.array([row.target for row in rows])
        # Only photographs with masks can be edited, so only they are held out to be measured on.
        masked = np.array([row.masked for row in rows])
        if not masked.any():
            raise UserError(
                f"no photograph of '{scenes.spec}' has a mask, so nothing can be edited",
                run="unswayed masks FOLDER -o MASKS",
            )
        held = np.flatnonzero(masked)
        shares = (settings.held_out if measures else 0.0, settings.validation)
        test, validation, rest = (held[part] for part in split(labels[held], shares, settings.seed))
        if measures and not len(test):
            raise UserError(
                f"no photograph of '{scenes.spec}' is left to be measured on",
                allowed="a larger --held-out, more photographs of a class, or --benchmark BENCH",
            )
        train = np.sort(np.concatenate([rest, np.flatnonzero(~masked)]))
        more: tuple[Photograph, ...] = ()
        if also is not None:
            other = open_source(also) if isinstance(also, str) else also
            offset = len(members)
            members = (*members, *_members(model, other, new_head))
            more = tuple(replace(row, masked=False) for row in listed(other, lambda label: offset + label))
        held_out = [*measured, *(rows[place].entry.image for place in test)]
        trained, chosen = (_without([rows[place] for place in places], held_out) for places in (train, validation))
        kept = _without(more, held_out)
        if not trained + kept:
            raise _nothing_left(scenes, total)
        alone = total - len(trained) - len(chosen)
        return _Data(
            trained + kept,
            chosen,
            tuple(rows[place].entry.id for place in test),
            members,
            alone,
            alone - len(test) + len(more) - len(kept),
        )

    def counts(self, sets: dict[str, Photographs]) -> dict[str, int]:
        masked = int(sets["train"].masked.sum())
        return {
            "train": len(sets["train"]),
            "train_with_mask": masked,
            "train_without_mask": len(sets["train"]) - masked,
            "validation": len(sets["validation"]),
            "held_out": self.held_out,
            "unusable": sum(len(one.unusable) for one in sets.values()),
        }


def _without(rows: Sequence[Photograph], measured: Sequence[str]) -> tuple[Photograph, ...]:
    """The photographs whose files have another content than all that are measured on."""
    known = same_files((row.entry.image for row in rows), measured)
    return tuple(row for row in rows if row.entry.image not in known)


def _nothing_left(scenes: Source, total: int) -> UserError:
    return UserError(
        f"all {total} photographs of '{scenes.spec}' are also measured on, so none is left to be trained on",
        allowed="a --benchmark and --test folders of other photographs; without --benchmark some of these are held out",
    )


def _known(scenes: Source) -> LabelSpace:
    if not len(scenes.labels):
        raise UserError(
            f"the photographs of '{scenes.spec}' have no labels", allowed="class folders, or a table of labels"
        )
    return scenes.labels


def _members(model: Classifier, scenes: Source, new_head: bool) -> tuple[tuple[int, ...], ...]:
    needed = {entry.label for entry in scenes.entries if entry.label is not None}
    try:
        return map_labels(model.labels, _known(scenes), needed).members
    except UserError as error:
        if new_head:
            raise
        raise UserError(
            error.given,
            allowed="a model whose classes have the source's names or WNIDs, or MODEL?labels=FILE with the names in "
            "the order of its outputs; or --new-head, which trains a new classification layer",
        ) from None


def _build(
    folder: Path,
    scenes: Source,
    data: _Data,
    recipe: str,
    renderer: RendererName,
    device: str | None,
    workers: int | None,
    say: Callable[[str], None],
    show: Callable[[View], None] | None,
) -> Path:
    from unswayed.benchmark.building import build
    from unswayed.benchmark.plan import BuildSettings

    wanted = set(data.test)
    held = replace(scenes, entries=tuple(entry for entry in scenes.entries if entry.id in wanted))
    say(f"building a benchmark of {len(held)} photographs that were held out")
    settings = BuildSettings(recipe=recipe, renderer=renderer, device=device, workers=workers)
    build(held, folder / "benchmark", settings, show=show)
    return folder / "benchmark"


def _answers(
    pictures: str,
    *,
    models: dict[str, Classifier],
    folder: Path,
    workers: int | None,
    warnings: list[str],
    show: Callable[[View], None] | None,
) -> dict[str, Answers]:
    from unswayed.evaluation.evaluation import run_evaluation
    from unswayed.evaluation.settings import EvaluateSettings

    done = run_evaluation(pictures, list(models.values()), folder, EvaluateSettings(workers=workers), show=show)
    if done.failed:
        raise UserError("\n".join(f"{name} could not be measured: {reason}" for name, reason in done.failed.items()))
    warnings += [line for lines in done.warnings.values() for line in lines]
    return {arm: read_answers(folder / f"{model.slug}.parquet") for arm, model in models.items()}


def read_result(folder: str | Path) -> dict[str, Any]:
    """What `repair.json` of a folder says."""
    path = Path(folder) / RESULT
    if not path.is_file():
        if (Path(folder) / CARD).is_file():
            raise UserError(f"{folder} holds a model but no {RESULT}: the repair was not finished", run="it again")
        raise UserError(f"{folder} holds no repair", run=f"unswayed repair SOURCE -m MODEL -o {folder}")
    result: dict[str, Any] = read_json(path)
    return result
