"""ImageNet-X annotations as arrays: which of sixteen factors set each image apart from its class's typical images.

The annotation files come with the package `imagenet-x` (CC BY-NC 4.0, `pip install 'unfazed[imagenetx]'`) or from a
folder that holds the same files. They are read as files; that package's code is never imported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import polars as pl

from unfazed.errors import UserError, missing_extra, unknown

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
_LAST_CLASS = 999


@dataclass(frozen=True, eq=False)
class Annotations:
    """N annotated images in the order of their file, all arrays aligned.

    `keys` names images by file name without folder and ending; `factors` is (N, 16) bool, columns as in `FACTORS`;
    `labels` (N,) in 0…999; `metaclasses` (N,) indices into `METACLASSES`; `metaclass_of_class` (1000,) the same for
    every class; `real` (N, K) the ReaL labels filled up with -1, or None where there are none (training images).
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

    @cached_property
    def marks(self) -> tuple[np.ndarray, np.ndarray]:
        """(images, factors): the index pairs of the factors that are set, for counting without the zeros."""
        return np.nonzero(self.factors)  # type: ignore[return-value]


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


def load_annotations(
    which: str = "top",
    partition: str = "val",
    folder: str | Path | None = None,
    *,
    keep_prototypes: bool = False,
) -> Annotations:
    """The annotations of one partition, by default without the prototypes that annotators compared against.

    `which` is `top` (the one factor that fits the annotator's own words best) or `multi` (every factor ticked).
    """
    if which not in WHICH:
        raise unknown("factor selection", which, WHICH)
    if partition not in PARTITIONS:
        raise unknown("partition", partition, PARTITIONS)
    folder = annotations_folder(folder)
    path = _there(folder, f"imagenet_x_{partition}_{which}_factor.jsonl")
    try:
        table = pl.read_ndjson(path).select("file_name", "class", *FACTORS)
    except pl.exceptions.PolarsError as error:
        raise UserError(f"{path} is not an ImageNet-X annotation file: {error}") from None
    if not keep_prototypes:
        prototypes = pl.read_csv(_there(folder, "prototypical_paths.csv"))["file_name"]
        table = table.filter(~pl.col("file_name").is_in(prototypes.implode()))
    labels = table["class"].to_numpy().astype(np.int16)
    if len(labels) and not (labels.min() >= 0 and labels.max() <= _LAST_CLASS):
        raise UserError(f"{path} has classes outside 0…{_LAST_CLASS}")
    metaclass_of_class = _metaclass_of_class(_there(folder, "imagenet_1k_classes_to_100_metaclasses.csv"))
    return Annotations(
        which=which,
        partition=partition,
        keys=image_keys(table["file_name"]),
        factors=table.select(FACTORS).to_numpy().astype(bool),
        labels=labels,
        metaclasses=metaclass_of_class[labels],
        metaclass_of_class=metaclass_of_class,
        real=_real_labels(folder, table["file_name"]) if partition == "val" else None,
    )


def image_keys(file_names: pl.Series) -> pl.Series:
    """File names without their folders (either slash) and without their ending: how images are told apart.

    >>> image_keys(pl.Series(["val/n01/a.JPEG", "b.png", "x\\\\c.JPEG"])).to_list()
    ['a', 'b', 'c']
    """
    return file_names.cast(pl.String).str.replace(r"^.*[/\\]", "").str.replace(r"\.[A-Za-z0-9]{1,5}$", "").alias("key")


def _there(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise UserError(f"the annotations folder {folder} has no {name}", run="pip install 'unfazed[imagenetx]'")
    return path


def _metaclass_of_class(path: Path) -> np.ndarray:
    """(1000,) int8 indices into METACLASSES; the file's hundred finer names that are not kept become `other`."""
    position = {name: i for i, name in enumerate(METACLASSES)}
    names = pl.read_csv(path)["name"].to_list()
    if len(names) != _LAST_CLASS + 1:
        raise UserError(f"{path} has {len(names)} classes", allowed=f"{_LAST_CLASS + 1}")
    return np.array([position.get(name, position["other"]) for name in names], dtype=np.int8)


def _real_labels(folder: Path, file_names: pl.Series) -> np.ndarray:
    """(N, K) int16: the ReaL labels of each validation image, filled up with -1; image i of the list is file i + 1."""
    lists = json.loads(_there(folder, "imagenet_real_labels.jsonl").read_bytes())
    table = np.full((len(lists), max(map(len, lists), default=1) or 1), -1, dtype=np.int16)
    for row, labels in zip(table, lists, strict=True):
        row[: len(labels)] = labels
    numbers = file_names.str.extract(r"(\d{8})\.\w+$").cast(pl.Int64) - 1
    if numbers.null_count() or (len(numbers) and int(numbers.max()) >= len(table)):  # type: ignore[arg-type]
        raise UserError("a validation image of the annotations has no place in imagenet_real_labels.jsonl")
    return table[numbers.to_numpy()]
