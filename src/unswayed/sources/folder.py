"""`folder:PATH`: a folder of photographs with masks, labeled by class folders or a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath

from unswayed.errors import UserError
from unswayed.masks.automatic_masks import made_note
from unswayed.masks.confidences import FILE, read_confidences
from unswayed.scene import Scene
from unswayed.specs import Spec, existing_folder

from .labeled import SPACES, Row, class_folder, label_space, name_remarks, pictures_below, read_table
from .mask_names import left_out, object_name, stem, without_masks
from .pictures import load_scene, read_picture, shrunk
from .slugs import unique_slugs
from .source import Entry, Source

TABLE = "labels.csv"
NO_MASK = (
    "there is no mask for it: none next to it (same name as PNG, or NAME_mask.png), none in masks/, none in a table; "
    "make one with `unswayed masks`, or add ?segment=auto to the source"
)


@dataclass(frozen=True)
class Listing:
    """The content of a folder: its root, the pictures' names relative to it, the candidate masks of each, and remarks
    about files that are neither."""

    root: Path
    pictures: tuple[str, ...]
    masks: dict[str, list[Path]]
    left_out: tuple[str, ...] = ()
    confidence: Mapping[str, float] = field(default_factory=dict)


def open_scenes(spec: Spec) -> Source:
    """The scenes of a folder.

    masks=DIR: the folder of the masks; labels=FILE: a table of file, label, mask; space: auto, imagenet-1k or own;
    segment=auto, grabcut, onnx:FILE …: makes a mask for a picture that has none.
    """
    root = spec.folder()
    options = spec.take(masks=None, labels=None, space="auto", segment=None)
    space = spec.one_of("space", options["space"], SPACES)
    segmenter = options["segment"]
    if segmenter is not None:
        from unswayed.masks.segment import open_segmenter

        open_segmenter(segmenter)
    listing = list_folder(root, None if options["masks"] is None else _within(root, options["masks"], spec.text))
    rows = _rows(root, listing, options["labels"])
    labels = label_space((row.label for row in rows), space)
    entries = tuple(
        _entry(scene_id, row, listing, None if row.label is None else labels.index(row.label), segmenter)
        for scene_id, row in zip(unique_slugs([row.file for row in rows]), rows, strict=True)
    )
    return Source(
        spec.text,
        labels,
        entries,
        partial(load_or_segment, segmenter=segmenter) if segmenter else load_masked,
        remarks=(*listing.left_out, *name_remarks(labels, (row.label for row in rows)), *_unlabeled(rows)),
    )


def load_masked(entry: Entry) -> Scene:
    """The entry's scene; a mask that `unswayed masks` made has a note with its confidence."""
    scene = load_scene(entry)
    if entry.detail is None:
        return scene
    return replace(scene, notes=(*scene.notes, made_note("`unswayed masks`", entry.detail)))


def load_or_segment(entry: Entry, segmenter: str) -> Scene:
    """The entry's scene; without a mask file, with a mask made by the segmenter and a note about it."""
    if entry.mask is not None:
        return load_masked(entry)
    from unswayed.masks.segment import segmented

    return shrunk(segmented(entry.id, read_picture(entry.image), entry.label, segmenter))


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
    if not beside:
        names, others = without_masks(names)
        return Listing(root, tuple(names), masks, left_out(others), confidences(masks_folder))
    no_png = {stem(name) for name in names if not name.lower().endswith(".png")}
    pictures = []
    for name in names:
        of = object_name(name) or (stem(name) if name.lower().endswith(".png") and stem(name) in no_png else None)
        if of is None:
            pictures.append(name)
        else:
            masks[of].append(root / name)
    return Listing(root, tuple(pictures), masks, confidence=confidences(masks_folder))


def confidences(masks_folder: Path | None) -> dict[str, float]:
    """The confidence in [0, 1] of each mask that `unswayed masks` made in a folder, by its picture without suffix."""
    path = None if masks_folder is None else masks_folder / FILE
    if path is None or not path.is_file():
        return {}
    return {stem(row["picture"]): row["confidence"] for row in read_confidences(path).to_pylist()}


def _rows(root: Path, listing: Listing, labels: str | None) -> list[Row]:
    """One row per scene: those of the table, if there is one, else every picture with its class folder as label."""
    if labels is None and not (root / TABLE).is_file():
        return [Row(name, class_folder(name)) for name in listing.pictures]
    table = _within(root, labels) if labels is not None else root / TABLE
    rows = read_table(table)
    if rows and not any((listing.root / row.file).is_file() for row in rows):
        raise UserError(
            f"none of the {len(rows)} pictures that {table} names is in {listing.root}, such as {rows[0].file}"
        )
    return rows


def _entry(scene_id: str, row: Row, listing: Listing, label: int | None, segmenter: str | None) -> Entry:
    image = str(listing.root / row.file)
    if row.where and not Path(image).is_file():
        return Entry(scene_id, image, None, label, f"{row.where} names it, but there is no such file")
    if row.mask is not None:
        return Entry(scene_id, image, str(listing.root / row.mask), label)
    candidates = sorted(map(str, listing.masks.get(stem(row.file), ())))
    if len(candidates) > 1:
        names = ", ".join(PurePosixPath(one).name for one in candidates)
        return Entry(scene_id, image, None, label, f"it has more than one candidate mask: {names}; keep only one")
    if candidates:
        return Entry(scene_id, image, candidates[0], label, detail=listing.confidence.get(stem(row.file)))
    return Entry(scene_id, image, None, label, None if segmenter else NO_MASK)


def _unlabeled(rows: list[Row]) -> tuple[str, ...]:
    """A remark about pictures without a label beside pictures with one: no prediction for them is right or wrong."""
    missing = [row.file for row in rows if row.label is None]
    if not missing or len(missing) == len(rows):
        return ()
    count = f"{len(missing)} of {len(rows)} pictures are in no class folder and have no label"
    return (f"{count}, such as {missing[0]}; no model can be measured on them",)


def _within(root: Path, name: str, text: str | None = None) -> Path:
    """A path that the user gave: inside the source's folder if it exists there, else as written."""
    path = root / name if (root / name).exists() else Path(name).expanduser()
    return path if text is None else existing_folder(path, text)
