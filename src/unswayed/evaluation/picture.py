"""One picture to be classified."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Picture:
    """One picture to be classified.

    path and mask are files; mask is None if there is none; picture: a short hash that identifies the picture.
    """

    sample_id: str
    source_id: str
    file_name: str
    edit: str
    run: int
    label: int | None
    path: str
    mask: str | None = None
    picture: str | None = None
