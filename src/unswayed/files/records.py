"""Records: values from JSON files, checked against declared types by msgspec, and what the cards of results contain.

card = read_object("head.json", {"base": str, "labels": dict[str, Any]})
row = checked(Row, {"source_id": "dog", "edit": "original"}, "rows/dog.json, row 1")
"""

from __future__ import annotations

import contextlib
import functools
import platform
import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NotRequired, TypedDict, TypeVar, get_args, get_type_hints

from unswayed.errors import UserError

from .whole import Json, canonical, read_json

Record = TypeVar("Record")
_WORDS = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false"}
_WORDS |= {"object": "an object", "array": "a list", "null": "nothing"}
# Distribution names of all that decide about pictures, answers and measures.
LIBRARIES = (
    *("numpy", "opencv-python-headless", "pillow", "torch", "torchvision", "diffusers", "timm", "open_clip_torch"),
    *("transformers", "onnxruntime", "grad-cam", "pyarrow"),
)


def read_object(path: str | Path, kinds: Mapping[str, object] | None = None, run: str | None = None) -> Json:
    """The JSON object in a file; `kinds`: fields that it must have, each with its type."""
    value = read_json(path)
    require_fields(value, kinds or {}, str(path), run)
    return value


def require_fields(value: object, kinds: Mapping[str, object], where: str, run: str | None = None) -> None:
    """Raise UserError unless `value` is an object whose fields have these types; a type with None may be missing."""
    checked(_object_type(tuple(kinds.items())), value, where, run)


def checked_rows(kind: type[Record], values: Iterable[object], where: str, run: str | None = None) -> list[Record]:
    """Every value as `checked` reads it; errors have its number."""
    return [checked(kind, value, f"{where}, row {number}", run) for number, value in enumerate(values, 1)]


def checked(kind: type[Record], value: object, where: str, run: str | None = None, strict: bool = True) -> Record:
    """`value` as a dataclass or another type; fields that it does not declare are ignored. strict: whether a number
    given as text is refused.

    >>> checked(list[float], [1, 2.5], "numbers.json")
    [1.0, 2.5]
    >>> checked(dict[str, list[str]], {"cat": ["tabby", 3]}, "groups.json")
    Traceback (most recent call last):
    unswayed.errors.UserError: groups.json: the field '[...][1]' is of the type int
    allowed: text
    """
    import msgspec

    try:
        return msgspec.convert(value, kind, builtin_types=(bytes,), strict=strict)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`")
    field = path.lstrip(".")
    if missing := re.fullmatch("Object missing required field `(.*)`", problem):
        field = f"{field}.{missing[1]}".lstrip(".")
        raise UserError(f"{where}: the field '{field}' is missing", allowed="an object with this field", run=run)
    if wanted := re.fullmatch("Expected `(.*)`, got `(.*)`", problem):
        allowed = " or ".join(_WORDS.get(word, word) for word in wanted[1].split(" | "))
    else:  # a value that its Literal does not list
        kinds = get_args(get_type_hints(kind).get(field))  # its values, or of `Literal["a"] | None` two types
        allowed = ", ".join(map(str, get_args(next(iter(kinds), None)) or kinds)) or problem
    if "[...]" in path:  # msgspec does not name the key of a dict in which a value is wrong
        given = f"of the type {wanted[2]}" if wanted else "not as declared"
    else:
        inner: Any = value
        for name, index in re.findall(r"\.([^.[]*)|\[(\d+)\]", path):
            inner = inner[int(index)] if index else inner[name]
        given = _short(repr(inner))
    if not path:
        raise UserError(f"{where} contains {given}", allowed=allowed.replace("an object", "a JSON object"), run=run)
    raise UserError(f"{where}: the field '{field}' is {given}", allowed=allowed, run=run)


def fits(value: object, kind: Any) -> bool:
    """Whether a value from JSON has a type such as `str`, `int | None`, `list[str]`, `dict[str, float]` or a Literal.

    >>> fits([1, 2.5], list[float]), fits(True, int)
    (True, False)
    """
    try:
        checked(kind, value, "")
    except UserError:
        return False
    return True


@functools.lru_cache(maxsize=256)
def _object_type(kinds: tuple[tuple[str, object], ...]) -> Any:
    """The type of an object with these fields; those that may be None may be missing."""
    fields = {name: NotRequired[kind] if type(None) in get_args(kind) else kind for name, kind in kinds}
    return TypedDict("Record", fields)  # type: ignore[operator]


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"


def differences(there: Any, now: Any, where: str = "", words: tuple[str, str] = ("there", "now")) -> list[str]:
    """Return a line for each leaf in which two JSON values differ. words: the names of the two.

    >>> differences({"seed": 1, "recipe": {"name": "a"}}, {"seed": 2, "recipe": {"name": "a"}})
    ['seed: 1 there, 2 now']
    """
    if canonical(there) == canonical(now):
        return []
    listed, lines, old, new = isinstance(there, list) and isinstance(now, list), [], there, now
    if listed and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in [*there, *now]):
        old, new = ({item["name"]: item for item in items} for items in (there, now))
        only = (
            (words[0], [name for name in old if name not in new]),
            (words[1], [name for name in new if name not in old]),
        )
        lines = [f"{where}: only {word}: {', '.join(names)}" for word, names in only if names]
        old, new = ({name: items[name] for name in old if name in new} for items in (old, new))
    elif listed and len(there) == len(now):
        pairs = zip(there, now, strict=True)
        return [line for index, pair in enumerate(pairs) for line in differences(*pair, f"{where}[{index}]", words)]
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [f"{where}: {_short(canonical(there))} {words[0]}, {_short(canonical(now))} {words[1]}"]
    for name in {**old, **new}:
        lines += differences(old.get(name), new.get(name), f"{where}.{name}" if where else name, words)
    return lines


@functools.cache
def _libraries() -> dict[str, str]:
    """The versions of the installed libraries, which take a tenth of a second to read."""
    installed = {}
    for library in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[library] = metadata.version(library)
    return installed


def versions() -> dict[str, str]:
    """The version of each installed library by its name, this package and Python first."""
    from unswayed import __version__

    return {"unswayed": __version__, "python": platform.python_version(), **_libraries()}


def refuse_newer(card: Mapping[str, object], most: int, where: object) -> None:
    """Raises UserError for a file of a later version: its `format`, 1 if it states none, is above `most`."""
    number = card.get("format") or 1
    if not isinstance(number, int) or number > most:
        raise UserError(
            f"{where} has the format {number!r}, which a later version of unswayed wrote",
            allowed=f"formats 1 to {most}",
            run="pip install --upgrade unswayed",
        )
