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
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

from unswayed.errors import BadPicture, UserError
from unswayed.files.whole import MOST_TEXT, make_folder, read_file, read_lines
from unswayed.labels import imagenet, own
from unswayed.scene import Scene
from unswayed.specs import Spec

from .coco import OBJECTS
from .pictures import divided, read_numbers, read_picture, shrunk
from .source import Entry, Source, named


def downloaded(spec: Spec, below: Sequence[str], holding: str, layout: str, name: str, **arguments: object) -> Path:
    """The data set's folder: the first of those below the spec's path that holds the folder `holding`.

    If it is missing and the option download is `yes`, torchvision fetches the data set of that name into the path
    first; layout: what should be there.
    """
    wanted, path = spec.one_of("download", ("no", "yes")) == "yes", spec.path()
    folders = [path / name for name in below]
    if wanted and not any((folder / holding).is_dir() for folder in folders):
        try:
            from torchvision import datasets

            getattr(datasets, name)(make_folder(path), download=True, **arguments)
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"the data set of '{spec.kind}:' could not be downloaded into {path}: {error}",
                allowed=f"a network, or a folder with {layout} copied from elsewhere",
            ) from None
    for folder in folders:
        if (folder / holding).is_dir():
            return folder
    if wanted:
        raise UserError(f"the download into {path} is not complete", allowed=f"a folder with {layout}")
    joint = "&" if spec.options else "?"
    raise UserError(
        f"{path} does not hold the data set of '{spec.kind}:'",
        allowed=f"a folder with {layout}",
        run=f"the same command with '{spec.text}{joint}download=yes', where there is a network",
    )


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
    spec.check_options("split", "breeds", "download")
    split, breeds = spec.one_of("split", PET_SPLITS), spec.one_of("breeds", BREEDS)
    layout = "images/ and annotations/trimaps/, or oxford-iiit-pet/ with them"
    root = downloaded(spec, ("", "oxford-iiit-pet"), "annotations/trimaps", layout, "OxfordIIITPet")
    names = []
    for part in PET_SPLITS[:2] if split == "all" else (split,):
        # Its lines are `NAME CLASS SPECIES BREED`.
        listing = _there(root / "annotations" / f"{part}.txt", "the annotations of Oxford-IIIT Pet as published")
        lines = read_lines(listing, "list")
        names += [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
    breed_of = {name: name.rpartition("_")[0] for name in names}  # great_pyrenees_126 is a great_pyrenees
    foreign = sorted(set(breed_of.values()) - set(BREED_WNIDS))
    if foreign:
        raise UserError(f"{root} lists the breeds {', '.join(foreign[:5])}", allowed=", ".join(BREED_WNIDS))
    if breeds == "imagenet":
        names = [name for name in names if BREED_WNIDS[breed_of[name]]]
    labels = imagenet() if breeds == "imagenet" else own(map(class_name, BREED_WNIDS), "oxford-pet")
    entries = []
    for name in names:
        image, trimap = root / "images" / f"{name}.jpg", root / "annotations" / "trimaps" / f"{name}.png"
        entries.append(Entry(name, str(image), str(trimap), labels.index(class_name(breed_of[name]))))
    return Source(spec.text, labels, named(entries), load_pet)


def load_pet(entry: Entry) -> Scene:
    assert entry.mask is not None
    trimap = read_picture(entry.mask)[..., 0]
    return shrunk(Scene(entry.id, read_picture(entry.image), mask_of_trimap(trimap), entry.label))


def mask_of_trimap(trimap: np.ndarray) -> np.ndarray:
    """(H, W) uint8 of 1 pet, 2 background, 3 border -> (H, W) float32 of 0 and 1.

    The border is a band around the outline; it is divided along its middle, each pixel going to what is nearer.
    """
    unexpected = sorted(set(np.unique(trimap).tolist()) - {PET, BACKGROUND, BORDER})
    if unexpected:
        raise BadPicture(f"the trimap holds the values {unexpected[:5]}", allowed="1 pet, 2 background, 3 border")
    if not (trimap == PET).any():
        raise BadPicture("the trimap has no pet")
    if not (trimap == BACKGROUND).any():
        return np.ones(trimap.shape, np.float32)
    return divided(trimap == PET, trimap == BACKGROUND)


def class_name(breed: str) -> str:
    """The breed's ImageNet name where it is an ImageNet class, else its own.

    >>> class_name("japanese_chin"), class_name("shiba_inu")
    ('Japanese spaniel', 'shiba inu')
    """
    wnid = BREED_WNIDS[breed]
    return imagenet().classes[imagenet().index(wnid)] if wnid else breed.replace("_", " ")


def _there(path: Path, allowed: str) -> Path:
    if not os.path.exists(path):
        raise UserError(f"{path} does not exist", allowed=allowed)
    return path


YEARS = ("2012", "2011", "2010", "2009", "2008", "2007")
VOC_SPLITS = ("val", "train", "trainval", "test")
CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip


class VocObject(NamedTuple):
    """One object of an annotation: its number in SegmentationObject, its class, the share of the picture in its box."""

    number: int
    name: str
    share: float


def open_voc(spec: Spec) -> Source:
    """The segmented objects, labeled with VOC's 20 classes.

    year: 2012 (default) to 2007; split: val (default), train, trainval, or test of 2007; objects: `largest` (by its
    box), one scene per picture, or `all`, one per object; least: the least share of the picture that the box of a
    scene's object covers. download=yes fetches what is missing.
    """
    spec.check_options("year", "split", "objects", "least", "download")
    year, split = spec.one_of("year", YEARS), spec.one_of("split", VOC_SPLITS)
    objects, least = spec.one_of("objects", OBJECTS), spec.number("least", float, 0, 1, 0.0)
    if split == "test" and year != "2007":
        raise UserError(f"the test split of VOC {year} has no published masks", allowed="split=val, train or trainval")
    below = ("", f"VOC{year}", f"VOCdevkit/VOC{year}", f"TrainVal/VOCdevkit/VOC{year}")
    layout = f"VOCdevkit/VOC{year}/SegmentationObject, JPEGImages, …"
    root = downloaded(spec, below, "SegmentationObject", layout, "VOCSegmentation", year=year, image_set=split)
    listing = _there(root / "ImageSets" / "Segmentation" / f"{split}.txt", "the lists of PASCAL VOC as published")
    labels = own(CLASSES, "voc")
    entries = []
    for picture in " ".join(read_lines(listing, "list")).split():
        listed, problem = _voc_objects(root / "Annotations" / f"{picture}.xml")
        shown = [voc_object for voc_object in listed if voc_object.share >= least]
        if listed and not shown:
            continue
        if objects == "largest" and shown:
            shown = [max(shown, key=lambda voc_object: voc_object.share)]
        classes = {voc_object.number: labels.index(voc_object.name) for voc_object in listed}
        for number, name, _ in shown or [VocObject(0, "", 0.0)]:
            scene = f"{picture}-{number}.jpg" if objects == "all" else f"{picture}.jpg"
            image, mask = root / "JPEGImages" / f"{picture}.jpg", root / "SegmentationObject" / f"{picture}.png"
            label = labels.index(name) if name else None
            entries.append(Entry(scene, str(image), str(mask), label, problem, (number, classes)))
    return Source(spec.text, labels, named(entries), load_object)


def load_object(entry: Entry) -> Scene:
    assert entry.mask is not None
    (number, classes), numbers = entry.detail, read_numbers(entry.mask)
    mask = (numbers == number).astype(np.float32)
    if not mask.any():
        raise BadPicture(f"{entry.mask}: no pixel belongs to object {number}")
    there = [(label, numbers == other) for other, label in classes.items() if other != number]
    others = tuple((label, pixels) for label, pixels in there if pixels.any())
    return shrunk(Scene(entry.id, read_picture(entry.image), mask, entry.label, others=others))


def _voc_objects(path: Path) -> tuple[list[VocObject], str | None]:
    """The objects of an annotation file in their order, and what is wrong with it if they cannot be read."""
    try:
        tree = ElementTree.fromstring(read_file(path, MOST_TEXT))
        whole = float(tree.findtext("size/width") or 0) * float(tree.findtext("size/height") or 0)
        objects = []
        for number, element in enumerate(tree.iter("object"), 1):
            sides = (float(element.findtext(f"bndbox/{side}", "")) for side in ("xmin", "ymin", "xmax", "ymax"))
            left, top, right, bottom = sides
            name = element.findtext("name", "")
            if name not in CLASSES:
                return [], f"{path.name} has an object of the class '{name}'"
            objects.append(VocObject(number, name, (right - left) * (bottom - top) / (whole or 1)))
    except UserError as error:
        return [], f"its annotation {error.given}"
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # LookupError: an unknown encoding
        return [], f"its annotation {path} cannot be read ({error})"
    return objects, None if objects else f"{path.name} names no object"
