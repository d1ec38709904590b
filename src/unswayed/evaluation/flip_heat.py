"""Heat maps of chosen predictions: each model is opened once, for photographs and their edits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from unswayed.errors import UserError
from unswayed.labels import LabelSpace
from unswayed.models import open_model
from unswayed.models.label_mapping import map_labels

from .alignment import MaskedPicture, answer_and_heat
from .evaluator import is_evaluated
from .saliency import explainer


class Pair(Protocol):
    """A photograph and its edit, for the explanation of one model: (H, W, 3) uint8 each, and the true label."""

    model: str
    source_id: str
    edit: str
    label: int
    before: np.ndarray
    after: np.ndarray


Maps = tuple[np.ndarray, np.ndarray]


def explain_pairs(
    pairs: Sequence[Pair],
    cards: Mapping[str, Mapping[str, Any]],
    progress: Callable[[], None] = lambda: None,
    trust: bool = False,
) -> tuple[list[Maps | None], list[str]]:
    """The heat maps (H, W) of both pictures of every pair, in order, and notes.

    cards: by model, as `evaluate` wrote them. A model that cannot be opened, or whose weights differ from those
    that were evaluated, has no maps, but a note. trust: also open models that can run code or use the network,
    although their names come from the predictions.
    """
    found: list[Maps | None] = [None] * len(pairs)
    notes: list[str] = []
    for model in dict.fromkeys(pair.model for pair in pairs):
        places = [place for place, pair in enumerate(pairs) if pair.model == model]
        try:
            maps = _of_model(model, [pairs[place] for place in places], cards.get(model, {}), trust)
            for place, both in zip(places, maps, strict=True):
                found[place] = both
        except Exception as error:  # any error of a third-party model: the report is made without its maps
            reason = error.given if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            notes.append(f"No heat maps for {model}: {reason}")
        for _ in places:
            progress()
    return found, notes


def _of_model(name: str, pairs: Sequence[Pair], card: Mapping[str, Any], trust: bool) -> list[Maps]:
    labels = LabelSpace.from_json(card["labels"]) if "labels" in card else None
    model = open_model(str(card.get("spec", name)), labels=labels, trust=trust)
    if not is_evaluated(model, card):
        raise UserError("its weights or its code differ from those that were evaluated")
    mapping = map_labels(model.labels, labels or model.labels, {pair.label for pair in pairs})
    photographs: dict[str, np.ndarray] = {}
    found: list[Maps] = []
    with explainer(model) as explain:

        def explained(pair: Pair, edit: str, picture: np.ndarray) -> np.ndarray:
            whole = np.ones(picture.shape[:2], np.float32)
            return answer_and_heat(
                model, MaskedPicture(pair.source_id, edit, pair.label, picture, whole, False), mapping, explain
            )[1]

        for pair in pairs:
            if pair.source_id not in photographs:
                photographs[pair.source_id] = explained(pair, "original", pair.before)
            found.append((photographs[pair.source_id], explained(pair, pair.edit, pair.after)))
    return found
