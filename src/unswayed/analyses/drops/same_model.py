"""One model in two forms, such as before and after quantization: did the conversion cost robustness?

Every edit is tested for a difference (Holm's correction over the table) and for equivalence: two one-sided tests, which
show equivalence where the interval of level 1 - 2 x 5 % lies within the margin. That all edits are equivalent needs no
correction, since every one of them must be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from unswayed.analyses.columns import schema
from unswayed.analyses.statistics.power import photographs_to_tell
from unswayed.errors import UserError
from unswayed.evaluation.facts import AVERAGE, ORIGINAL, SOURCE
from unswayed.evaluation.model_cards import KEYS
from unswayed.evaluation.predictions import Predictions, columns_of, each_model

from .compare import compare

Answer = Literal["unchanged", "equivalent", "worse", "better", "cannot tell"]


@dataclass(frozen=True, eq=False)
class SameModel:
    """The answer in one word and in one sentence, and one row per edit (columns: `same_model`)."""

    answer: Answer
    sentence: str
    table: pl.DataFrame


def same_model(
    predictions: Predictions,
    first: str,
    second: str,
    *,
    other: Predictions | None = None,
    margin: float = 1.0,
    level: float = 0.95,
    common: bool = False,
    resamples: int = 1000,
    seed: int = 0,
) -> SameModel:
    """Whether `second`, a converted form of `first`, is less robust: a paired comparison for each edit.

    margin: the largest change in points that counts as none. Columns of the table: edit, n, first_accuracy,
    second_accuracy in [0, 1], same (the share of pictures on which both forms give the same class), cost, low, high
    (what the second form loses in points: accuracy on the originals, drop on the edits), p_holm, verdict (an `Answer`)
    and more (photographs that would decide).
    """
    if not 0 < margin <= 100:
        raise UserError(f"the margin is {margin:g}", allowed="above 0 and at most 100 points")
    table = compare(
        predictions, first, second, other=other, common=common, level=2 * level - 1, resamples=resamples, seed=seed
    )
    same = _same_classes(predictions, first, predictions if other is None else other, second)
    rows = [_row(row, same, margin, level) for row in table.iter_rows(named=True)]
    answer = _answer(rows)
    made = pl.DataFrame(rows, schema=_SCHEMA, infer_schema_length=None)
    return SameModel(answer, _sentence(answer, rows, first, second, margin), made)


def _row(row: dict[str, Any], same: dict[str, float], margin: float, level: float) -> dict[str, Any]:
    if row["edit"] == ORIGINAL:
        cost, low, high = (row[name] for name in ("accuracy_difference", "accuracy_low", "accuracy_high"))
    else:
        cost, low, high = -row["drop_difference"], -row["high"], -row["low"]
    found = {name: row[name] for name in ("edit", "n", "first_accuracy", "second_accuracy", "p_holm")}
    found |= {"same": same.get(row["edit"]), "cost": cost + 0.0, "low": low + 0.0, "high": high + 0.0, "more": None}
    if found["same"] == 1:
        verdict = "unchanged"
    elif -margin < low and high < margin:
        verdict = "equivalent"
    elif row["p_holm"] is not None and row["p_holm"] < 0.05:
        verdict = "worse" if cost > 0 else "better"
    else:
        verdict = "cannot tell"
        needed = photographs_to_tell(abs(cost), low, high, row["n"], margin, 2 * level - 1)
        found["more"] = None if needed is None else max(needed - row["n"], 1)
    return found | {"verdict": verdict}


def _answer(rows: list[dict[str, Any]]) -> Answer:
    """The answer over all edits: worse if one is worse; else it is told only if every edit is."""
    found = {row["verdict"] for row in rows if row["edit"] != AVERAGE}
    if "worse" in found:
        return "worse"
    if "cannot tell" in found:
        return "cannot tell"
    return "better" if "better" in found else "unchanged" if found == {"unchanged"} else "equivalent"


def _sentence(answer: Answer, rows: list[dict[str, Any]], first: str, second: str, margin: float) -> str:
    edits = [row for row in rows if row["edit"] != AVERAGE]
    if answer == "unchanged":
        return f"No: {second} gives the same class as {first} on every picture, so it costs no robustness here."
    if answer == "equivalent":
        return (
            f"No: {second} is as robust as {first}; on the originals and on every edit the difference is shown to be "
            f"within ±{margin:g} points."
        )
    if answer == "better":
        return f"No: {second} is nowhere worse than {first} by more than {margin:g} points, and {_worst(edits, -1)}."
    if answer == "worse":
        return f"Yes: {second} is less robust than {first}; {_worst(edits, 1)}."
    open_ones = [row for row in edits if row["verdict"] == "cannot tell"]
    known = [row["more"] for row in open_ones]
    more = f"; about {max(known):,} more photographs would decide" if known and None not in known else ""
    names = ", ".join(row["edit"] for row in open_ones[:3]) + (" and others" if len(open_ones) > 3 else "")
    return (
        f"Cannot tell: on {names} the difference between {first} and {second} may be more than ±{margin:g} points"
        f"{more}."
    )


def _worst(edits: list[dict[str, Any]], sign: int) -> str:
    """The edit with the largest change in the direction of `sign`, in words."""
    word = "worse" if sign > 0 else "better"
    chosen = [row for row in edits if row["verdict"] == word]
    row = max(chosen, key=lambda one: sign * one["cost"])
    low, high = sorted((sign * row["low"], sign * row["high"]))
    what = "of accuracy on the originals" if row["edit"] == ORIGINAL else f"on {row['edit']}"
    others = f" ({len(chosen)} of {len(edits)} are {word})" if len(chosen) > 1 else ""
    verb = "loses" if sign > 0 else "gains"
    return f"it {verb} {sign * row['cost']:.1f} points ({low:.1f} to {high:.1f}) {what}{others}"


def _same_classes(one: Predictions, first: str, two: Predictions, second: str) -> dict[str, float]:
    """The share of pictures of each edit, and of all edits, on which both models predict the same class."""
    columns = [*KEYS, "predicted"]
    if any(name not in columns_of(place) for place in (one, two) for name in columns):
        return {}
    [(_, left), *_] = each_model(one, ["model", *columns], models=[first])
    [(_, right), *_] = each_model(two, ["model", *columns], models=[second])
    both = left.join(right, on=list(KEYS), suffix="_other").with_columns(
        same=pl.col("predicted") == pl.col("predicted_other")
    )
    found = dict(both.group_by("edit").agg(pl.col("same").mean()).iter_rows())
    edited = both.filter(~pl.col("edit").is_in([ORIGINAL, SOURCE]))
    return found | ({AVERAGE: float(edited["same"].mean())} if edited.height else {})  # type: ignore[arg-type]


_SCHEMA = schema("edit n first_accuracy second_accuracy same cost low high p_holm verdict more")
