"""Heat maps on the pictures of the gallery's flips, made by a function that the caller passes in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unswayed.analyses.flips import Flip

from .figures_sensitivity import overlay
from .findings import Findings
from .gallery_pictures import Album

if TYPE_CHECKING:
    from unswayed.evaluation.flip_heat import Maps, Pair

# Such as `probes.flip_heat.explain_pairs`: (pairs, cards by model, progress) -> maps in order, notes.
Explain = Callable[
    ["Sequence[Pair]", Mapping[str, Mapping[str, Any]], Callable[[], None]], "tuple[list[Maps | None], list[str]]"
]


def heat_maps_of_flips(
    findings: Findings, album: Album, flips: Sequence[Flip], explain: Explain, progress: Callable[[], None]
) -> tuple[dict[Flip, tuple[np.ndarray, np.ndarray]], list[str]]:
    """Return the photograph and the edited picture of each flip with the heat maps of the predictions, and notes."""
    from unswayed.evaluation.flip_heat import Pair

    pairs: dict[Flip, Pair] = {}
    for flip in flips:
        before, after = album.picture(f"{flip.source_id}/original/0"), album.picture(flip.sample_id)
        if before is not None and after is not None:
            pairs[flip] = Pair(flip.model, flip.source_id, flip.edit, flip.label, before, after)
    maps, notes = explain(list(pairs.values()), findings.facts.cards, progress)
    found = {}
    for (flip, pair), both in zip(pairs.items(), maps, strict=True):
        if both is not None:
            found[flip] = overlay(pair.before, both[0]), overlay(pair.after, both[1])
    return found, notes
