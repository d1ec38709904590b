"""The annotation files of ImageNet-X, read as files: that package's code is never imported.

They come with the package `imagenet-x` (CC BY-NC 4.0, `pip install 'unswayed[imagenetx]'`) or are in a given folder.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from unswayed.errors import UserError, missing_extra
from unswayed.files.records import fits
from unswayed.files.tables import Column, read_checked
from unswayed.files.text_tables import read_csv, read_json_lines
from unswayed.files.whole import read_json, whole

if TYPE_CHECKING:
    import pyarrow as pa

CLASSES = 1000


def annotations_folder(given: str | Path | None = None) -> Path:
    """The folder of annotation files: the given one, else that of the installed `imagenet-x` package."""
    if given is not None:
        folder = Path(given)
        if not folder.is_dir():
            raise UserError(f"there is no annotations folder {folder}", run="pip install 'unswayed[imagenetx]'")
        return folder
    try:
        package = distribution("imagenet-x")
    except PackageNotFoundError:
        raise missing_extra("imagenet-x", "imagenetx") from None
    return Path(str(package.locate_file("imagenet_x"))) / "annotations"


def read_factors(folder: Path, partition: str, which: str, factors: Sequence[str]) -> pl.DataFrame:
    """Rows (file_name, class, one 0/1 column per factor) of one annotation file.

    Reading 17 MB of JSON takes longer than all the tables made from it, so what was read is kept as Parquet in the
    user's cache folder ($UNSWAYED_CACHE), under a name that changes when the file does.
    """
    path = _there(folder, f"imagenet_x_{partition}_{which}_factor.jsonl")
    kept, columns = _place_in_cache(path), _columns(factors)
    with contextlib.suppress(UserError):
        return _frame(read_checked(kept, columns, select=list(columns), required=list(columns)))
    table = parse_factors(path, factors)
    # a cache that cannot be written costs time, never the result
    with contextlib.suppress(OSError, UserError), whole(kept) as file:
        table.write_parquet(file)
    return table


def parse_factors(path: Path, factors: Sequence[str]) -> pl.DataFrame:
    """The same rows, read from the file itself."""
    table = _frame(read_json_lines(path, _columns(factors), run="pip install 'unswayed[imagenetx]'"))
    twice = table.filter(table["file_name"].is_duplicated())
    if not twice.is_empty():
        raise UserError(f"{path} names the image {twice['file_name'][0]} more than once")
    return table


def _columns(factors: Sequence[str]) -> dict[str, Column]:
    columns = {"file_name": Column("text", nulls=False), "class": Column("integer", False, 0, CLASSES - 1)}
    return columns | {name: Column("integer", False, 0, 1) for name in factors}


def _frame(table: pa.Table) -> pl.DataFrame:
    """The checked annotations, with numbers as small as they can be."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(pl.col("class").cast(pl.Int16), pl.exclude("file_name", "class").cast(pl.UInt8))


def read_prototypes(folder: Path) -> pl.Series:
    """File names of the three typical images per class that annotators compared with."""
    path = _there(folder, "prototypical_paths.csv")
    return pl.Series(_column(path, "file_name"), dtype=pl.String)


def read_metaclasses(folder: Path, metaclasses: Sequence[str]) -> np.ndarray:
    """(1000,) int8: every class's index in `metaclasses`; other names get the index of `other`."""
    path = _there(folder, "imagenet_1k_classes_to_100_metaclasses.csv")
    names = _column(path, "name")
    if len(names) != CLASSES:
        raise UserError(f"{path} has {len(names)} classes", allowed=str(CLASSES))
    place = {name: i for i, name in enumerate(metaclasses)}
    return np.array([place.get(name, place["other"]) for name in names], dtype=np.int8)


def read_real_labels(folder: Path, places: np.ndarray) -> np.ndarray:
    """(N, K) int16: the ReaL labels of the validation images at these places of the list, padded with -1."""
    path = _there(folder, "imagenet_real_labels.jsonl")
    lists = read_json(path)
    if not lists or not fits(lists, list[list[int]]):
        raise UserError(f"{path} has no list of labels for each image", allowed="lists of class numbers")
    lengths = np.array([len(one) for one in lists])
    flat = np.array([label for one in lists for label in one], dtype=object)
    if len(flat) and not (min(flat) >= 0 and max(flat) < CLASSES):
        raise UserError(f"{path} has the labels {min(flat)} to {max(flat)}", allowed=f"0 to {CLASSES - 1}")
    table = np.full((len(lists), max(1, lengths.max())), -1, dtype=np.int16)
    table[np.arange(table.shape[1]) < lengths[:, None]] = flat.astype(np.int16)
    if len(places) and not (places.min() >= 0 and places.max() < len(table)):
        raise UserError(f"{path} has labels of {len(table):,} images and none of image {places.max() + 1}")
    return table[places]


def _column(path: Path, name: str) -> list[str]:
    """The texts in one column of a CSV file."""
    table = read_csv(path, {name: Column("text", nulls=False)}, select=[name], required=[name])
    return table.column(name).to_pylist()


def _there(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise UserError(f"the annotations folder {folder} has no {name}", run="pip install 'unswayed[imagenetx]'")
    return path


def _place_in_cache(path: Path) -> Path:
    from unswayed.files.storage.addresses import cache_folder

    state = path.stat()
    version = f"{path.resolve()} {state.st_size} {state.st_mtime_ns}".encode()
    return cache_folder() / "imagenet-x" / f"{path.stem}-{hashlib.blake2b(version, digest_size=8).hexdigest()}.parquet"
