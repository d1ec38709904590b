"""`sample`: the 20 photographs of animals that come with the package, public domain or CC0.

Their labels are the *nearest* ImageNet class: if the animal itself is not an ImageNet class, the class that looks
most similar (a duck is `goose`, a hedgehog `porcupine`, a kangaroo `wallaby`).
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from importlib import resources

from unswayed.errors import UserError
from unswayed.labels import imagenet
from unswayed.specs import Spec

from .pictures import load_scene
from .source import Entry, Source

_FOLDER = resources.files("unswayed.data").joinpath("sample")


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
    lines = _FOLDER.joinpath("CREDITS.csv").read_text(encoding="utf-8").splitlines()
    return tuple(
        Credit(row["file"], int(row["label"]), row["wnid_name"], row["author"], row["licence"], row["source"])
        for row in csv.DictReader(lines)
    )


def open_sample(spec: Spec) -> Source:
    spec.take()
    if spec.name:
        raise UserError(f"the source 'sample' takes no path, but '{spec.name}' was given", allowed="sample")
    entries = []
    for credit in credits():
        image, mask = (str(_FOLDER.joinpath(f"{credit.id}.{suffix}")) for suffix in ("jpg", "png"))
        entries.append(Entry(credit.id, image, mask, credit.label))
    return Source(spec.text, imagenet(), tuple(entries), load_scene)
