"""`folder:PATH`: photographs with masks; `images:PATH`: pictures without, to be classified (ImageNet validation, V2 …).

Both are labeled by class folders or by a table.
"""

from __future__ import annotations

import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from unswayed.errors import UserError
from unswayed.files.tables import Column
from unswayed.files.text_tables import read_csv
from unswayed.scene import MaskOrigin, Scene
from unswayed.specs import Spec, existing_folder

from .labeled import SPACES, Row, class_folder, label_space, name_remarks, pictures_below, read_table, within
from .pictures import load_scene, read_picture, shrunk
from .source import Entry, Source, named

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = "labels.csv"
CONFIDENCES = "confidence.csv"  # of the masks that `unswayed masks` made
MEASURES = ("confidence", "agreement", "edge", "size")
SEGMENTING = "unswayed.masks.segment"  # named and not imported, because masks are made to the right of sources
NO_MASK = (
    "there is no mask for it: none next to it (same name as PNG, or NAME_mask.png), none in masks/, none in a table; "
    "make one with `unswayed masks`, or add ?segment=auto to the source"
)


@dataclass(frozen=True)
class Listing:
    """The content of a folder: its root, the pictures' names relative to it, the candidate masks of each, the
    confidence in [0, 1] of those that `unswayed masks` made, and remarks about files that are neither."""

    root: Path
    pictures: list[str]
    masks: dict[str, list[Path]]
    confidence: dict[str, float]
    left_out: tuple[str, ...] = ()


def open_folder(spec: Spec) -> Source:
    """The scenes of a folder.

    masks=DIR: the folder of the masks; labels=FILE: a table of file, label, mask; space: auto, imagenet-1k or own;
    segment=auto, grabcut, onnx:FILE …: makes a mask for a picture that has none.
    """
    root = spec.folder()
    spec.check_options("masks", "labels", "space", "segment")
    space = spec.one_of("space", SPACES)
    masks, table, segmenter = (spec.options.get(name) for name in ("masks", "labels", "segment"))
    if segmenter is not None:
        pkgutil.resolve_name(f"{SEGMENTING}:open_segmenter")(segmenter)
    listing = list_folder(root, None if masks is None else existing_folder(within(root, masks), spec.text))
    rows = _rows(root, listing, table)
    labels = label_space((row.label for row in rows), space)
    entries = [_entry(row, listing, None if row.label is None else labels.index(row.label), segmenter) for row in rows]
    remarks = [*listing.left_out, *name_remarks(labels, (row.label for row in rows))]
    missing = [row.file for row in rows if row.label is None]
    if 0 < len(missing) < len(rows):  # no prediction for them is right or wrong
        count = f"{len(missing)} of {len(rows)} pictures are in no class folder and have no label"
        remarks.append(f"{count}, such as {missing[0]}; no model can be measured on them")
    load = partial(load_masked, segmenter=segmenter)
    return Source(spec.text, labels, named(entries), load, remarks=tuple(remarks))


def load_masked(entry: Entry, segmenter: str | None) -> Scene:
    """The entry's scene, with the origin of a mask that `unswayed masks` made; without a mask file, with a mask made by
    the segmenter and a note about it."""
    if entry.mask is None and segmenter is not None:
        segmented = pkgutil.resolve_name(f"{SEGMENTING}:segmented")
        return shrunk(segmented(entry.id, read_picture(entry.image), entry.label, segmenter))
    scene = load_scene(entry)
    if entry.detail is None:
        return scene
    origin = MaskOrigin("`unswayed masks`", entry.detail)
    return replace(scene, notes=(*scene.notes, str(origin)), mask_origin=origin)


def list_folder(root: Path, masks_folder: Path | None = None) -> Listing:
    """The pictures of a folder and the masks that belong to each by name.

    With `masks_folder` only that folder counts. Else a mask is in `masks/` under its picture's name, or next to its
    picture: `NAME_mask.*`, or `NAME.png` if the picture itself is not a PNG. `images/` may hold the pictures.
    """
    beside = masks_folder is None
    if masks_folder is None and (root / "masks").is_dir():
        masks_folder = root / "masks"
        root = root / "images" if (root / "images").is_dir() else root
    masks: dict[str, list[Path]] = defaultdict(list)
    names = pictures_below(root)
    if masks_folder is not None:
        for name in pictures_below(masks_folder):
            masks[object_name(name) or stem(name)].append(masks_folder / name)
        if masks_folder.is_relative_to(root):
            inside = masks_folder.relative_to(root).as_posix() + "/"
            names = [name for name in names if not name.startswith(inside)]
    # The confidence of each mask that `unswayed masks` made, by its picture without suffix.
    confidence = {}
    if masks_folder is not None and (masks_folder / CONFIDENCES).is_file():
        table = read_confidences(masks_folder / CONFIDENCES).to_pylist()
        confidence = {stem(row["picture"]): row["confidence"] for row in table}
    if not beside:
        names, others = without_masks(names)
        return Listing(root, names, masks, confidence, left_out(others))
    no_png = {stem(name) for name in names if not name.lower().endswith(".png")}
    pictures = []
    for name in names:
        of = object_name(name) or (stem(name) if name.lower().endswith(".png") and stem(name) in no_png else None)
        if of is None:
            pictures.append(name)
        else:
            masks[of].append(root / name)
    return Listing(root, pictures, masks, confidence)


def read_confidences(path: Path) -> pa.Table:
    """The rows of a table of confidences: picture and MEASURES, each in [0, 1]; the last three may be missing."""
    columns = {name: Column("number", nulls=name != "confidence", lowest=0, highest=1) for name in MEASURES}
    columns["picture"] = Column("text", nulls=False)
    return read_csv(path, columns, required=("picture", "confidence"), run="unswayed masks FOLDER -o MASKS")


def _rows(root: Path, listing: Listing, labels: str | None) -> list[Row]:
    """One row per scene: those of the table, if there is one, else every picture with its class folder as label."""
    if labels is None and not (root / TABLE).is_file():
        return [Row(name, class_folder(name)) for name in listing.pictures]
    table = within(root, labels) if labels is not None else root / TABLE
    rows = read_table(table)
    if rows and not any((listing.root / row.file).is_file() for row in rows):
        raise UserError(
            f"none of the {len(rows)} pictures that {table} names is in {listing.root}, such as {rows[0].file}"
        )
    return rows


def _entry(row: Row, listing: Listing, label: int | None, segmenter: str | None) -> Entry:
    entry = Entry(row.file, str(listing.root / row.file), None, label)
    if row.where and not Path(entry.image).is_file():
        return replace(entry, problem=f"{row.where} names it, but there is no such file")
    if row.mask is not None:
        return replace(entry, mask=str(listing.root / row.mask))
    candidates = sorted(map(str, listing.masks.get(stem(row.file), ())))
    if len(candidates) > 1:
        names = ", ".join(PurePosixPath(mask).name for mask in candidates)
        return replace(entry, problem=f"it has more than one candidate mask: {names}; keep only one")
    if candidates:
        return replace(entry, mask=candidates[0], detail=listing.confidence.get(stem(row.file)))
    return replace(entry, problem=None if segmenter else NO_MASK)


MASK_ENDINGS = ("_mask", "-mask", ".mask")


def stem(name: str) -> str:
    return PurePosixPath(name).with_suffix("").as_posix()


def object_name(name: str) -> str | None:
    """The picture's name without suffix that a file named as a mask belongs to; None if it is not named so."""
    plain = stem(name)
    return next((plain[: -len(ending)] for ending in MASK_ENDINGS if plain.endswith(ending)), None)


def outside_masks(name: str) -> str | None:
    """The name without the folder `masks` that it lies in, at any depth and in any case; None if there is none.

    >>> outside_masks("cat/Masks/1.png"), outside_masks("cat/1.png")
    ('cat/1.png', None)
    """
    parts = PurePosixPath(name).parts
    lower = [folder.lower() for folder in parts[:-1]]
    depth = lower.index("masks") if "masks" in lower else None
    return None if depth is None else "/".join(parts[:depth] + parts[depth + 1 :])


def without_masks(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """The names of the photographs, and those of the files that are the mask of one of them.

    A mask lies in a folder `masks` under its picture's name; where at least half of the files there do, all of them are
    left out. Or it lies beside its picture: `NAME_mask.*`, or `NAME.png` where the picture itself is no PNG.

    >>> without_masks(["dog/1.jpg", "dog/1.png", "cat/2.png", "cat/2_mask.png", "masks/dog/1.png", "hats/1.png"])
    (['dog/1.jpg', 'cat/2.png', 'hats/1.png'], ['dog/1.png', 'cat/2_mask.png', 'masks/dog/1.png'])
    """
    names = list(names)
    moved = {name: outside_masks(name) for name in names}
    outside = [name for name in names if moved[name] is None]
    stems = {stem(name) for name in outside}
    no_png = {stem(name) for name in outside if not name.lower().endswith(".png")}

    def is_mask(name: str) -> bool:
        picture = moved[name]
        if picture is not None:
            of = object_name(picture) or stem(picture)
            return of in stems or f"images/{of}" in stems
        return object_name(name) in stems or (name.lower().endswith(".png") and stem(name) in no_png)

    masks = {name for name in names if is_mask(name)}
    inside = {name for name in names if moved[name] is not None}
    if 2 * len(masks & inside) >= len(inside) > 0:
        # A folder of masks: what else lies there, such as a contact sheet, is no photograph either.
        masks |= inside
    return [name for name in names if name not in masks], [name for name in names if name in masks]


def left_out(masks: list[str]) -> tuple[str, ...]:
    """The remark that says which masks were not taken for photographs; empty where there are none."""
    count = f"{len(masks)} files are masks of other pictures and are"
    if len(masks) == 1:
        count = "1 file is the mask of another picture and is"
    return (f"{count} not counted as photographs, such as {masks[0]}",) if masks else ()


# ImageNet-C: ROOT/…/gaussian_noise/1/n01440764/NAME.
_CORRUPTED = re.compile(r"(?:^|/)([a-z]+(?:_[a-z]+)?)/([1-5])/(n\d{8})/[^/]+$")
TABLES = ("labels.csv", "labels.txt")


def open_images(spec: Spec) -> Source:
    """The pictures of a folder, labeled by class folders (WNID, name or index) or by a labels file.

    labels=FILE: lines of a picture's name and its label, or a CSV with the columns file and label; it may name
    missing pictures. space: auto, imagenet-1k or own.
    """
    root = spec.folder()
    spec.check_options("labels", "space")
    space = spec.one_of("space", SPACES)
    names, masks = without_masks(pictures_below(root))
    tables = [root / name for name in TABLES if (root / name).is_file()]
    if "labels" in spec.options:
        tables = [within(root, spec.options["labels"])]
    rows = _labeled(names, tables[0] if tables else None, root)
    labels = label_space((row.label for row in rows), space)
    entries = [Entry(row.file, str(root / row.file), None, labels.index(str(row.label))) for row in rows]
    remarks = (*left_out(masks), *name_remarks(labels, (row.label for row in rows)))
    return Source(spec.text, labels, named(entries), load_whole, has_masks=False, remarks=remarks)


def load_whole(entry: Entry) -> Scene:
    """The picture as a scene that is entirely object, since there is no mask."""
    image = read_picture(entry.image)
    mask = np.ones(image.shape[:2], np.float32)
    return Scene(entry.id, image, mask, entry.label, notes=("no mask: the whole picture counts as the object",))


def corruption_of(path: str) -> tuple[str, int, str] | None:
    """The corruption, severity and WNID of a picture in ImageNet-C's layout; None for any other path.

    >>> corruption_of("noise/gaussian_noise/3/n01440764/a.JPEG")
    ('gaussian_noise', 3, 'n01440764')
    """
    parts = _CORRUPTED.search(path)
    return None if parts is None else (parts[1], int(parts[2]), parts[3])


def _labeled(names: list[str], table: Path | None, root: Path) -> list[Row]:
    """One row per picture with a label; raises UserError if none has one."""
    if table is None:
        rows = [Row(name, corrupted[2]) for name in names if (corrupted := corruption_of(name)) is not None]
        rows = rows or [Row(name, class_folder(name)) for name in names if class_folder(name) is not None]
        if names and not rows:
            raise UserError(
                f"the {len(names)} pictures in {root} have no labels",
                allowed="class folders (WNID, name or index), a file labels.txt or labels.csv, or ?labels=FILE",
            )
        return rows
    by_name = {row.file: row.label for row in read_table(table)}
    # A labels file often has the name of the JPEG that a PNG was made from, so names without suffix match last.
    by_stem = {PurePosixPath(file).stem: label for file, label in by_name.items()}
    rows = [Row(name, by_name.get(name) or by_stem.get(PurePosixPath(name).stem)) for name in names]
    rows = [row for row in rows if row.label is not None]
    if names and not rows:
        raise UserError(f"{table} names none of the {len(names)} pictures in {root}, such as {names[0]}")
    return rows
