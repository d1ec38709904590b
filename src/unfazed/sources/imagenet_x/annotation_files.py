"""The annotation files of ImageNet-X, read as files: that package's code is never imported.

They come with the package `imagenet-x` (CC BY-NC 4.0, `pip install 'unfazed[imagenetx]'`) or are in a given folder.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import polars as pl

from unfazed.errors import UserError, missing_extra
from unfazed.files import whole

CLASSES = 1000


def annotations_folder(given: str | Path | None = None) -> Path:
    """The folder of annotation files: the given one, else that of the installed `imagenet-x` package."""
    if given is not None:
        folder = Path(given)
        if not folder.is_dir():
            raise UserError(f"there is no annotations folder {folder}", run="pip install 'unfazed[imagenetx]'")
        return folder
    try:
        package = distribution("imagenet-x")
    except PackageNotFoundError:
        raise missing_extra("imagenet-x", "imagenetx") from None
    return Path(str(package.locate_file("imagenet_x"))) / "annotations"


def read_factors(folder: Path, partition: str, which: str, factors: Sequence[str]) -> pl.DataFrame:
    """Rows (file_name, class, one 0/1 column per factor) of one annotation file.

    Reading 17 MB of JSON takes longer than all the tables made from it, so what was read is kept as Parquet in the
    user's cache folder ($UNFAZED_CACHE), under a name that changes when the file does.
    """
    path = _there(folder, f"imagenet_x_{partition}_{which}_factor.jsonl")
    kept = _place_in_cache(path)
    with contextlib.suppress(OSError, pl.exceptions.PolarsError):
        return pl.read_parquet(kept, columns=["file_name", "class", *factors])
    try:
        flags = pl.col(*factors).cast(pl.UInt8)
        table = pl.read_ndjson(path).select("file_name", pl.col("class").cast(pl.Int16), flags)
    except pl.exceptions.PolarsError as error:
        raise UserError(f"{path} is not an ImageNet-X annotation file: {error}") from None
    if table["file_name"].is_duplicated().any() or not table["class"].is_between(0, CLASSES - 1).all():
        raise UserError(f"{path} names an image twice or a class outside 0…{CLASSES - 1}")
    # a cache that cannot be written costs time, never the result
    with contextlib.suppress(OSError, UserError), whole(kept) as file:
        table.write_parquet(file)
    return table


def read_prototypes(folder: Path) -> pl.Series:
    """File names of the three typical images per class that annotators compared with."""
    return pl.read_csv(_there(folder, "prototypical_paths.csv"))["file_name"]


def read_metaclasses(folder: Path, metaclasses: Sequence[str]) -> np.ndarray:
    """(1000,) int8: every class's index in `metaclasses`; other names get the index of `other`."""
    path = _there(folder, "imagenet_1k_classes_to_100_metaclasses.csv")
    names = pl.read_csv(path)["name"].to_list()
    if len(names) != CLASSES:
        raise UserError(f"{path} has {len(names)} classes", allowed=str(CLASSES))
    place = {name: i for i, name in enumerate(metaclasses)}
    return np.array([place.get(name, place["other"]) for name in names], dtype=np.int8)


def read_real_labels(folder: Path) -> np.ndarray:
    """(50000, K) int16: the ReaL labels of all validation images in the order of their numbers, padded with -1."""
    text = _there(folder, "imagenet_real_labels.jsonl").read_text()
    lists = pl.Series([text]).str.json_decode(pl.List(pl.List(pl.Int16))).explode()
    lengths = lists.list.len().to_numpy().astype(np.int64)
    table = np.full((len(lists), max(1, lengths.max())), -1, dtype=np.int16)
    table[np.arange(table.shape[1]) < lengths[:, None]] = lists.filter(lists.list.len() > 0).explode().to_numpy()
    return table


def _there(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise UserError(f"the annotations folder {folder} has no {name}", run="pip install 'unfazed[imagenetx]'")
    return path


def _place_in_cache(path: Path) -> Path:
    from unfazed.files import cache_folder

    state = path.stat()
    version = f"{path.resolve()} {state.st_size} {state.st_mtime_ns}".encode()
    return cache_folder() / "imagenet-x" / f"{path.stem}-{hashlib.blake2b(version, digest_size=8).hexdigest()}.parquet"
