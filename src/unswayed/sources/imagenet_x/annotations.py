"""ImageNet-X annotations as arrays: the factors, of sixteen, that distinguish each image from its class's typical ones.

annotations = load_annotations("multi")      # from the installed imagenet-x package, or folder="DIR"
annotations.factors[:, FACTORS.index("pose")].sum()
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from unswayed.errors import UserError, unknown

from .annotation_files import annotations_folder, read_factors, read_metaclasses, read_prototypes, read_real_labels

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


@dataclass(frozen=True, eq=False)
class Annotations:
    """N annotated images in the order of their file, all arrays aligned.

    `keys` names images by file name without folder and ending; `factors` is (N, 16) bool, columns as in `FACTORS`;
    `labels` (N,) in 0…999; `metaclasses` (N,) indices into `METACLASSES`; `metaclass_of_class` (1000,) the same for
    every class; `real` (N, K) the ReaL labels padded with -1, or None for training images.
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
    def kinds(self) -> Kinds:
        """The images sorted into kinds of equal metaclass and factors, so that counting needs one pass over images."""
        codes = self.factors @ (1 << np.arange(len(FACTORS))) + (self.metaclasses.astype(np.int64) << len(FACTORS))
        found, first, kind = np.unique(codes, return_index=True, return_inverse=True)
        return Kinds(kind.ravel(), self.factors[first].astype(np.float64), found >> len(FACTORS))

    def count(self, mask: np.ndarray, by_metaclass: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """How many masked images have each factor (groups, 16) and how many there are (groups,): 17 groups, or one."""
        kinds = self.kinds
        # counts in floats, exact below 2**53, because products of floats are fast
        images = np.bincount(kinds.of_image[mask], minlength=len(kinds.metaclasses)).astype(np.float64)
        groups = np.arange(len(METACLASSES))[:, None] if by_metaclass else kinds.metaclasses[None]
        weights = (kinds.metaclasses == groups) * images
        return (weights @ kinds.factors).astype(np.int64), weights.sum(axis=1).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Kinds:
    """K kinds: `of_image` (N,) the kind of each image, `factors` (K, 16) float64 zeros and ones, `metaclasses` (K,)."""

    of_image: np.ndarray
    factors: np.ndarray
    metaclasses: np.ndarray


def load_annotations(
    which: str = "top",
    partition: str = "val",
    folder: str | Path | None = None,
    *,
    keep_prototypes: bool = False,
) -> Annotations:
    """The annotations of one partition, by default without the prototypes that annotators compared with.

    `which` is `top` (the one factor that matches the annotator's own words best) or `multi` (every factor ticked).
    """
    if which not in WHICH:
        raise unknown("factor selection", which, WHICH)
    if partition not in PARTITIONS:
        raise unknown("partition", partition, PARTITIONS)
    folder = annotations_folder(folder)
    table = read_factors(folder, partition, which, FACTORS)
    if not keep_prototypes:
        table = table.filter(~pl.col("file_name").is_in(read_prototypes(folder).implode()))
    keys = image_keys(table["file_name"])
    labels = table["class"].to_numpy()
    metaclass_of_class = read_metaclasses(folder, METACLASSES)
    return Annotations(
        which=which,
        partition=partition,
        keys=keys,
        factors=table.select(FACTORS).to_numpy().astype(bool),
        labels=labels,
        metaclasses=metaclass_of_class[labels],
        metaclass_of_class=metaclass_of_class,
        real=np.asfortranarray(read_real_labels(folder, _places(keys))) if partition == "val" else None,
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


def _places(keys: pl.Series) -> np.ndarray:
    """(N,) the index of validation images in lists of all 50,000: one less than the number in their name."""
    numbers = keys.str.tail(8).cast(pl.Int64, strict=False)
    if numbers.null_count():
        raise UserError(f"'{keys.filter(numbers.is_null())[0]}' is not the name of an ImageNet validation image")
    return numbers.to_numpy() - 1
