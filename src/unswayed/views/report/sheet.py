"""The contact sheet: every edit of a few scenes in one picture, for a visual check before reading any number."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .figures_factors import figure_bytes
from .figures_sensitivity import picture_sheet
from .gallery_pictures import Album
from .svg import drawing

if TYPE_CHECKING:
    from unswayed.benchmark import Benchmark

WIDEST = 2200


def contact_sheet(benchmark: Benchmark, scenes: int = 10, edits: Sequence[str] | None = None) -> bytes:
    """Return a PNG with one row per scene and one column per edit; white if an edit was not possible for a scene."""
    import polars

    manifest = polars.DataFrame(benchmark.manifest)
    album = Album(benchmark.root, manifest)
    names = edits or [one for one in manifest["edit"].unique(maintain_order=True).to_list() if one != "source"]
    rows = []
    for scene in album.scenes(scenes):
        pictures = [album.picture(f"{scene}/{edit}/0") for edit in names]
        blank = np.full_like(next(one for one in pictures if one is not None), 255)
        made = [(blank if picture is None else picture) for picture in pictures]
        texts = [edit if picture is not None else f"{edit}: –" for edit, picture in zip(names, pictures, strict=True)]
        rows.append((made, [text.replace("background-", "bg-") for text in texts]))
    with drawing("sheet"):
        return _smaller(figure_bytes(picture_sheet(rows, album.scenes(scenes)), "png"))


def _smaller(data: bytes) -> bytes:
    """Return the PNG at most `WIDEST` pixels wide."""
    from PIL import Image

    picture = Image.open(io.BytesIO(data)).convert("RGB")
    picture.thumbnail((WIDEST, 4 * WIDEST), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
