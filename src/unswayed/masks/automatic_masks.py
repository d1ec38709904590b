"""Masks that a segmenter made: the note about each in its scene, and how many of a benchmark's masks are automatic."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from .mask_confidence import LOOK_BELOW

MADE = "mask made by "
_CONFIDENCE = re.compile(r" with confidence ([\d.]+)$")


def made_note(by: str, confidence: float) -> str:
    """The note of a scene whose mask is automatic.

    >>> made_note("grabcut from the center prior", 0.62514)
    'mask made by grabcut from the center prior with confidence 0.6251'
    """
    return f"{MADE}{by} with confidence {confidence:.4f}"


def automatic(notes: Mapping[str, Iterable[str]]) -> dict[str, float | None]:
    """The confidence in [0, 1] of each automatic mask, by scene; None where the note has none (earlier versions).

    notes: the notes of all scenes, by id.
    """
    made = {scene_id: text for scene_id, texts in notes.items() for text in texts if text.startswith(MADE)}
    found = {scene_id: _CONFIDENCE.search(text) for scene_id, text in made.items()}
    return {scene_id: None if match is None else float(match[1]) for scene_id, match in found.items()}


def makers(notes: Mapping[str, Iterable[str]]) -> list[str]:
    """The names of the segmenters that made masks, sorted.

    >>> makers({"a": ["mask made by sam2 from the center prior with confidence 0.9000"], "b": []})
    ['sam2']
    """
    made = {text.removeprefix(MADE) for texts in notes.values() for text in texts if text.startswith(MADE)}
    return sorted({re.split(r" from | with ", text)[0] for text in made})


def mask_record(notes: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """The entry `masks` of a benchmark's card: how many masks are automatic, and how far they can be trusted.

    below_limit: how many have a confidence below LOOK_BELOW, so that a person should look at them.

    >>> mask_record({"a": ["mask made by `unswayed masks` with confidence 0.5000"], "b": []})
    {'automatic': 1, 'of': 2, 'median_confidence': 0.5, 'below_limit': 1}
    """
    found = automatic(notes)
    sure = [one for one in found.values() if one is not None]
    return {
        "automatic": len(found),
        "of": len(notes),
        "median_confidence": round(median(sure), 4) if sure else None,
        "below_limit": sum(one < LOOK_BELOW for one in sure),
    }
