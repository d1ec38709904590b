"""Checks of data from files: every value has the type that its field declares, or a UserError says which has not.

card = read_object("head.json", {"base": str, "labels": dict[str, Any]})
row = checked(Row, {"source_id": "dog", "edit": "original"}, "rows/dog.json, row 1")
"""

from __future__ import annotations

import dataclasses
import functools
import platform
import types
from collections import abc
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from unswayed.errors import UserError

from .whole import canonical, read_json

Record = TypeVar("Record")
_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


def read_object(path: str | Path, kinds: Mapping[str, Any] | None = None, run: str | None = None) -> dict[str, Any]:
    """The JSON object in a file; `kinds`: fields that it must have, each with its type."""
    value = read_json(path)
    require_fields(value, kinds or {}, str(path), run)
    return value


def require_fields(value: Any, kinds: Mapping[str, Any], where: str, run: str | None = None) -> None:
    """Raise UserError unless `value` is an object whose fields have these types; a type with None may be missing."""
    if not isinstance(value, dict):
        raise UserError(f"{where} contains {_shown(value)}", allowed="a JSON object", run=run)
    for name, kind in kinds.items():
        if not fits(value.get(name), kind):
            found = f"is {_shown(value[name])}" if name in value else "is missing"
            raise UserError(f"{where}: the field '{name}' {found}", allowed=_words(kind), run=run)


def checked(kind: type[Record], value: Any, where: str, run: str | None = None) -> Record:
    """The dataclass `kind` from an object; fields that it does not have are ignored."""
    declared: Any = kind
    hints, needed = _declared(declared)
    require_fields(value, {name: hints[name] for name in needed}, where, run)
    require_fields(value, {name: hints[name] for name in hints if name in value}, where, run)
    return kind(**{name: value[name] for name in hints if name in value})


def fits(value: Any, kind: Any) -> bool:
    """Whether a value from JSON has a type such as `str`, `int | None`, `list[str]`, `dict[str, float]` or a Literal.

    >>> fits([1, 2.5], list[float]), fits(True, int), fits(10**30, int)
    (True, False, False)
    """
    if kind is Any:
        return True
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is list:
        return isinstance(value, list | tuple) and all(fits(one, parts[0]) for one in value)
    if origin in (dict, abc.Mapping):
        return isinstance(value, dict) and all(fits(one, parts[1]) for one in value.values())
    if kind in (None, type(None)):
        return value is None
    if kind is int:
        # What does not fit into 64 bits is no label, count or seed, and no table can hold it.
        return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**64
    if kind is float:
        return isinstance(value, float) or fits(value, int)
    return isinstance(value, kind)


@functools.cache
def _declared(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """The types of a dataclass's fields by name, and the names of those without a default."""
    hints = get_type_hints(kind)
    made = [field for field in dataclasses.fields(kind) if field.init]
    missing = dataclasses.MISSING
    needed = [field.name for field in made if field.default is missing and field.default_factory is missing]
    return {field.name: hints[field.name] for field in made}, frozenset(needed)


def _words(kind: Any) -> str:
    parts = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join("nothing" if one is type(None) else _words(one) for one in parts)
    if get_origin(kind) is Literal:
        return ", ".join(parts)
    base = _WORDS.get(get_origin(kind) or kind, str(kind))
    return f"{base} of {_words(parts[-1])} each" if parts and parts[-1] is not Any else base


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits
        text = f"a very large {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}…"


def differences(there: Any, now: Any, where: str = "", words: tuple[str, str] = ("there", "now")) -> list[str]:
    """Return a line for each leaf in which two JSON values differ. words: the names of the two.

    >>> differences({"seed": 1, "recipe": {"name": "a"}}, {"seed": 2, "recipe": {"name": "a"}})
    ['seed: 1 there, 2 now']
    """
    if isinstance(there, dict) and isinstance(now, dict):
        names = [*there, *(name for name in now if name not in there)]
        return [
            line
            for name in names
            for line in differences(there.get(name), now.get(name), f"{where}.{name}" if where else name, words)
        ]
    if canonical(there) == canonical(now):
        return []
    if isinstance(there, list) and isinstance(now, list) and all(map(_is_named, [*there, *now])):
        old, new = ({item["name"]: item for item in items} for items in (there, now))
        both = {name: old[name] for name in old if name in new}
        alone = [(words[0], [name for name in old if name not in new]), (words[1], [n for n in new if n not in old])]
        lines = [f"{where}: only {word}: {', '.join(names)}" for word, names in alone if names]
        return lines + differences(both, {name: new[name] for name in both}, where, words)
    if isinstance(there, list) and isinstance(now, list) and len(there) == len(now):
        return [
            line
            for index, (one, other) in enumerate(zip(there, now, strict=True))
            for line in differences(one, other, f"{where}[{index}]", words)
        ]
    return [f"{where}: {_short(there)} {words[0]}, {_short(now)} {words[1]}"]


def _is_named(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("name"), str)


def _short(value: Any) -> str:
    text = canonical(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


# Distribution names of all that decide about pictures, answers and measures.
LIBRARIES = (
    "numpy",
    "opencv-python-headless",
    "pillow",
    "torch",
    "torchvision",
    "diffusers",
    "timm",
    "open_clip_torch",
    "transformers",
    "onnxruntime",
    "grad-cam",
    "pyarrow",
)


def versions() -> dict[str, str]:
    """The version of each installed library by its name, this package and Python first."""
    return {"unswayed": package_version(), "python": platform.python_version(), **_libraries()}


@functools.cache
def _libraries() -> dict[str, str]:
    """The versions of the installed libraries, which take a tenth of a second to read."""
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return found


def package_version() -> str:
    """The version of this package, also where it runs from a source tree that is not installed."""
    from unswayed import __version__

    return __version__
