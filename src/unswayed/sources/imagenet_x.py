"""ImageNet-X annotations as arrays: the factors, of sixteen, that distinguish each image from its class's typical ones.

annotations = load_annotations("multi")      # from the installed imagenet-x package, or folder="DIR"
annotations.factors[:, FACTORS.index("pose")].sum()

The files come with the package `imagenet-x` (CC BY-NC 4.0, `pip install 'unswayed[imagenetx]'`), whose code is never
imported, or are in a given folder.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from unswayed.errors import UserError, check_known, need
from unswayed.files.records import fits
from unswayed.files.storage import cache_folder
from unswayed.files.tables import Column, read_checked
from unswayed.files.text_tables import read_csv, read_json_lines
from unswayed.files.whole import read_json, whole

if TYPE_CHECKING:
    import pyarrow as pa


FACTORS = (
    "pose", "background", "pattern", "color", "smaller", "shape", "partial_view", "subcategory",
    "texture", "larger", "darker", "object_blocking", "person_blocking", "style", "brighter", "multiple_objects",
)  # fmt: skip
METACLASSES = (
    "device", "dog", "commodity", "bird", "structure", "covering", "wheeled_vehicle", "food", "equipment",
    "insect", "vehicle", "furniture", "primate", "vessel", "snake", "natural_object", "other",
)  # fmt: skip
WHICH = ("top", "multi")
PARTITIONS = ("val", "train")


class Kinds(NamedTuple):
    """K kinds: `of_image` (N,) the kind of each image, `factors` (K, 16) float64 zeros and ones, `metaclasses` (K,)."""

    of_image: np.ndarray
    factors: np.ndarray
    metaclasses: np.ndarray


@dataclass(eq=False)
class Annotations:
    """N annotated images in the order of their file, all arrays aligned.

    `keys` names images by file name without folder and ending; `factors` is (N, 16) bool, columns as in `FACTORS`;
    `labels` (N,) in 0…999; `metaclasses` (N,) indices into `METACLASSES`; `metaclass_of_class` (1000,) the same for
    every class; `real` (N, K) the ReaL labels padded with -1, or None for training images; `kinds`: the images sorted
    by equal metaclass and factors, so that counting needs one pass over images.
    """

    which: str
    partition: str
    keys: pl.Series
    factors: np.ndarray
    labels: np.ndarray
    metaclasses: np.ndarray
    metaclass_of_class: np.ndarray
    real: np.ndarray | None

    def __len__(self) -> int:
        return len(self.keys)

    @functools.cached_property
    def kinds(self) -> Kinds:
        codes = self.factors @ (1 << np.arange(len(FACTORS))) + (self.metaclasses.astype(np.int64) << len(FACTORS))
        unique, first, kind = np.unique(codes, return_index=True, return_inverse=True)
        return Kinds(kind.ravel(), self.factors[first].astype(np.float64), unique >> len(FACTORS))

    def count(self, mask: np.ndarray, by_metaclass: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """How many masked images have each factor (groups, 16) and how many there are (groups,): 17 groups, or one."""
        kind_of_image, factors, metaclasses = self.kinds
        # counts in floats, exact below 2**53, because products of floats are fast
        images = np.bincount(kind_of_image[mask], minlength=len(metaclasses)).astype(np.float64)
        groups = np.arange(len(METACLASSES))[:, None] if by_metaclass else metaclasses[None]
        weights = (metaclasses == groups) * images
        return (weights @ factors).astype(np.int64), weights.sum(axis=1).astype(np.int64)


def load_annotations(
    which: str = "top", partition: str = "val", folder: str | Path | None = None, *, keep_prototypes: bool = False
) -> Annotations:
    """The annotations of one partition, by default without the prototypes that annotators compared with.

    `which` is `top` (the one factor that matches the annotator's own words best) or `multi` (every factor ticked).
    """
    check_known("factor selection", [which], WHICH)
    check_known("partition", [partition], PARTITIONS)
    folder = annotations_folder(folder)
    table = read_factors(_there(folder, f"imagenet_x_{partition}_{which}_factor.jsonl"))
    if not keep_prototypes:
        table = table.filter(~pl.col("file_name").is_in(read_prototypes(folder).implode()))
    keys = image_keys(table["file_name"])
    labels = table["class"].to_numpy()
    metaclass_of_class = read_metaclasses(folder)
    real = None
    if partition == "val":
        # The index of a validation image in lists of all 50,000 is one less than the number in its name.
        numbers = keys.str.tail(8).cast(pl.Int64, strict=False)
        if numbers.null_count():
            raise UserError(f"'{keys.filter(numbers.is_null())[0]}' is not the name of an ImageNet validation image")
        real = np.asfortranarray(read_real_labels(folder, numbers.to_numpy() - 1))
    return Annotations(
        which=which,
        partition=partition,
        keys=keys,
        factors=table.select(FACTORS).to_numpy().astype(bool),
        labels=labels,
        metaclasses=metaclass_of_class[labels],
        metaclass_of_class=metaclass_of_class,
        real=real,
    )


def image_keys(file_names: pl.Series) -> pl.Series:
    """File names without their folders (either slash) and without their ending, which identify images.

    In the names of a benchmark's pictures `--` separates folders, and `.run1` marks a further run of one image.

    >>> image_keys(pl.Series(["val/n01/a.JPEG", "b.png", "x\\\\c.JPEG", "n01--d.run1.png"])).to_list()
    ['a', 'b', 'c', 'd']
    """
    names = file_names.cast(pl.String).str.strip_suffix(".JPEG").alias("key")
    # patterns are slow compared with plain searches, and most lists of names need neither
    if names.str.contains_any(["/", "\\", "--"]).any():
        names = names.str.replace(r"^.*([/\\]|--)", "")
    if names.str.contains(".", literal=True).any():
        names = names.str.replace(r"(\.run\d+)?\.[A-Za-z0-9]{1,5}$", "")
    return names


CLASSES = 1000
_COLUMNS = {"file_name": Column("text", nulls=False), "class": Column("integer", False, 0, CLASSES - 1)}
_COLUMNS |= {name: Column("integer", False, 0, 1) for name in FACTORS}


def annotations_folder(given: str | Path | None = None) -> Path:
    """The folder of annotation files: the given one, else that of the installed `imagenet-x` package."""
    if given is not None:
        folder = Path(given)
        if not folder.is_dir():
            raise UserError(f"there is no annotations folder {folder}", run="pip install 'unswayed[imagenetx]'")
        return folder
    need("imagenetx", "imagenet_x")
    return Path(str(distribution("imagenet-x").locate_file("imagenet_x"))) / "annotations"


def read_factors(path: Path) -> pl.DataFrame:
    """Rows (file_name, class, one 0/1 column per factor) of one annotation file.

    Reading 17 MB of JSON takes longer than all the tables made from it, so what was read is kept as Parquet in the
    user's cache folder ($UNSWAYED_CACHE), under a name that changes when the file does.
    """
    state = path.stat()
    version = f"{path.resolve()} {state.st_size} {state.st_mtime_ns}".encode()
    name = f"{path.stem}-{hashlib.blake2b(version, digest_size=8).hexdigest()}.parquet"
    kept = cache_folder() / "imagenet-x" / name
    with contextlib.suppress(UserError):
        return _frame(read_checked(kept, _COLUMNS, select=list(_COLUMNS), required=list(_COLUMNS)))
    table = parse_factors(path)
    # a cache that cannot be written costs time, never the result
    with contextlib.suppress(OSError, UserError), whole(kept) as file:
        table.write_parquet(file)
    return table


def parse_factors(path: Path) -> pl.DataFrame:
    """The same rows, read from the file itself."""
    table = _frame(read_json_lines(path, _COLUMNS, run="pip install 'unswayed[imagenetx]'"))
    twice = table.filter(table["file_name"].is_duplicated())
    if not twice.is_empty():
        raise UserError(f"{path} names the image {twice['file_name'][0]} more than once")
    return table


def _frame(table: pa.Table) -> pl.DataFrame:
    """The checked annotations, with numbers as small as they can be."""
    frame = pl.DataFrame(table)
    return frame.with_columns(pl.col("class").cast(pl.Int16), pl.exclude("file_name", "class").cast(pl.UInt8))


def read_prototypes(folder: Path) -> pl.Series:
    """File names of the three typical images per class that annotators compared with."""
    return pl.Series(_column(_there(folder, "prototypical_paths.csv"), "file_name"), dtype=pl.String)


def read_metaclasses(folder: Path) -> np.ndarray:
    """(1000,) int8: every class's index in `METACLASSES`; other names get the index of `other`."""
    path = _there(folder, "imagenet_1k_classes_to_100_metaclasses.csv")
    names = _column(path, "name")
    if len(names) != CLASSES:
        raise UserError(f"{path} has {len(names)} classes", allowed=str(CLASSES))
    index = {name: number for number, name in enumerate(METACLASSES)}
    return np.array([index.get(name, index["other"]) for name in names], dtype=np.int8)


def read_real_labels(folder: Path, places: np.ndarray) -> np.ndarray:
    """(N, K) int16: the ReaL labels of the validation images at these places of the list, padded with -1."""
    path = _there(folder, "imagenet_real_labels.jsonl")
    lists = read_json(path)
    if not lists or not fits(lists, list[list[int]]):
        raise UserError(f"{path} has no list of labels for each image", allowed="lists of class numbers")
    lengths = np.array([len(labels) for labels in lists])
    flat = np.array([label for labels in lists for label in labels], dtype=object)
    if len(flat) and not (min(flat) >= 0 and max(flat) < CLASSES):
        raise UserError(f"{path} has the labels {min(flat)} to {max(flat)}", allowed=f"0 to {CLASSES - 1}")
    table = np.full((len(lists), max(1, lengths.max())), -1, dtype=np.int16)
    table[np.arange(table.shape[1]) < lengths[:, None]] = flat.astype(np.int16)
    if len(places) and not (places.min() >= 0 and places.max() < len(table)):
        raise UserError(f"{path} has labels of {len(table):,} images and none of image {places.max() + 1}")
    return table[places]


def _column(path: Path, name: str) -> list[str]:
    table = read_csv(path, {name: Column("text", nulls=False)}, select=[name], required=[name])
    return table.column(name).to_pylist()


def _there(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise UserError(f"the annotations folder {folder} has no {name}", run="pip install 'unswayed[imagenetx]'")
    return path


# The four types that the paper compares, in its order.
TYPES = (
    "Supervised on more data", "Supervised on ImageNet-1K", "Self-supervised", "Robustness intervention",
)  # fmt: skip


def published_types(folder: str | Path | None = None) -> dict[str, str]:
    """Return the type of every model that the paper compares, by the model's name in the published tables."""
    path = annotations_folder(folder).parent / "model_types.py"
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        raise UserError(f"{path} does not contain the published model types", run="--groups FILE.csv") from None
    titles: dict[str, str] = {}
    types: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if isinstance(node.value, ast.Constant):
                titles[node.targets[0].id] = str(node.value.value)
            elif isinstance(node.value, ast.Dict):
                for key, value in zip(node.value.keys, node.value.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(value, ast.Attribute):
                        types[str(key.value)] = value.attr
    return {model: title for model, name in types.items() if (title := titles.get(name, name)) in TYPES}
