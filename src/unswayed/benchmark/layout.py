"""The files and folders inside a benchmark; every path here is relative to its folder."""

from __future__ import annotations

CARD = "benchmark.json"
MANIFEST = "manifest.parquet"
ROWS = "rows"
IMAGES = "images"
MASKS = "masks"
CACHE = ".cache"
LOCK = ".lock"
CARD_LOCK = ".card-lock"
WORST_MASKS = "masks-worst.jpg"

# The unchanged source file, which no drop is computed from; `original` is its framed picture.
SOURCE_EDIT = "source"
ORIGINAL_EDIT = "original"


def row_path(source_id: str) -> str:
    return f"{ROWS}/{source_id}.json"


def picture_path(edit: str, source_id: str, run: int = 0, suffix: str = ".png") -> str:
    """
    >>> picture_path("size-0.05", "dog"), picture_path("position", "dog", run=1)
    ('images/size-0.05/dog.png', 'images/position/dog.run1.png')
    """
    return f"{IMAGES}/{edit}/{_name(source_id, run)}{suffix}"


def mask_path(edit: str, source_id: str, run: int = 0) -> str:
    return f"{MASKS}/{edit}/{_name(source_id, run)}.png"


def sample_id(source_id: str, edit: str, run: int = 0) -> str:
    return f"{source_id}/{edit}/{run}"


def _name(source_id: str, run: int) -> str:
    return source_id if run == 0 else f"{source_id}.run{run}"
