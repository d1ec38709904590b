"""`voc:PATH`: PASCAL VOC's photographs with segmented objects, in torchvision's layout.

`PATH/VOCdevkit/VOC2012/{JPEGImages, SegmentationObject, Annotations, ImageSets/Segmentation}`: object number n of a
picture in SegmentationObject is the n-th object of its annotation; 0 is background, 255 an outline of no object.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from unswayed.errors import BadPicture, UserError
from unswayed.files.whole import MOST_TEXT, read_file, read_lines
from unswayed.labels import own
from unswayed.scene import Scene
from unswayed.specs import Spec

from .pictures import read_numbers, read_picture, shrunk
from .slugs import unique_slugs
from .source import Entry, Source
from .torchvision_sets import downloaded

YEARS = ("2012", "2011", "2010", "2009", "2008", "2007")
SPLITS = ("val", "train", "trainval", "test")
OBJECTS = ("largest", "all")
CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip


@dataclass(frozen=True)
class Annotated:
    """One object of an annotation: its number in SegmentationObject, its class, the area of its box in pixels."""

    number: int
    name: str
    area: float


def open_scenes(spec: Spec) -> Source:
    """The segmented objects, labeled with VOC's 20 classes.

    year: 2012 (default) to 2007; split: val (default), train, trainval, or test of 2007; objects: `largest` (by its
    box), one scene per picture, or `all`, one per object. download=yes fetches what is missing.
    """
    options = spec.take(year="2012", split="val", objects="largest", download="no")
    year = spec.one_of("year", options["year"], YEARS)
    split = spec.one_of("split", options["split"], SPLITS)
    objects = spec.one_of("objects", options["objects"], OBJECTS)
    download = spec.one_of("download", options["download"], ("no", "yes")) == "yes"
    if split == "test" and year != "2007":
        raise UserError(f"the test split of VOC {year} has no published masks", allowed="split=val, train or trainval")
    root = _root(spec, year, split, download)
    listing = root / "ImageSets" / "Segmentation" / f"{split}.txt"
    if not os.path.exists(listing):
        raise UserError(f"{listing} is not there", allowed="the lists of PASCAL VOC as published")
    labels = own(CLASSES, "voc")
    names, entries = [], []
    for picture in " ".join(read_lines(listing, "list")).split():
        found, problem = _annotated(root / "Annotations" / f"{picture}.xml")
        if objects == "largest" and found:
            found = [max(found, key=lambda one: one.area)]
        for one in found or [Annotated(0, "", 0.0)]:
            names.append(f"{picture}-{one.number}.jpg" if objects == "all" else f"{picture}.jpg")
            image, mask = root / "JPEGImages" / f"{picture}.jpg", root / "SegmentationObject" / f"{picture}.png"
            label = labels.index(one.name) if one.name else None
            entries.append(Entry("", str(image), str(mask), label, problem, one.number))
    slugs = unique_slugs(names)
    placed = (
        Entry(slug, one.image, one.mask, one.label, one.problem, one.detail)
        for slug, one in zip(slugs, entries, strict=True)
    )
    return Source(spec.text, labels, tuple(placed), load_object)


def load_object(entry: Entry) -> Scene:
    """The entry's photograph with the pixels of its object as the mask."""
    assert entry.mask is not None
    numbers = read_numbers(entry.mask)
    mask = (numbers == entry.detail).astype(np.float32)
    if not mask.any():
        raise BadPicture(f"{entry.mask}: no pixel belongs to object {entry.detail}")
    return shrunk(Scene(entry.id, read_picture(entry.image), mask, entry.label))


def _annotated(path: Path) -> tuple[list[Annotated], str | None]:
    """The objects of an annotation file in their order, and what is wrong with it if they cannot be read."""
    try:
        tree = ElementTree.fromstring(read_file(path, MOST_TEXT))
        found = []
        for number, one in enumerate(tree.iter("object"), 1):
            left, top, right, bottom = (float(one.findtext(f"bndbox/{side}", "")) for side in _SIDES)
            name = one.findtext("name", "")
            if name not in CLASSES:
                return [], f"{path.name} has an object of the class '{name}'"
            found.append(Annotated(number, name, (right - left) * (bottom - top)))
    except UserError as error:
        return [], f"its annotation {error.given}"
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # LookupError: an unknown encoding
        return [], f"its annotation {path} cannot be read ({error})"
    return found, None if found else f"{path.name} names no object"


def _root(spec: Spec, year: str, split: str, download: bool) -> Path:
    places = ("", f"VOC{year}", f"VOCdevkit/VOC{year}", f"TrainVal/VOCdevkit/VOC{year}")

    def find(folder: Path) -> Path | None:
        return next((folder / one for one in places if (folder / one / "SegmentationObject").is_dir()), None)

    def fetch(folder: Path) -> None:
        from torchvision.datasets import VOCSegmentation

        VOCSegmentation(folder, year=year, image_set=split, download=True)

    return downloaded(spec, find, fetch, download, f"VOCdevkit/VOC{year}/SegmentationObject, JPEGImages, …")


_SIDES = ("xmin", "ymin", "xmax", "ymax")
