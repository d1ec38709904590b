"""The rows of a gate's checks against a baseline: how much worse a model is than an earlier one, for each edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unswayed.analyses.statistics.intervals import Settings
from unswayed.evaluation.facts import ORIGINAL, SOURCE, Facts
from unswayed.evaluation.model_cards import chance_in
from unswayed.evaluation.predictions import Overlap, Predictions, each_model

from .compare import compared, read_pair
from .gate_rows import PASS, check_row, judge, not_measured, out_of_reach, withheld
from .outcomes import Outcomes
from .rules import Rules

SAME_WEIGHTS = "the same weights give the same predictions"


def baseline_rows(
    predictions: Predictions,
    model: str,
    other: str,
    rules: Rules,
    facts: Facts,
    old_card: Mapping[str, Any],
    settings: Settings,
    overlap: Overlap | None,
) -> list[dict[str, Any]]:
    """One row per edit of the baseline: how much worse the model is on it, or that it was not measured.

    overlap: what both have in common, if only that is compared.
    """
    assert rules.baseline is not None
    candidate, baseline = read_pair(predictions, model, rules.baseline, other, overlap is not None)
    card = facts.cards.get(model, {})
    networks = [_network(one) for one in (card, old_card)]
    partial = overlap is not None and not overlap.complete
    # The same network with the same answers needs no test. Where pictures fell away, the rest decides by its interval.
    known = card.get("weights_sha256") is not None and networks[0] == networks[1]
    unchanged = known and not partial and _same(candidate, baseline)
    rows = []
    found = compared(candidate, baseline, facts, settings, "drop" if rules.measure == "drop" else "accuracy")
    lost = _edits_of(rules.baseline, other) - {row["edit"] for row in found} - {SOURCE}
    measure = "accuracy lost" if rules.measure == "accuracy" else "drop gained"
    for edit in facts.sorted(lost - ({ORIGINAL} if rules.measure == "drop" else set())):
        reason = "the baseline has predictions for it, but these predictions have none for the same pictures"
        rows.append(not_measured(model, edit, measure, rules.margin, reason))
    for row in found:
        if rules.measure == "accuracy":
            value, low, high = (-row[name] for name in ("accuracy_difference", "accuracy_high", "accuracy_low"))
        elif row["edit"] == ORIGINAL:
            continue
        else:
            value, low, high = (row[name] for name in ("drop_difference", "low", "high"))
        result = judge(low, high, rules.margin)
        entry = {"model": model, "edit": row["edit"], "n": row["n"]}
        out = check_row(entry, measure, value, low, high, rules.margin, PASS if unchanged else result, "at most")
        if unchanged:
            out["reason"] = SAME_WEIGHTS
        elif rules.measure == "drop":
            original = row["first_accuracy"] + row["first_drop"] / 100
            out = withheld(out, out_of_reach(original, chance_in(card), rules.margin))
        if overlap is not None and partial:
            out["reason"] = f"{out['reason']} ({overlap.brief})"
        rows.append(out)
    return rows


def _network(card: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a card says about what is computed: the weights alone do not tell `lite:0+flip` from `lite:0`."""
    origin = card.get("origin") or {}
    function = str(origin.get("function", "")).rpartition(":")[2]
    wrappers = str(card.get("spec") or card.get("model", "")).split("+")[1:]
    return card.get("weights_sha256"), origin.get("code_sha256"), function, wrappers, card.get("transform")


def _same(one: Outcomes, two: Outcomes) -> bool:
    """Return whether two models have the same answers to the same pictures."""
    return (one.images, one.edits) == (two.images, two.edits) and np.array_equal(one.share, two.share, equal_nan=True)


def _edits_of(predictions: Predictions, model: str) -> set[str]:
    (_, rows), *_ = each_model(predictions, ("model", "edit"), models=[model])
    return set(rows["edit"])
