"""The other objects of a scene, beside the edited one: their classes, boxes and masks in each picture, as JSON text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from unswayed.errors import BadPicture, UserError
from unswayed.files.records import checked_rows
from unswayed.files.whole import parse_json

from .coco import run_lengths

Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels, from outer edge to outer edge


@dataclass(frozen=True)
class OtherObject:
    """An object that is not the edited one: its class, None if unknown, the box around its visible pixels, and their
    mask as COCO's compressed run lengths."""

    label: int | None
    box: Box
    mask: str


def box_of(mask: np.ndarray) -> Box | None:
    """The box (left, top, right, bottom) around a mask (H, W) bool, from outer edge to outer edge; None if empty.

    >>> box_of(np.array([[0, 0, 0], [0, 1, 1]], bool))
    (1.0, 1.0, 3.0, 2.0)
    """
    down, across = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not len(down):
        return None
    return float(across[0]), float(down[0]), float(across[-1] + 1), float(down[-1] + 1)


def objects_text(others: Iterable[tuple[int | None, np.ndarray]]) -> str | None:
    """The other objects, each a class and a mask (H, W) bool, as JSON text; those of which nothing is visible are left
    out, and None if that leaves none."""
    records = [
        {"label": label, "box": box, "mask": run_lengths(mask)}
        for label, mask in others
        if (box := box_of(mask)) is not None
    ]
    return json.dumps(records) if records else None


def read_objects(text: str | None, where: str) -> tuple[OtherObject, ...]:
    """The other objects in the text of a manifest; `where` names it in an error."""
    try:
        return tuple(checked_rows(OtherObject, parse_json(text, where), where)) if text else ()
    except (UserError, TypeError) as error:
        raise BadPicture(f"{where}: the other objects cannot be read: {error}") from None
