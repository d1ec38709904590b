"""`enhance`: the enhancement study of ImageNet-E (section 5.2) for one model: what helps without training it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unswayed.choices import one_line, takes
from unswayed.errors import UserError
from unswayed.evaluation.evaluation import run_evaluation
from unswayed.evaluation.facts import averaged_edits, read_facts
from unswayed.evaluation.settings import EvaluateSettings
from unswayed.files.whole import write_json
from unswayed.models.opening import WRAPPERS
from unswayed.specs import slug_of, split_alias

from .measuring import AVERAGE, CHANGE, ORIGINAL, Row, before_and_after, read_answers
from .settings import EnhanceSettings


@one_line
@dataclass(frozen=True, eq=False)
class Enhancement:
    """What the study found: one row for each way, more rows by edit, and the ways that do not suit the model."""

    folder: Path
    rows: list[Row]
    by_edit: list[Row]
    skipped: dict[str, str]

    def __repr__(self) -> str:
        return f"Enhancement({str(self.folder)!r}: {len(self.rows)} ways, {len(self.skipped)} skipped)"


@takes(EnhanceSettings)
def enhance(
    benchmark: str | Path,
    model: str,
    output: str | Path,
    settings: EnhanceSettings,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Enhancement:
    """Measure a model as it is and in every way that may help it, on the same pictures.

    The fields of settings are also keywords. Each row holds the accuracy on the originals, the average drop, and the
    change of both against the plain model with a paired 95 % interval.
    """
    alias, written = split_alias(model)
    plain = alias or model
    ways = {"plain": model}
    for wrapper in WRAPPERS:
        ways[wrapper] = f"{model}+{wrapper}" if alias is None else f"{alias}-{wrapper}={written}+{wrapper}"
    ways |= {other: other for other in settings.others}
    chosen = {name: getattr(settings, name) for name in ("transform", "device", "batch_size", "workers")}
    # By name, so that they run in a worker process: a picture that ends it is left out alone.
    done = run_evaluation(benchmark, list(ways.values()), output, EvaluateSettings(**chosen), progress=progress)
    names = {way: split_alias(name)[0] or name for way, name in ways.items()}
    if plain in done.failed:
        raise UserError(f"{plain} could not be measured: {done.failed[plain]}")
    skipped = {way: done.failed[name] for way, name in names.items() if name in done.failed}
    measured = {way: done.stored_as.get(name, name) for way, name in names.items() if name not in done.failed}
    answers = {way: read_answers(Path(output) / f"{slug_of(name)}.parquet") for way, name in measured.items()}
    facts = read_facts(output, models=list(measured.values()))
    averaged = averaged_edits([edit for edit in answers["plain"].right if edit != ORIGINAL], facts)
    rows: list[Row] = []
    by_edit: list[Row] = []
    columns = {"measure": "measure", "pictures": "pictures", "n": "n", "plain": "control", "enhanced": "repaired"}
    for way in answers:
        changes = dict.fromkeys(CHANGE) if way == "plain" else {}
        compared = [
            {**{name: row[key] for name, key in columns.items()}, **{name: row[name] for name in CHANGE}, **changes}
            for row in before_and_after({"control": answers["plain"], "repaired": answers[way]}, averaged)
        ]
        by_edit += [{"way": way, **row} for row in compared]
        rows.append(_summary(way, compared))
    result = {"model": plain, "benchmark": str(benchmark), "rows": rows, "by_edit": by_edit, "skipped": skipped}
    write_json(Path(output) / "enhance" / "enhance.json", result)
    return Enhancement(Path(output), rows, by_edit, skipped)


def _summary(way: str, rows: Sequence[Row]) -> Row:
    """One row: the originals and the average drop, with what changed against the plain model."""
    by_measure = {(row["measure"], row["pictures"]): row for row in rows}
    original, drop = by_measure["accuracy", ORIGINAL], by_measure.get(("drop", AVERAGE), {})
    row = {"way": way, "n": original["n"], "accuracy": original["enhanced"]}
    row |= {f"accuracy_{name}": original[name] for name in CHANGE}
    return row | {"average_drop": drop.get("enhanced")} | {f"drop_{name}": drop.get(name) for name in CHANGE}
