"""`images:PATH`: labeled pictures without masks (ImageNet validation, V2, R, A …), to be classified, not edited."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import numpy as np

from unswayed.errors import UserError
from unswayed.scene import Scene
from unswayed.specs import Spec

from .labeled import SPACES, Row, class_folder, label_space, name_remarks, pictures_below, read_table
from .mask_names import left_out, without_masks
from .pictures import read_picture
from .slugs import unique_slugs
from .source import Entry, Source

# ImageNet-C: ROOT/…/gaussian_noise/1/n01440764/NAME.
_CORRUPTED = re.compile(r"(?:^|/)([a-z]+(?:_[a-z]+)?)/([1-5])/(n\d{8})/[^/]+$")
TABLES = ("labels.csv", "labels.txt")


def open_scenes(spec: Spec) -> Source:
    """The pictures of a folder, labeled by class folders (WNID, name or index) or by a labels file.

    labels=FILE: lines of a picture's name and its label, or a CSV with the columns file and label; it may name
    missing pictures. space: auto, imagenet-1k or own.
    """
    root = spec.folder()
    options = spec.take(labels=None, space="auto")
    space = spec.one_of("space", options["space"], SPACES)
    names, masks = without_masks(pictures_below(root))
    rows = _labeled(names, _table(root, options["labels"]), root)
    labels = label_space((row.label for row in rows), space)
    entries = tuple(
        Entry(scene_id, str(root / row.file), None, labels.index(row.label))
        for scene_id, row in zip(unique_slugs([row.file for row in rows]), rows, strict=True)
        if row.label is not None
    )
    remarks = (*left_out(masks), *name_remarks(labels, (row.label for row in rows)))
    return Source(spec.text, labels, entries, load_whole, has_masks=False, remarks=remarks)


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
    found = _CORRUPTED.search(path)
    return None if found is None else (found[1], int(found[2]), found[3])


def _table(root: Path, given: str | None) -> Path | None:
    if given is not None:
        return root / given if (root / given).is_file() else Path(given).expanduser()
    return next((root / name for name in TABLES if (root / name).is_file()), None)


def _labeled(names: list[str], table: Path | None, root: Path) -> list[Row]:
    """One row per picture with a label; raises UserError if none has one."""
    if table is None:
        corrupted = {name: corruption_of(name) for name in names}
        rows = [Row(name, found[2]) for name, found in corrupted.items() if found is not None]
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
