"""Heat maps of the gallery's flips: each model opened once, its answers explained on both pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unfazed.errors import UserError
from unfazed.labels import LabelSpace

from .figures_sensitivity import overlay
from .findings import Findings
from .flips import Flip
from .gallery_pictures import Album

Pair = tuple[np.ndarray, np.ndarray]


def heat_maps_of_flips(
    findings: Findings, album: Album, flips: Sequence[Flip], progress: Callable[[], None] | None = None
) -> tuple[dict[Flip, Pair], list[str]]:
    """The photograph and the edited picture of each flip under the heat map of the model's answer to it, and notes.

    A model that cannot be opened, or whose weights are no longer those that were evaluated, has none: a note says so.
    """
    found: dict[Flip, Pair] = {}
    notes: list[str] = []
    for model in dict.fromkeys(flip.model for flip in flips):
        chosen = [flip for flip in flips if flip.model == model]
        try:
            found |= _of_model(findings, album, model, chosen)
        except Exception as error:  # whatever a third party's model does, the report goes on without its maps
            reason = error.given if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            notes.append(f"No heat maps for {model}: {reason}")
        for _ in chosen:
            if progress is not None:
                progress()
    return found, notes


def _of_model(findings: Findings, album: Album, name: str, flips: Sequence[Flip]) -> dict[Flip, Pair]:
    from unfazed.models import open_model
    from unfazed.models.label_mapping import map_labels
    from unfazed.probes.alignment import Looked, look
    from unfazed.probes.saliency import explainer

    card: Any = findings.facts.cards.get(name, {})
    labels = LabelSpace.from_json(card["labels"]) if "labels" in card else None
    model = open_model(name, labels=labels)
    if card.get("weights_sha256") not in (None, model.weights_hash):
        raise UserError("its weights are not those that were evaluated")
    space = labels or model.labels
    mapping = map_labels(model.labels, space, {flip.label for flip in flips})
    found: dict[Flip, Pair] = {}
    photographs: dict[str, np.ndarray] = {}
    with explainer(model) as explain:

        def explained(flip: Flip, edit: str, picture: np.ndarray) -> np.ndarray:
            whole = np.ones(picture.shape[:2], np.float32)
            _, heat = look(model, Looked(flip.source_id, edit, flip.label, picture, whole, False), mapping, explain)
            return overlay(picture, heat)

        for flip in flips:
            before, after = album.picture(f"{flip.source_id}/original/0"), album.picture(flip.sample_id)
            if before is None or after is None:
                continue
            if flip.source_id not in photographs:
                photographs[flip.source_id] = explained(flip, "original", before)
            found[flip] = photographs[flip.source_id], explained(flip, flip.edit, after)
    return found
