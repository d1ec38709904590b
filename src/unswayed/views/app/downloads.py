"""The files that a visitor downloads: the edited picture, its mask, the record for a replay, and filmstrips."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from unswayed.evaluation.film import gif
from unswayed.evaluation.smallest import Strip
from unswayed.files.whole import make_folder, write_bytes
from unswayed.rendering.photograph import Edited, write_edited
from unswayed.sources.source import slug

from .photographs import Photograph
from .preview import portable

FOLDER = "UNSWAYED_APP_FILES"
Files = tuple[str, str, str]


def write_gif(strip: Strip, photograph: Photograph) -> str:
    """Write a filmstrip as ID-CHANGE.gif to a folder named after its content; return the path."""
    data = gif(strip)
    folder = make_folder(Path(os.environ[FOLDER]) / "made" / hashlib.sha256(data).hexdigest()[:16])
    path = folder / f"{photograph.id}-{slug(strip.direction.name)}.gif"
    write_bytes(path, data)
    return str(path)


def write_files(edited: Edited, photograph: Photograph, picture: str | None = None) -> Files:
    """Write ID-edited.png, .mask.png and .json to a folder named after their content; return the paths."""
    record = portable(edited.record, photograph, picture)
    folder = Path(os.environ[FOLDER]) / "made" / record["picture_sha256"][:16]
    out = folder / f"{photograph.id}-edited.png"
    written = write_edited(replace(edited, record=record), out)
    return str(written[0]), str(written[1]), str(written[2])
