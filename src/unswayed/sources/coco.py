"""`coco:ANNOTATIONS`: the objects of a COCO annotation file, all of them or the largest of each picture.

Their masks are polygons, run lengths or compressed run lengths. `OtherObject`: an object of a scene beside the edited
one, kept as JSON text.
"""

from __future__ import annotations

import contextlib
import json
import math
import operator
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import ModuleType

import cv2
import numpy as np

from unswayed.errors import BadPicture, UserError, need
from unswayed.files.records import checked, checked_rows, require_fields
from unswayed.files.whole import parse_json, read_json
from unswayed.labels import own
from unswayed.scene import Scene
from unswayed.specs import Spec, existing_folder

from .pictures import LONGEST_SIDE, read_picture, shrunk
from .source import Entry, Source, named

OBJECTS = ("largest", "all")
MOST_BYTES = 2**30


@dataclass(frozen=True)
class _Picture:
    id: int
    file_name: str
    height: int
    width: int


@dataclass(frozen=True)
class _Annotation:
    id: int
    image_id: int
    category_id: int
    segmentation: object
    area: float | None = None
    bbox: list[float] | None = None
    iscrowd: int | bool | None = None

    @property
    def size(self) -> float:
        """The area in pixels, that of the box where the file does not state it."""
        return self.area or math.prod((self.bbox or [0] * 4)[2:])


@dataclass(frozen=True)
class _Category:
    id: int
    name: str


@dataclass(frozen=True)
class _Content:
    images: list[_Picture]
    annotations: list[_Annotation]
    categories: list[_Category]


def open_coco(spec: Spec) -> Source:
    """The annotated objects, labeled by category, each with the other objects of its picture; crowds are left out.

    images=DIR: the folder of the pictures (by default it is searched for near the annotations);
    objects: `largest`, one scene per picture, or `all`, one per object; least: the least share of the picture that the
    object of a scene covers.
    """
    path = spec.file()
    spec.check_options("images", "objects", "least")
    objects, least = spec.one_of("objects", OBJECTS), spec.number("least", float, 0, 1, 0.0)
    content = _read(path)
    pictures = {picture.id: picture for picture in content.images}
    folder = _pictures_folder(path, spec.options.get("images"), content.images, spec.text)
    categories = sorted(content.categories, key=lambda category: category.id)
    labels = own([category.name for category in categories], "coco")
    index_of = {category.id: index for index, category in enumerate(categories)}
    ordered = sorted(content.annotations, key=lambda annotation: (annotation.image_id, annotation.id))
    chosen: dict[object, _Annotation] = {}
    together: dict[int, list[_Annotation]] = {}
    for annotation in ordered:
        if annotation.iscrowd or annotation.image_id not in pictures:
            continue
        together.setdefault(annotation.image_id, []).append(annotation)
        picture = pictures[annotation.image_id]
        if annotation.size < least * picture.height * picture.width:
            continue
        scene = annotation.image_id if objects == "largest" else len(chosen)
        if scene not in chosen or annotation.size > chosen[scene].size:
            chosen[scene] = annotation
    entries = []
    for annotation in chosen.values():
        picture = pictures[annotation.image_id]
        name = PurePosixPath(picture.file_name)
        if not name.name:
            raise UserError(f"picture {picture.id} has the file_name {picture.file_name!r}", allowed="a file's name")
        if objects == "all":
            name = name.with_stem(f"{name.stem}-{annotation.id}")
        others = [
            (index_of.get(other.category_id), other.segmentation)
            for other in together[annotation.image_id]
            if other is not annotation
        ]
        detail = annotation.id, annotation.segmentation, picture.height, picture.width, others
        label = index_of.get(annotation.category_id)
        entries.append(Entry(str(name), str(folder / picture.file_name), None, label, detail=detail))
    crowds = sum(bool(annotation.iscrowd) for annotation in ordered)
    remarks = (f"{crowds:,} crowds of several objects under one outline are left out",) if crowds else ()
    return Source(spec.text, labels, named(entries), load_annotated, remarks=remarks)


def load_annotated(entry: Entry) -> Scene:
    number, segmentation, high, wide, listed = entry.detail
    image = read_picture(entry.image)
    try:
        if image.shape[:2] != (high, wide):
            raise ValueError(f"it is for a picture of {wide}×{high}, and this one is {image.shape[1]}×{image.shape[0]}")
        mask = annotated_mask(segmentation, high, wide)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadPicture(f"{entry.image}: annotation {number} cannot be used: {error}") from None
    others = []
    for label, outline in listed:
        with contextlib.suppress(ValueError, TypeError, OverflowError):  # the scene itself can be used without it
            others.append((label, annotated_mask(outline, high, wide)))
    return shrunk(Scene(entry.id, image, mask, entry.label, others=tuple(others)))


def _read(path: Path) -> _Content:
    """The content of the file, without annotations that have no outline, such as key points."""
    where = f"{path} is not a COCO annotation file with objects"
    content = read_json(path, MOST_BYTES)
    require_fields(content, {"annotations": list}, where)
    outlined = [item for item in content["annotations"] if isinstance(item, dict) and "segmentation" in item]
    return checked(_Content, content | {"annotations": outlined}, where)


def _pictures_folder(path: Path, given: str | None, pictures: list[_Picture], text: str) -> Path:
    """The folder of the pictures: as given, else the first likely folder that holds one of the first pictures."""
    if given is not None:
        return existing_folder(Path(given).expanduser(), text)
    split = path.stem.rpartition("_")[2]
    first = [picture.file_name for picture in pictures[:20]]
    for root in (path.parent, path.parent.parent):
        for inner in (split, f"images/{split}", "images", ""):
            if any(os.path.isfile(root / inner / name) for name in first):
                return root / inner
    raise UserError(
        f"the pictures of {path}, such as {first[:1]}, were not found near it", allowed=f"coco:{path}?images=DIR"
    )


# Polygons are drawn this many times larger and averaged, which anti-aliases their edges.
# Pictures that are reduced later, because a side is above LONGEST_SIDE, do not need it.
_FINER = 4
MOST_POLYGONS = 1000
MOST_OVERLAP = 16  # pictures that the boxes around the polygons would fill
MOST_LINES, MOST_PAIRS = 5000, 2e10  # lines that meet one row; pairs of them, summed over the rows


def annotated_mask(segmentation: object, high: int, wide: int) -> np.ndarray:
    """The mask of an annotation's `segmentation`: (high, wide) float32 in [0, 1]; ValueError if it makes no sense."""
    if isinstance(segmentation, list):
        return polygon_mask(segmentation, high, wide)
    if isinstance(segmentation, dict) and {"counts", "size"} <= segmentation.keys():
        if list(segmentation["size"]) != [high, wide]:
            raise ValueError(f"its run lengths are for {segmentation['size']}, the picture is {[high, wide]}")
        return run_length_mask(segmentation["counts"], high, wide)
    raise ValueError("its segmentation is neither polygons nor run lengths")


def polygon_mask(polygons: Sequence[Sequence[float]], high: int, wide: int) -> np.ndarray:
    """The area inside any of the polygons [x0, y0, x1, y1, …]: (high, wide) float32 in [0, 1], edges by coverage."""
    if len(polygons) > MOST_POLYGONS:
        raise ValueError(f"it has {len(polygons)} polygons, more than {MOST_POLYGONS}")
    outlines = [np.asarray(polygon, np.float64).reshape(-1, 2) for polygon in polygons if len(polygon) >= 6]
    if not outlines:
        raise ValueError("it has no polygon of three points or more")
    far = max(high, wide)
    if not all(((outline > -far) & (outline < 2 * far)).all() for outline in outlines):
        raise ValueError("its polygons have coordinates that are not numbers or lie far outside the picture")
    finer = _FINER if high * wide <= LONGEST_SIDE**2 else 1
    fine = np.zeros((high * finer, wide * finer), np.uint8)
    area, pairs = 0, 0.0
    for outline in outlines:
        points = np.rint(outline * finer - 0.5).astype(np.int32)
        left, top = np.clip(points.min(0), 0, fine.shape[::-1])
        right, bottom = np.clip(points.max(0) + 1, 0, fine.shape[::-1])
        box = fine[top:bottom, left:right]
        area += box.size
        # How many lines meet each row; they are sorted there, so the time grows with the pairs of them.
        ends = np.stack([points[:, 1], np.roll(points[:, 1], -1)]) - points[:, 1].min()
        lines = np.cumsum(np.bincount(ends.min(0), minlength=int(ends.max()) + 1) - np.bincount(ends.max(0)))
        pairs += float((lines.astype(np.float64) ** 2).sum())
        if area > MOST_OVERLAP * fine.size or lines.max() > MOST_LINES or pairs > MOST_PAIRS:
            raise ValueError("its polygons overlap each other or cross themselves too often")
        if box.size == 0:
            continue
        # fillPoly counts the outline as inside; on average half of it is. Polygons are drawn separately and joined by
        # the maximum, so that overlapping polygons do not cancel out.
        shifted = [points - np.array([left, top], np.int32)]
        filled = cv2.fillPoly(np.zeros(box.shape, np.uint8), shifted, 255)
        np.maximum(box, cv2.polylines(filled, shifted, True, 128), out=box)
    return cv2.resize(fine, (wide, high), interpolation=cv2.INTER_AREA).astype(np.float32) / 255


def _pycocotools() -> ModuleType:
    need("coco", "pycocotools")
    from pycocotools import mask as coco

    return coco


def run_lengths(mask: np.ndarray) -> str:
    """A mask (H, W) bool as COCO's compressed run lengths, which `run_length_mask` reads."""
    coco = _pycocotools()
    return str(coco.encode(np.asfortranarray(mask, np.uint8))["counts"], "ascii")


def run_length_mask(counts: str | bytes | Sequence[int], high: int, wide: int) -> np.ndarray:
    """The mask of COCO's run lengths, as numbers or as a compressed string: (high, wide) float32 of zeros and ones."""
    coco = _pycocotools()
    if isinstance(counts, str | bytes):
        text = counts.encode("ascii") if isinstance(counts, str) else counts
        mask = coco.decode({"counts": text, "size": [high, wide]})
        # Where the run lengths end too early, pycocotools leaves the rest of the mask uninitialized without an error.
        if coco.encode(mask)["counts"] != text:
            raise ValueError(f"its compressed run lengths do not cover exactly the {high * wide} pixels of the picture")
        return mask.astype(np.float32)
    lengths = [operator.index(count) for count in counts]
    if min(lengths, default=0) < 0 or sum(lengths) != high * wide:
        raise ValueError(f"its run lengths cover {sum(lengths)} pixels, the picture has {high * wide}")
    size = [high, wide]
    return coco.decode(coco.frPyObjects({"counts": lengths, "size": size}, high, wide)).astype(np.float32)


Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels, from outer edge to outer edge


@dataclass(frozen=True)
class OtherObject:
    """An object that is not the edited one: its class, None if unknown, the box around its visible pixels, and their
    mask as COCO's compressed run lengths."""

    label: int | None
    box: Box
    mask: str


def box_of(mask: np.ndarray) -> Box | None:
    """The box (left, top, right, bottom) around a mask (H, W) bool, from outer edge to outer edge; None if empty.

    >>> box_of(np.array([[0, 0, 0], [0, 1, 1]], bool))
    (1.0, 1.0, 3.0, 2.0)
    """
    down, across = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not len(down):
        return None
    return float(across[0]), float(down[0]), float(across[-1] + 1), float(down[-1] + 1)


def objects_text(others: Iterable[tuple[int | None, np.ndarray]]) -> str | None:
    """The other objects, each a class and a mask (H, W) bool, as JSON text; those of which nothing is visible are left
    out, and None if that leaves none."""
    records = [
        {"label": label, "box": box, "mask": run_lengths(mask)}
        for label, mask in others
        if (box := box_of(mask)) is not None
    ]
    return json.dumps(records) if records else None


def read_objects(text: str | None, where: str) -> tuple[OtherObject, ...]:
    """The other objects in the text of a manifest; `where` names it in an error."""
    try:
        return tuple(checked_rows(OtherObject, parse_json(text, where), where)) if text else ()
    except (UserError, TypeError) as error:
        raise BadPicture(f"{where}: the other objects cannot be read: {error}") from None
