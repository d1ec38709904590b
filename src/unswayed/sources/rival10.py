"""`rival10:PATH`: RIVAL10 as published: ten classes, the object's mask and the masks of its visual attributes.

`PATH/{train,test}/ordinary/<wnid>_<number>.JPEG` with `…_attr_labels.npy`, `…_attr_dict.pkl` next to it and
`PATH/{train,test}/entire_object_masks/<wnid>_<number>.JPEG`. The folders `superimposed` and `removed` next to
`ordinary` hold pictures to which an attribute was added, or from which one was removed, in the same layout.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

import cv2
import numpy as np

from unswayed.errors import BadPicture, UserError
from unswayed.labels import RIVAL10, LabelSpace, imagenet
from unswayed.scene import Scene
from unswayed.specs import Spec

from .labeled import listed
from .pickles import read_array, read_pickle
from .pictures import MOST_PIXELS, SUFFIXES, pixels_of, read_mask, read_picture, shrunk
from .source import Entry, Source, named

SPLITS = ("test", "train")
KINDS = ("ordinary", "superimposed", "removed")
SPACES = ("rival10", "imagenet-1k")
ATTRIBUTES = (
    *("long-snout", "wings", "wheels", "text", "horns", "floppy-ears", "ears", "colored-eyes", "tail"),
    *("mane", "beak", "hairy", "metallic", "rectangular", "wet", "long", "tall", "patterned"),
)
OBJECT = "entire-object"
_CLASS_OF = {wnid: index for index, wnids in enumerate(RIVAL10.values()) for wnid in wnids}


def open_rival10(spec: Spec) -> Source:
    """The scenes of a split, with the masks of the attributes that are present in `Scene.parts`.

    split: test or train; kind: ordinary, superimposed or removed pictures; space: `rival10`, its ten classes, or
    `imagenet-1k`, the class that each picture came from.
    """
    root = spec.folder()
    root = root / "RIVAL10" if (root / "RIVAL10").is_dir() else root
    spec.check_options("split", "space", "kind")
    folder = root / spec.one_of("split", SPLITS)
    own = LabelSpace("rival10", tuple(RIVAL10))
    labels = own if spec.one_of("space", SPACES) == "rival10" else imagenet()
    pictures = folder / spec.one_of("kind", KINDS)
    if not pictures.is_dir():
        there = sorted(f"{split}/{kind}" for split in SPLITS for kind in KINDS if (root / split / kind).is_dir())
        allowed = ", ".join(there) or "RIVAL10/test/ordinary and RIVAL10/train/ordinary"
        raise UserError(f"{pictures} does not exist", allowed=allowed)
    files, masks_folder = listed(pictures), folder / "entire_object_masks"
    masks = {path.stem: str(path) for path in listed(masks_folder)} if masks_folder.is_dir() else {}
    entries = []
    for path in files:
        if path.suffix.lower() not in SUFFIXES or path.stem.endswith("_merged_mask") or path.name.startswith("."):
            continue
        wnid = path.name.partition("_")[0]
        known = wnid in _CLASS_OF
        label = None if not known else _CLASS_OF[wnid] if labels.name == "rival10" else labels.index(wnid)
        problem = None if known else f"{wnid} is not a class of RIVAL10"
        detail = str(path.with_suffix(""))
        entries.append(Entry(path.name, str(path), masks.get(path.stem), label, problem, detail))
    return Source(spec.text, labels, named(entries), load_attributed)


def load_attributed(entry: Entry) -> Scene:
    masks = attribute_masks(f"{entry.detail}_attr_dict.pkl")
    whole = masks.pop(OBJECT, None)
    if entry.mask is not None:
        whole = _sharp(read_mask(entry.mask))
    if whole is None:
        raise BadPicture(f"{entry.image}: there is no mask of its object in entire_object_masks or in its attributes")
    image = read_picture(entry.image)
    high, wide = image.shape[:2]
    _check_pixels(high * wide * len(masks), entry.image)
    sized, notes = {}, []
    for name, mask in {OBJECT: whole, **masks}.items():
        if mask.shape != (high, wide):
            what = "the object's mask" if name == OBJECT else f"the mask of {name}"
            notes.append(f"{what} was resized from {mask.shape[1]}×{mask.shape[0]} to {wide}×{high}")
            # By the nearest pixel, as in the released code.
            mask = cv2.resize(mask, (wide, high), interpolation=cv2.INTER_NEAREST)
        sized[name] = mask
    whole = sized.pop(OBJECT)
    present = {name: mask for name, mask in sized.items() if mask.any()}
    return shrunk(Scene(entry.id, image, whole, entry.label, tuple(notes), present))


def attribute_masks(path: str | Path) -> dict[str, np.ndarray]:
    """The masks of a picture's attribute file by name: (H, W) float32 of zeros and ones; {} if there is none."""
    if not Path(path).is_file():
        return {}
    content = read_pickle(path)
    if not isinstance(content, dict):
        raise BadPicture(f"{path}: it holds a {type(content).__name__}", allowed="a dict of attribute to picture")
    pictures = {}
    for name, value in content.items():
        if value in (None, "", b""):
            continue
        if name not in (*ATTRIBUTES, OBJECT):
            known = ", ".join((*ATTRIBUTES, OBJECT))
            raise BadPicture(f"{path}: it has the attribute {str(name)[:60]!r}", allowed=known)
        try:
            # Encoders break lines, and browsers put "data:image/png;base64," in front.
            text = value.decode("ascii") if isinstance(value, bytes) else value
            pictures[name] = base64.b64decode("".join(text.rpartition("base64,")[2].split()), validate=True)
        except (AttributeError, ValueError, binascii.Error):
            raise BadPicture(f"{path}: the mask of '{name}' is not a base64 picture") from None
    # One picture may stand under all names, so a small file could need a large picture's memory many times.
    _check_pixels(sum(pixels_of(picture) for picture in pictures.values()), path)
    return {name: _sharp(read_mask(picture)) for name, picture in pictures.items()}


def _check_pixels(pixels: int, path: str | Path) -> None:
    if pixels > MOST_PIXELS:
        raise BadPicture(
            f"{path}: the masks of its attributes have {pixels // 10**6} megapixels in all",
            allowed=f"at most {MOST_PIXELS // 10**6}",
        )


def attribute_labels(source: Source, key: int | str) -> dict[str, bool]:
    """Which of the 18 attributes the picture has, as annotated (row 0 of its labels file)."""
    path = Path(f"{source.entry(key).detail}_attr_labels.npy")
    rows = np.atleast_2d(read_array(path))
    if rows.ndim != 2 or not len(rows) or rows.shape[1] != len(ATTRIBUTES):
        raise BadPicture(f"{path}: it has the shape {rows.shape}", allowed=f"({len(ATTRIBUTES)},) or more rows of them")
    return dict(zip(ATTRIBUTES, (bool(value) for value in rows[0]), strict=True))


def _sharp(mask: np.ndarray) -> np.ndarray:
    """The mask as zeros and ones: JPEG leaves artifacts around it that are not part of the object."""
    return (mask > 0.5).astype(np.float32)
