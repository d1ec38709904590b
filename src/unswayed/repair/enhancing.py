"""The enhancement study of ImageNet-E (section 5.2) for one model: what helps without training it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unswayed.errors import UserError
from unswayed.evaluation.evaluation import run_evaluation
from unswayed.evaluation.facts import AVERAGE, ORIGINAL, Facts, read_facts
from unswayed.evaluation.settings import EvaluateSettings
from unswayed.files.whole import write_json
from unswayed.models.classifier import Classifier
from unswayed.models.opening import WRAPPERS, open_model

from .measuring import Answers, before_and_after, read_answers

RESULT = "enhance.json"
CHANGE = ("difference", "low", "high")


@dataclass(frozen=True, eq=False)
class Enhanced:
    """What the study found: one row for each way, more rows by edit, and the ways that do not suit the model."""

    folder: Path
    rows: list[dict[str, Any]]
    by_edit: list[dict[str, Any]]
    skipped: dict[str, str]


def enhance(
    benchmark: str | Path,
    model: str,
    output: str | Path,
    *,
    others: Sequence[str] = (),
    device: str | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Enhanced:
    """Measure a model as it is and in every way that may help it, on the same pictures.

    others: further models to compare with it, such as the trained hybrid. Each row holds the accuracy on the
    originals, the average drop, and the change of both against the plain model with a paired 95 % interval.
    """
    plain = open_model(model, device=device)
    ways: dict[str, Classifier] = {"plain": plain}
    skipped: dict[str, str] = {}
    for wrapper in WRAPPERS:
        try:
            ways[wrapper] = open_model(f"{model}+{wrapper}", device=device)
        except UserError as error:
            skipped[wrapper] = error.given
    ways |= {other: open_model(other, device=device) for other in others}
    done = run_evaluation(
        benchmark,
        list(ways.values()),
        output,
        EvaluateSettings(device=device, batch_size=batch_size, workers=workers),
        progress=progress,
    )
    if plain.name in done.failed:
        raise UserError(f"{plain.name} could not be measured: {done.failed[plain.name]}")
    skipped |= {way: done.failed[one.name] for way, one in ways.items() if one.name in done.failed}
    answers = {
        way: read_answers(Path(output) / f"{one.slug}.parquet")
        for way, one in ways.items()
        if one.name not in done.failed
    }
    facts = read_facts(output, models=[ways[way].name for way in answers])
    rows: list[dict[str, Any]] = []
    by_edit: list[dict[str, Any]] = []
    for way, found in answers.items():
        compared = _against_plain(answers["plain"], found, facts)
        if way == "plain":
            compared = [{**row, **dict.fromkeys(CHANGE)} for row in compared]
        by_edit += [{"way": way, **row} for row in compared]
        rows.append(_summary(way, compared))
    result = {"model": plain.name, "benchmark": str(benchmark), "rows": rows, "by_edit": by_edit, "skipped": skipped}
    write_json(Path(output) / "enhance" / RESULT, result)
    return Enhanced(Path(output), rows, by_edit, skipped)


def _against_plain(plain: Answers, other: Answers, facts: Facts) -> list[dict[str, Any]]:
    rows = before_and_after({"control": plain, "repaired": other}, facts)
    names = {"control": "plain", "repaired": "enhanced"}
    columns = ("measure", "pictures", "n", *names, *CHANGE)
    return [{names.get(key, key): row[key] for key in columns} for row in rows]


def _summary(way: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One row: the originals and the average drop, with what changed against the plain model."""
    found = {(row["measure"], row["pictures"]): row for row in rows}
    original = found["accuracy", ORIGINAL]
    drop = found.get(("drop", AVERAGE))
    row = {"way": way, "n": original["n"], "accuracy": original["enhanced"]}
    row |= {f"accuracy_{name}": original[name] for name in CHANGE}
    row["average_drop"] = None if drop is None else drop["enhanced"]
    row |= {f"drop_{name}": None if drop is None else drop[name] for name in CHANGE}
    return row
