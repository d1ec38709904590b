"""A mixture of edits from a model's measured drops: more of what hurts it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unswayed.edits.mixture import KINDS, EditMixture
from unswayed.evaluation.facts import Facts, read_facts
from unswayed.evaluation.predictions import Predictions, missing_model, model_names
from unswayed.files.records import read_object
from unswayed.specs import is_same_model

PROBABILITY = 0.7
FLOOR = 0.1  # of the largest weight: an edit that costs nothing is still drawn now and then


def read_mixture(path: str | Path | None = None, **others: Any) -> EditMixture:
    """The mixture of a JSON file, or the default one; others: fields that replace those of the file.

    Refused: a file that is not JSON, and values that a mixture cannot have.
    """
    given = {} if path is None else read_object(path)
    settings = {"probability": PROBABILITY, **given, **others}
    return EditMixture.from_json(settings, "the mixture of edits" if path is None else str(path))


def mixture_from(predictions: Predictions, model: str, mixture: EditMixture) -> EditMixture:
    """`mixture` with each edit's weight in proportion to the largest drop of `model` under edits of that attribute.

    model: a name in the predictions, or another way to write the same model; any other is refused.
    """
    from unswayed.analyses.drops.drop import dropped_accuracy

    facts = read_facts(predictions)
    names = model_names(predictions)
    stored = {name: str(facts.cards.get(name, {}).get("spec") or name) for name in names}
    same = [name for name, spec in stored.items() if name == model or is_same_model(model, spec)]
    if not same:
        raise missing_model(model, names, predictions)
    rows = dropped_accuracy(predictions, models=same[:1]).filter(kind="edit")
    return replace(mixture, weights=weights_of(dict(zip(rows["edit"], rows["drop"], strict=True)), facts.attributes))


def weights_of(
    drops: Mapping[str, float], attributes: Callable[[str], Iterable[str]] = Facts().attributes
) -> dict[str, float]:
    """A weight for each edit to train with, from drops in points by the names of a benchmark's edits.

    attributes: what an edit of that name changes.

    >>> weights_of({"size-0.05": 20.0, "direction": 5.0})["direction"]
    0.25
    """
    worst = dict.fromkeys(KINDS, 0.0)
    for name, drop in drops.items():
        for kind in attributes(name):
            if kind in worst:
                worst[kind] = max(worst[kind], drop or 0.0)
    largest = max(worst.values())
    if largest <= 0:
        return dict.fromkeys(KINDS, 1.0)
    return {kind: max(value / largest, FLOOR) for kind, value in worst.items()}
