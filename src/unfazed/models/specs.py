"""A model's name taken apart: `source:name?option=value&…+wrapper`."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

from unfazed.errors import UserError, unknown

WRAPPERS = ("tencrop", "bn-adapt")
LONGEST = 120  # letters of a file's name, which suffixes are added to


@dataclass(frozen=True)
class Spec:
    """One model, as the command line names it.

    >>> Spec.parse("timm:resnet50?checkpoint=w.pt+tencrop")
    Spec(source='timm', name='resnet50', options={'checkpoint': 'w.pt'}, wrappers=('tencrop',))
    """

    source: str
    name: str
    options: dict[str, str] = field(default_factory=dict)
    wrappers: tuple[str, ...] = ()

    @staticmethod
    def parse(text: str) -> Spec:
        source, colon, rest = text.strip().partition(":")
        if not colon or not source or not rest:
            raise UserError(
                f"{text!r} names no model", allowed="source:name, as in timm:resnet50", run="unfazed models"
            )
        wrappers: list[str] = []
        while "+" in rest and (rest.rpartition("+")[2] in WRAPPERS or _looks_like_wrapper(rest)):
            rest, _, wrapper = rest.rpartition("+")
            if wrapper not in WRAPPERS:
                raise unknown("wrapper", f"+{wrapper}", [f"+{one}" for one in WRAPPERS])
            wrappers.insert(0, wrapper)
        name, _, query = rest.partition("?")
        options = {}
        for item in filter(None, query.split("&")):
            key, equals, value = item.partition("=")
            if not equals:
                raise UserError(f"the option {item!r} of {text!r} has no value", allowed="?name=value&name=value")
            options[key] = value
        return Spec(source, name, options, tuple(wrappers))

    def check_options(self, *allowed: str) -> None:
        for name in self.options:
            if name not in allowed:
                raise unknown(f"option of {self.source}:", name, allowed)

    def __str__(self) -> str:
        query = "&".join(f"{key}={value}" for key, value in self.options.items())
        return (
            f"{self.source}:{self.name}" + (f"?{query}" if query else "") + "".join(f"+{one}" for one in self.wrappers)
        )

    def without_wrappers(self) -> Spec:
        return Spec(self.source, self.name, self.options)

    def to_json(self) -> dict[str, Any]:
        return {"source": self.source, "name": self.name, "options": self.options, "wrappers": list(self.wrappers)}


def slug_of(name: str) -> str:
    """A model's name as a file may be called.

    >>> slug_of("timm:vit_tiny.augreg+tencrop")
    'timm-vit_tiny.augreg+tencrop'
    """
    slug = re.sub(r"[^A-Za-z0-9._+=-]+", "-", name).strip("-.") or "model"
    if name.isascii() and len(slug) <= LONGEST:
        return slug
    # Letters are lost: two such names must still be two files.
    return f"{slug[: LONGEST - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _looks_like_wrapper(rest: str) -> bool:
    """A `+word` at the end that is no part of a file name."""
    word = rest.rpartition("+")[2]
    return bool(word) and word.replace("-", "").isalpha() and "." not in word and "/" not in word
