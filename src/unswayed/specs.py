"""The one grammar that names a source of scenes or a model: `kind:NAME?option=value&option=value+wrapper`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from unswayed.errors import UserError, check_known, unknown

_OPTIONS = re.compile(r"\?(?=[a-z_]+([=&]|$))")
# A `+word` at the end, unlike the `+` in a file's name such as `a+b.onnx`.
_WRAPPER = re.compile(r"\+([A-Za-z]+(?:-[A-Za-z]+)*)$")
# The kind of a model contains no `=`, so one before the first colon ends an alias.
_ALIAS = re.compile(r"([^\s:=?/+]+)=(?=[\w.-]+:)")
LONGEST = 120  # characters of a file's name, to which suffixes are added


@dataclass(frozen=True)
class Spec:
    """The parts of a name; `kind` determines what opens it, `name` is a path or the name of a model.

    >>> Spec.parse("timm:resnet50?checkpoint=w.pt+tencrop", wrappers=["tencrop"])
    Spec(text='timm:resnet50?checkpoint=w.pt+tencrop', kind='timm', name='resnet50', options={'checkpoint': 'w.pt'}, \
wrappers=('tencrop',))
    """

    text: str
    kind: str
    name: str = ""
    options: dict[str, str] = field(default_factory=dict)
    wrappers: tuple[str, ...] = ()

    @staticmethod
    def parse(text: str, wrappers: Sequence[str] = ()) -> Spec:
        """The parts of `text`; `%26`, `%3D`, `%2B` in an option's value stand for `&`, `=`, `+`.

        wrappers: the wrappers that may follow; with none, a `+` is an ordinary character.
        """
        text = text.strip()
        kind, _, rest = text.partition(":")
        wrapped: tuple[str, ...] = ()
        while wrappers and (wrapper := _WRAPPER.search(rest)):
            if wrapper[1] not in wrappers:
                raise unknown("wrapper", wrapper[0], [f"+{wrapper_name}" for wrapper_name in wrappers])
            wrapped, rest = (wrapper[1], *wrapped), rest[: wrapper.start()]
        start = _OPTIONS.search(rest)
        # A path that exists as written is a path, including its question mark.
        if start is None or os.path.exists(os.path.expanduser(rest)):
            return Spec(text, kind, rest, {}, wrapped)
        options: dict[str, str] = {}
        for part in rest[start.end() :].split("&"):
            name, _, value = part.partition("=")
            if not value:
                given = f"'{part}' in '{text}' is not an option: it has no value"
                raise UserError(given, allowed=f"{kind}:NAME?option=value&option=value")
            if name in options:
                raise UserError(f"the option '{name}' is given twice in '{text}'")
            options[name] = unquote(value)
        return Spec(text, kind, rest[: start.start()], options, wrapped)

    def check_options(self, *allowed: str) -> None:
        check_known(f"option of {self.kind}:", self.options, sorted(allowed))

    def take(self, **defaults: str | None) -> dict[str, str | None]:
        """The options with their defaults; an option without a default here is an error."""
        self.check_options(*defaults)
        return {**defaults, **self.options}

    def one_of(self, name: str, allowed: Sequence[str]) -> str:
        """The option `name`, which must be one of those allowed; without it the first of them."""
        value = self.options.get(name, allowed[0])
        check_known(f"value of the option '{name}' of {self.kind}:", [value], allowed)
        return value

    def number(self, name: str, kind: type, least: float, most: float, default: Any = None) -> Any:
        """The option `name` as a number, int or float; `default` without it."""
        if name not in self.options:
            return default
        with contextlib.suppress(ValueError):
            if least <= (value := kind(self.options[name])) <= most:
                return value
        allowed = f"{'a whole number' if kind is int else 'a number'} from {least:g} to {most:g}"
        raise UserError(f"the option {name} is '{self.options[name]}'", allowed=allowed)

    def without_wrappers(self) -> Spec:
        length = sum(len(wrapper) + 1 for wrapper in self.wrappers)
        return Spec(self.text[: len(self.text) - length], self.kind, self.name, self.options)

    def folder(self) -> Path:
        """The name as a path, which must be a folder."""
        return existing_folder(self.path(), self.text)

    def file(self) -> Path:
        """The name as a path, which must be a file."""
        path = self.path()
        if not path.is_file():
            reason = "is a folder" if path.is_dir() else "does not exist"
            raise UserError(f"{path} {reason}", allowed=f"a file, which '{self.text}' needs")
        return path

    def path(self) -> Path:
        """The name as a path, whether it exists or not."""
        if not self.name:
            raise UserError(f"the source '{self.text}' has no path", allowed=f"{self.kind}:PATH")
        return Path(self.name).expanduser()

    def __str__(self) -> str:
        return self.text


def existing_folder(path: Path, text: str) -> Path:
    """`path`, which must be a folder; `text` is the user's spec, for the message."""
    if not path.is_dir():
        reason = "is a file" if path.exists() else "does not exist"
        raise UserError(f"{path} {reason}", allowed=f"a folder, which '{text}' needs")
    return path


def split_specs(text: str) -> list[str]:
    """The specs that are separated by commas; the options of each may hold commas, too.

    >>> split_specs("timm:resnet50?mean=0.5,0.4,0.4,lite:2")
    ['timm:resnet50?mean=0.5,0.4,0.4', 'lite:2']
    """
    return re.split(r",(?=\w+:)", text)


def split_alias(name: str) -> tuple[str | None, str]:
    """The alias of `ALIAS=source:name`, None if there is none, and the rest.

    >>> split_alias("prod=timm:resnet50?checkpoint=w.pt"), split_alias("timm:resnet50?checkpoint=w.pt")
    (('prod', 'timm:resnet50?checkpoint=w.pt'), (None, 'timm:resnet50?checkpoint=w.pt'))
    """
    match = _ALIAS.match(name)
    return (match[1], name[match.end() :]) if match else (None, name)


def model_key(name: str) -> str:
    """A model's name with its paths resolved and without an alias, so that two ways to write one model are equal."""
    text, wrappers = split_alias(name)[1], ""
    while wrapper := _WRAPPER.search(text):
        text, wrappers = text[: wrapper.start()], wrapper[0] + wrappers
    spec = Spec.parse(text)
    options = [f"{key}={_resolved(value)}" for key, value in sorted(spec.options.items())]
    return f"{spec.kind}:{_resolved(spec.name)}{'?' * bool(options)}{'&'.join(options)}{wrappers}"


def is_same_model(first: str, second: str) -> bool:
    """Whether two names mean the same model: the same source, file or published name, options and wrappers; equal
    weights are not enough, since `lite:0+flip` has those of `lite:0`."""
    try:
        return first == second or model_key(first) == model_key(second)
    except UserError:  # the name of an object, which no source opens
        return False


def _resolved(text: str) -> str:
    """A path that exists, or one followed by `:function`, as an absolute path without links; other text as it is."""
    path, colon, function = text.rpartition(":")
    for candidate, rest in ((text, ""), (path, colon + function)):
        if candidate and os.path.exists(os.path.expanduser(candidate)):
            return os.path.realpath(os.path.expanduser(candidate)) + rest
    return text


def slug_of(name: str) -> str:
    """A model's name as a valid file name.

    >>> slug_of("timm:vit_tiny.augreg+tencrop")
    'timm-vit_tiny.augreg+tencrop'
    """
    slug = re.sub(r"[^A-Za-z0-9._+=-]+", "-", name).strip("-.") or "model"
    if name.isascii() and len(slug) <= LONGEST:
        return slug
    # Some characters are replaced, so a hash keeps two such names apart.
    return f"{slug[: LONGEST - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
