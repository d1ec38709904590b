"""`sample`: the 20 photographs of animals that come with the package, public domain or CC0.

Their labels are the *nearest* ImageNet class: if the animal itself is not an ImageNet class, the class that looks
most similar (a duck is `goose`, a hedgehog `porcupine`, a kangaroo `wallaby`).
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from unswayed.errors import UserError
from unswayed.labels import imagenet
from unswayed.specs import Spec

from .pictures import load_scene
from .source import Entry, Source


@dataclass(frozen=True)
class Credit:
    """Who made a sample photograph and under which license; label: nearest ImageNet class."""

    id: str
    label: int
    nearest_class: str
    author: str
    license: str
    source: str


@functools.cache
def credits() -> tuple[Credit, ...]:
    """The credits of the sample photographs, in the sample's order."""
    lines = _folder().joinpath("CREDITS.csv").read_text(encoding="utf-8").splitlines()
    return tuple(
        Credit(row["file"], int(row["label"]), row["wnid_name"], row["author"], row["licence"], row["source"])
        for row in csv.DictReader(lines)
    )


def open_sample(spec: Spec) -> Source:
    """The embedded sample."""
    spec.take()
    if spec.name:
        raise UserError(f"the source 'sample' takes no path, but '{spec.name}' was given", allowed="sample")
    folder = _folder()
    entries = tuple(
        Entry(
            credit.id, str(folder.joinpath(f"{credit.id}.jpg")), str(folder.joinpath(f"{credit.id}.png")), credit.label
        )
        for credit in credits()
    )
    return Source(spec.text, imagenet(), entries, load_scene)


def _folder() -> Traversable:
    return resources.files("unswayed.data").joinpath("sample")
