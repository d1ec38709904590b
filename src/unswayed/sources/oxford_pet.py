"""`oxford-pet:PATH`: Oxford-IIIT Pet (Parkhi et al. 2012, CC BY-SA 4.0), about 200 photographs of each of 37 breeds.

In torchvision's layout: `PATH/oxford-iiit-pet/images/*.jpg` and `…/annotations/{trainval,test}.txt`, `…/trimaps/*.png`.
"""

from __future__ import annotations

import csv
import os
from importlib import resources
from pathlib import Path

import numpy as np

from unswayed.errors import BadPicture, UserError
from unswayed.files.whole import read_lines
from unswayed.labels import imagenet, own
from unswayed.scene import Scene
from unswayed.specs import Spec

from .pictures import read_picture, shrunk
from .slugs import unique_slugs
from .source import Entry, Source
from .torchvision_sets import downloaded

SPLITS = ("test", "trainval", "all")
BREEDS = ("imagenet", "all")
PET, BACKGROUND, BORDER = 1, 2, 3

# Breed as the files name it -> WNID of the ImageNet-1k class that means it, or "" where there is none.
_TABLE = resources.files("unswayed.data").joinpath("oxford_pet_breeds.csv").read_text(encoding="utf-8")
BREED_WNIDS = {row["breed"]: row["wnid"] for row in csv.DictReader(_TABLE.splitlines())}


def open_scenes(spec: Spec) -> Source:
    """The photographs with their pets as objects.

    split: test (default), trainval or all. breeds: `imagenet` (default), the 25 breeds that are ImageNet classes,
    labeled as such, so that every ImageNet classifier answers; `all`, the 37 breeds as a label space of their own, in
    which those 25 have ImageNet's names. download=yes fetches what is missing.
    """
    options = spec.take(split="test", breeds="imagenet", download="no")
    split = spec.one_of("split", options["split"], SPLITS)
    breeds = spec.one_of("breeds", options["breeds"], BREEDS)
    root = _root(spec, spec.one_of("download", options["download"], ("no", "yes")) == "yes")
    names = [name for one in (SPLITS[:2] if split == "all" else (split,)) for name in _listed(root, one)]
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


def _root(spec: Spec, download: bool) -> Path:
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
