"""One picture to be classified."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Picture:
    """One picture to be classified.

    path and mask are files, mask None where nothing says what the object is; picture: a short hash that tells it from
    any other picture.
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
