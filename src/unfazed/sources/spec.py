"""The one grammar that names a source: `kind`, `kind:PATH` or `kind:PATH?option=value&option=value`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from unfazed.errors import UserError, unknown

_OPTIONS = re.compile(r"\?[a-z]+=[^?]*$")


@dataclass(frozen=True)
class Spec:
    """A source's name in parts.

    >>> Spec.parse("coco:val.json?objects=all")
    Spec(text='coco:val.json?objects=all', kind='coco', path='val.json', options={'objects': 'all'})
    """

    text: str
    kind: str
    path: str = ""
    options: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> Spec:
        """The parts of `text`; `%26`, `%3D`, `%3F` in an option's value stand for `&`, `=`, `?`."""
        kind, _, rest = text.strip().partition(":")
        found = _OPTIONS.search(rest)
        # A path that exists as written is a path, question mark and all.
        if found is None or Path(rest).expanduser().exists():
            return Spec(text, kind, rest)
        options: dict[str, str] = {}
        for part in found.group()[1:].split("&"):
            name, equals, value = part.partition("=")
            if not equals or not value:
                raise UserError(f"'{part}' in '{text}' is no option", allowed="kind:PATH?option=value&option=value")
            if name in options:
                raise UserError(f"the option '{name}' is given twice in '{text}'")
            options[name] = unquote(value)
        return Spec(text, kind, rest[: found.start()], options)

    def take(self, **defaults: str | None) -> dict[str, str | None]:
        """The options with their defaults; one that the source does not know is an error."""
        for name in self.options:
            if name not in defaults:
                raise unknown(f"option of the source '{self.kind}' named", name, sorted(defaults))
        return {**defaults, **self.options}

    def one_of(self, name: str, value: str | None, allowed: tuple[str, ...]) -> str:
        """`value` if it is among those allowed for the option `name`."""
        if value not in allowed:
            raise unknown(f"value of the option '{name}' of the source '{self.kind}':", str(value), allowed)
        return value

    def folder(self) -> Path:
        """The source's path, which must be a folder."""
        return existing_folder(self._path(), self.text)

    def file(self) -> Path:
        """The source's path, which must be a file."""
        path = self._path()
        if not path.is_file():
            raise UserError(f"{path} is {'a folder' if path.is_dir() else 'not there'}, '{self.text}' needs a file")
        return path

    def _path(self) -> Path:
        if not self.path:
            raise UserError(f"the source '{self.text}' has no path", allowed=f"{self.kind}:PATH")
        return Path(self.path).expanduser()


def existing_folder(path: Path, text: str) -> Path:
    """`path`, which must be a folder; `text` is where the user named it."""
    if not path.is_dir():
        raise UserError(f"{path} is {'a file' if path.exists() else 'not there'}, '{text}' needs a folder")
    return path
