"""Which files of a folder are masks of other pictures, by their names alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

MASK_ENDINGS = ("_mask", "-mask", ".mask")
MASKS, IMAGES = "masks/", "images/"


def stem(name: str) -> str:
    """A relative name without its suffix."""
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
    *folders, file = PurePosixPath(name).parts
    place = next((index for index, folder in enumerate(folders) if folder.lower() == MASKS.rstrip("/")), None)
    return None if place is None else "/".join([*folders[:place], *folders[place + 1 :], file])


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
        place = moved[name]
        if place is not None:
            of = object_name(place) or stem(place)
            return of in stems or IMAGES + of in stems
        named = object_name(name)
        return (named is not None and named in stems) or (name.lower().endswith(".png") and stem(name) in no_png)

    masks = [name for name in names if is_mask(name)]
    inside = [name for name in names if moved[name] is not None]
    if 2 * sum(moved[name] is not None for name in masks) >= len(inside) > 0:
        # A folder of masks: what else lies there, such as a contact sheet, is no photograph either.
        masks = [name for name in names if name in set(masks) | set(inside)]
    left_out = set(masks)
    return [name for name in names if name not in left_out], masks


def left_out(masks: list[str]) -> tuple[str, ...]:
    """The remark that says which masks were not taken for photographs; empty where there are none."""
    if not masks:
        return ()
    count = "1 file is the mask of another picture and is" if len(masks) == 1 else (
        f"{len(masks)} files are masks of other pictures and are"
    )  # fmt: skip
    return (f"{count} not counted as photographs, such as {masks[0]}",)
