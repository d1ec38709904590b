"""Pictures for a page: read from a benchmark, scaled down and embedded as data."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np
import polars as pl

from unswayed.errors import BadPicture
from unswayed.files.whole import sha256
from unswayed.sources.pictures import read_picture
from unswayed.views.text import plural

CHANGED, CHANGED_WORDS = "changed", "changed since the evaluation"
SIDE = 256
THUMBNAIL = 104
_QUALITY = 72


@dataclass(frozen=True, eq=False)
class Album:
    """The pictures of a benchmark by sample id; root None: there are none.

    gone: which of the pictures that were asked for are `missing` or unreadable, or `changed`: their SHA-256 is not that
    of the manifest, so they are not the pictures that were evaluated.
    """

    root: Path | None
    manifest: pl.DataFrame | None
    gone: dict[str, str] = field(default_factory=dict)

    def picture(self, sample_id: str) -> np.ndarray | None:
        """Return (H, W, 3) uint8, or None if it is missing, unreadable, changed or outside the benchmark's folder."""
        path = self.paths.get(sample_id)
        if self.root is None or path is None:
            return None
        parts = PurePosixPath(path)
        if parts.is_absolute() or ".." in parts.parts:
            return None
        try:
            picture = read_picture(self.root / path)
            if self.hashes.get(sample_id) in (None, sha256(self.root / path)):
                return picture
            self.gone[sample_id] = CHANGED
        except (BadPicture, OSError):
            self.gone[sample_id] = "missing"
        return None

    def remarks(self) -> list[str]:
        """Return a line about the pictures asked for that have changed, and one about those that cannot be read."""
        lines = []
        for reason, words in ((CHANGED, CHANGED_WORDS), ("missing", "could not be read")):
            paths = [self.paths[one] for one, why in self.gone.items() if why == reason]
            if paths:
                shown = "is not shown" if len(paths) == 1 else "are not shown"
                lines.append(f"{plural(len(paths), 'picture')} of {self.root} {words} and {shown}, first {paths[0]}")
        return lines

    @cached_property
    def paths(self) -> Mapping[str, str]:
        if self.manifest is None or not {"sample_id", "status", "path"} <= set(self.manifest.columns):
            return {}
        there = self.manifest.filter((pl.col("status") == "ok") & pl.col("path").is_not_null())
        return dict(there.select("sample_id", "path").iter_rows())

    @cached_property
    def hashes(self) -> Mapping[str, str]:
        if self.manifest is None or "sha256" not in self.manifest.columns:
            return {}
        return dict(self.manifest.select("sample_id", "sha256").drop_nulls().iter_rows())

    def scenes(self, count: int) -> list[str]:
        """Return the first scenes that have an original, in the benchmark's order."""
        found = [one.rsplit("/", 2)[0] for one in self.paths if one.endswith("/original/0")]
        return list(dict.fromkeys(found))[:count]


def data_address(picture: np.ndarray, side: int = SIDE, quality: int = _QUALITY) -> str:
    """Return the picture as a `data:` URL: WebP, its longer side at most `side` pixels."""
    from PIL import Image

    image = Image.fromarray(picture)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=quality, method=4)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"
