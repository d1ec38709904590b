"""Data sets that torchvision can fetch: found where they are, downloaded where the user asks for it.

`oxford-pet:PATH`: Oxford-IIIT Pet (Parkhi et al. 2012, CC BY-SA 4.0), about 200 photographs of each of 37 breeds:
`PATH/oxford-iiit-pet/images/*.jpg` and `…/annotations/{trainval,test}.txt`, `…/trimaps/*.png`.

`voc:PATH`: PASCAL VOC's photographs with segmented objects:
`PATH/VOCdevkit/VOC2012/{JPEGImages, SegmentationObject, Annotations, ImageSets/Segmentation}`: object number n of a
picture in SegmentationObject is the n-th object of its annotation; 0 is background, 255 an outline of no object.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from unswayed.errors import BadPicture, UserError
from unswayed.files.whole import MOST_TEXT, make_folder, read_file, read_lines
from unswayed.labels import imagenet, own
from unswayed.scene import Scene
from unswayed.specs import Spec

from .pictures import read_numbers, read_picture, shrunk
from .source import Entry, Source, unique_slugs


def downloaded(
    spec: Spec, find: Callable[[Path], Path | None], fetch: Callable[[Path], object], download: bool, layout: str
) -> Path:
    """The data set's folder below the spec's path; fetched there first if it is missing and `download` is set.

    find: the path -> the data set's folder, or None; fetch: downloads into the path; layout: what should be there.
    """
    if not spec.name:
        raise UserError(f"the source '{spec.text}' has no path", allowed=f"{spec.kind}:PATH")
    path = Path(spec.name).expanduser()
    found = find(path)
    if found is not None:
        return found
    if not download:
        joint = "&" if spec.options else "?"
        raise UserError(
            f"{path} does not hold the data set of '{spec.kind}:'",
            allowed=f"a folder with {layout}",
            run=f"the same command with '{spec.text}{joint}download=yes', where there is a network",
        )
    try:
        fetch(make_folder(path))
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the data set of '{spec.kind}:' could not be downloaded into {path}: {error}",
            allowed=f"a network, or a folder with {layout} copied from elsewhere",
        ) from None
    found = find(path)
    if found is None:
        raise UserError(f"the download into {path} is not complete", allowed=f"a folder with {layout}")
    return found


PET_SPLITS = ("test", "trainval", "all")
BREEDS = ("imagenet", "all")
PET, BACKGROUND, BORDER = 1, 2, 3

# Breed as the files name it -> WNID of the ImageNet-1k class that means it, or "" where there is none.
_TABLE = resources.files("unswayed.data").joinpath("oxford_pet_breeds.csv").read_text(encoding="utf-8")
BREED_WNIDS = {row["breed"]: row["wnid"] for row in csv.DictReader(_TABLE.splitlines())}


def open_oxford_pet(spec: Spec) -> Source:
    """The photographs with their pets as objects.

    split: test (default), trainval or all. breeds: `imagenet` (default), the 25 breeds that are ImageNet classes,
    labeled as such, so that every ImageNet classifier answers; `all`, the 37 breeds as a label space of their own, in
    which those 25 have ImageNet's names. download=yes fetches what is missing.
    """
    options = spec.take(split="test", breeds="imagenet", download="no")
    split = spec.one_of("split", options["split"], PET_SPLITS)
    breeds = spec.one_of("breeds", options["breeds"], BREEDS)
    root = _pet_folder(spec, spec.one_of("download", options["download"], ("no", "yes")) == "yes")
    names = [name for one in (PET_SPLITS[:2] if split == "all" else (split,)) for name in _listed(root, one)]
    foreign = sorted({breed_of(name) for name in names} - set(BREED_WNIDS))
    if foreign:
        raise UserError(f"{root} lists the breeds {', '.join(foreign[:5])}", allowed=", ".join(BREED_WNIDS))
    if breeds == "imagenet":
        names = [name for name in names if BREED_WNIDS[breed_of(name)]]
    labels = imagenet() if breeds == "imagenet" else own(map(class_name, BREED_WNIDS), "oxford-pet")
    entries = tuple(
        Entry(
            scene_id,
            str(root / "images" / f"{name}.jpg"),
            str(root / "annotations" / "trimaps" / f"{name}.png"),
            labels.index(class_name(breed_of(name))),
        )
        for scene_id, name in zip(unique_slugs(names), names, strict=True)
    )
    return Source(spec.text, labels, entries, load_pet)


def load_pet(entry: Entry) -> Scene:
    """The entry's photograph with the mask of its trimap."""
    assert entry.mask is not None
    trimap = read_picture(entry.mask)[..., 0]
    return shrunk(Scene(entry.id, read_picture(entry.image), mask_of_trimap(trimap), entry.label))


def mask_of_trimap(trimap: np.ndarray) -> np.ndarray:
    """(H, W) uint8 of 1 pet, 2 background, 3 border -> (H, W) float32 of 0 and 1.

    The border is a band around the outline; it is divided along its middle, each pixel going to what is nearer.
    """
    import cv2

    unexpected = sorted(set(np.unique(trimap).tolist()) - {PET, BACKGROUND, BORDER})
    if unexpected:
        raise BadPicture(f"the trimap holds the values {unexpected[:5]}", allowed="1 pet, 2 background, 3 border")
    if not (trimap == PET).any():
        raise BadPicture("the trimap has no pet")
    to_pet = cv2.distanceTransform((trimap != PET).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    if not (trimap == BACKGROUND).any():
        return np.ones(trimap.shape, np.float32)
    to_background = cv2.distanceTransform((trimap != BACKGROUND).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    return (to_pet < to_background).astype(np.float32)


def breed_of(name: str) -> str:
    """The breed that a file is named after.

    >>> breed_of("great_pyrenees_126")
    'great_pyrenees'
    """
    return name.rpartition("_")[0]


def class_name(breed: str) -> str:
    """The breed's ImageNet name where it is an ImageNet class, else its own.

    >>> class_name("japanese_chin"), class_name("shiba_inu")
    ('Japanese spaniel', 'shiba inu')
    """
    wnid = BREED_WNIDS[breed]
    return imagenet().classes[imagenet().index(wnid)] if wnid else breed.replace("_", " ")


def _pet_folder(spec: Spec, download: bool) -> Path:
    def find(folder: Path) -> Path | None:
        return next(
            (one for one in (folder, folder / "oxford-iiit-pet") if (one / "annotations" / "trimaps").is_dir()), None
        )

    def fetch(folder: Path) -> None:
        from torchvision.datasets import OxfordIIITPet

        OxfordIIITPet(folder, download=True)

    return downloaded(spec, find, fetch, download, "images/ and annotations/trimaps/, or oxford-iiit-pet/ with them")


def _listed(root: Path, split: str) -> list[str]:
    """The names in annotations/<split>.txt, whose lines are `NAME CLASS SPECIES BREED`."""
    path = root / "annotations" / f"{split}.txt"
    if not os.path.exists(path):
        raise UserError(f"{path} is not there", allowed="the annotations of Oxford-IIIT Pet as published")
    return [line.split()[0] for line in read_lines(path, "list") if line.strip() and not line.startswith("#")]


YEARS = ("2012", "2011", "2010", "2009", "2008", "2007")
VOC_SPLITS = ("val", "train", "trainval", "test")
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


def open_voc(spec: Spec) -> Source:
    """The segmented objects, labeled with VOC's 20 classes.

    year: 2012 (default) to 2007; split: val (default), train, trainval, or test of 2007; objects: `largest` (by its
    box), one scene per picture, or `all`, one per object. download=yes fetches what is missing.
    """
    options = spec.take(year="2012", split="val", objects="largest", download="no")
    year = spec.one_of("year", options["year"], YEARS)
    split = spec.one_of("split", options["split"], VOC_SPLITS)
    objects = spec.one_of("objects", options["objects"], OBJECTS)
    download = spec.one_of("download", options["download"], ("no", "yes")) == "yes"
    if split == "test" and year != "2007":
        raise UserError(f"the test split of VOC {year} has no published masks", allowed="split=val, train or trainval")
    root = _voc_folder(spec, year, split, download)
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


def _voc_folder(spec: Spec, year: str, split: str, download: bool) -> Path:
    places = ("", f"VOC{year}", f"VOCdevkit/VOC{year}", f"TrainVal/VOCdevkit/VOC{year}")

    def find(folder: Path) -> Path | None:
        return next((folder / one for one in places if (folder / one / "SegmentationObject").is_dir()), None)

    def fetch(folder: Path) -> None:
        from torchvision.datasets import VOCSegmentation

        VOCSegmentation(folder, year=year, image_set=split, download=True)

    return downloaded(spec, find, fetch, download, f"VOCdevkit/VOC{year}/SegmentationObject, JPEGImages, …")


_SIDES = ("xmin", "ymin", "xmax", "ymax")
