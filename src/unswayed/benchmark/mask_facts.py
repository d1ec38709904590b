"""What a finished build records about its automatic masks: a fact in its card and a contact sheet of the worst."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from unswayed.files.whole import write_bytes
from unswayed.masks.confidence import automatic, mask_record, mask_sheet

from .card import record_facts
from .layout import ORIGINAL_EDIT, WORST_MASKS
from .rows import Row


def record_masks(root: Path, rows: Sequence[Row], notes: Mapping[str, Sequence[str]]) -> None:
    """Write `masks` into the card, and the least trusted automatic masks as a contact sheet if there are any.

    notes: those of each photograph, by id. The sheet shows the framed originals.
    """
    record_facts(root, masks=mask_record(notes))
    confidences = automatic(notes)
    shown = [
        (row.path, root / row.mask_path, confidence)
        for row in rows
        if row.edit == ORIGINAL_EDIT and row.path and row.mask_path
        if (confidence := confidences.get(row.source_id)) is not None
    ]
    if shown:
        write_bytes(root / WORST_MASKS, mask_sheet(root, shown))
