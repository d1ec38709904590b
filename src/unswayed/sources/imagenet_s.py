"""`imagenet-s:PATH`: ImageNet-S (50, 300 or 919 classes) in its official layout and mask encoding.

`PATH/{validation,train-semi}/<wnid>/*.JPEG` with `PATH/{…}-segmentation/<wnid>/*.png`, where a pixel's class is
R + 256·G, 0 is everything else, 1000 is to be ignored, and class n is the n-th of the subset's sorted WNIDs.
"""

from __future__ import annotations

import csv
import functools
from importlib import resources
from pathlib import Path, PurePosixPath

import numpy as np

from unswayed.errors import BadPicture, UserError
from unswayed.labels import imagenet
from unswayed.scene import Scene
from unswayed.specs import Spec

from .labeled import pictures_below
from .pictures import read_picture, shrunk
from .source import Entry, Source, named

SPLITS = ("validation", "train-semi")
SUBSETS = ("50", "300", "919")
IGNORE = 1000
# Classes that the 919 set merges into a similar one.
MERGED = {
    "n04356056": "n04355933",  # sunglasses as sunglass
    "n04493381": "n02808440",  # tub as bathtub
    "n03642806": "n03832673",  # laptop as notebook
    "n04008634": "n03773504",  # projectile as missile
    "n03887697": "n15075141",  # paper towel as toilet tissue
}


def open_imagenet_s(spec: Spec) -> Source:
    """The scenes of ImageNet-S, labeled in ImageNet-1k; the object is every pixel of the picture's own class.

    split: validation or train-semi; subset: 50, 300 or 919, if neither the folder's name nor its classes show it.
    """
    root = spec.folder()
    spec.check_options("split", "subset")
    split = spec.one_of("split", SPLITS)
    pictures, masks = root / split, root / f"{split}-segmentation"
    for folder in (pictures, masks):
        if not folder.is_dir():
            raise UserError(f"{folder} does not exist", allowed=f"{root}/{split} and {root}/{split}-segmentation")
    names = [name for name in pictures_below(pictures) if "/" in name]
    wnids = {PurePosixPath(name).parts[0] for name in names}
    subset = spec.one_of("subset", SUBSETS) if "subset" in spec.options else None
    classes = subset_classes(subset or _subset_of(root, wnids))
    numbers = {wnid: number for number, wnid in enumerate(classes, 1)}
    numbers |= {wnid: numbers[other] for wnid, other in MERGED.items() if other in numbers}
    if foreign := ", ".join(sorted(wnids - set(numbers))[:10]):
        raise UserError(f"{foreign} are not classes of ImageNet-S {len(classes)}", allowed="?subset=919, …")
    entries = []
    for name in names:
        wnid = PurePosixPath(name).parts[0]
        mask = masks / PurePosixPath(name).with_suffix(".png")
        label = imagenet().index(wnid)
        entries.append(Entry(name, str(pictures / name), str(mask), label, detail=numbers[wnid]))
    return Source(spec.text, imagenet(), named(entries), load_segmented)


def load_segmented(entry: Entry) -> Scene:
    """The entry's scene; its mask is the pixels of the class number in `entry.detail`."""
    assert entry.mask is not None
    numbers = class_numbers(read_picture(entry.mask))
    mask = (numbers == entry.detail).astype(np.float32)
    if not mask.any():
        present = sorted(set(np.unique(numbers).tolist()) - {0, IGNORE}) or "background"
        raise BadPicture(f"{entry.mask}: no pixel has the picture's class {entry.detail}, only {present}")
    return shrunk(Scene(entry.id, read_picture(entry.image), mask, entry.label))


def class_numbers(pixels: np.ndarray) -> np.ndarray:
    """The class of every pixel of a segmentation file: (H, W, 3) uint8 -> (H, W) int32, R + 256·G."""
    return pixels[..., 0].astype(np.int32) + 256 * pixels[..., 1].astype(np.int32)


@functools.cache
def subset_classes(subset: str) -> tuple[str, ...]:
    """The sorted WNIDs of a subset: "50", "300" or "919"."""
    lines = resources.files("unswayed.data").joinpath("imagenet_s_classes.csv").read_text().splitlines()
    return tuple(sorted(row["wnid"] for row in csv.DictReader(lines) if int(row["smallest"]) <= int(subset)))


def _subset_of(root: Path, wnids: set[str]) -> str:
    """The subset that a folder holds, by its name (`ImageNetS50`), else by the number of its classes."""
    name = root.resolve().name.lower().replace("-", "").replace("_", "")
    for subset in SUBSETS:
        if name == f"imagenets{subset}" or len(wnids) == int(subset):
            return subset
    raise UserError(
        f"{root} holds {len(wnids)} classes, so it is unclear which ImageNet-S subset it is",
        allowed="a folder ImageNetS50, ImageNetS300 or ImageNetS919, or ?subset=50, 300, 919",
    )
