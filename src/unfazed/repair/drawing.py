"""A mixture of edits from a model's measured drops: more of what hurts it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from unfazed.predictions.frames import missing_model
from unfazed.transforms.mixture import KINDS, EditMixture

FLOOR = 0.1  # of the largest weight: an edit that costs nothing is still drawn now and then


def mixture_from(predictions: str | Path, model: str, mixture: EditMixture) -> EditMixture:
    """`mixture` with each edit's weight in proportion to the largest drop of `model` under edits of that attribute."""
    from unfazed.analyses.drops.drop import dropped_accuracy

    table = dropped_accuracy(predictions)
    models = table["model"].unique(maintain_order=True).to_list()
    if model not in models and len(models) > 1:
        raise missing_model(model, models, predictions)
    rows = table.filter(model=model if model in models else models[0], kind="edit")
    drops = dict(zip(rows["edit"].to_list(), rows["drop"].to_list(), strict=True))
    return replace(mixture, weights=weights_of(drops))


def weights_of(drops: dict[str, float]) -> dict[str, float]:
    """A weight for each edit to train with, from drops in points by the names of a benchmark's edits.

    >>> weights_of({"size-0.05": 20.0, "direction": 5.0})["direction"]
    0.25
    """
    worst = dict.fromkeys(KINDS, 0.0)
    for name, drop in drops.items():
        words = name.replace("colour", "color").replace("+", "-").split("-")
        for kind in KINDS:
            if kind in words:
                worst[kind] = max(worst[kind], drop or 0.0)
    largest = max(worst.values())
    if largest <= 0:
        return dict.fromkeys(KINDS, 1.0)
    return {kind: max(value / largest, FLOOR) for kind, value in worst.items()}
