"""The files that a visitor downloads: the edited picture, its mask, and the record for `unfazed edit --replay`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from unfazed.benchmark.photograph import Edited, write_edited

from .photographs import Photograph
from .preview import portable

FOLDER = "UNFAZED_APP_FILES"
Files = tuple[str, str, str]


def write_files(edited: Edited, photograph: Photograph, picture: str | None = None) -> Files:
    """Write ID-edited.png, .mask.png and .json to a folder named after their content; return the paths."""
    record = portable(edited.record, photograph, picture)
    folder = Path(os.environ[FOLDER]) / "made" / record["picture_sha256"][:16]
    out = folder / f"{photograph.id}-edited.png"
    written = write_edited(replace(edited, record=record), out)
    return str(written[0]), str(written[1]), str(written[2])
