"""Edits: one file an attribute, each a frozen dataclass with its parameters declared on it; they compose."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from unfazed.errors import UserError, unknown

from .background import Background
from .blur import Blur
from .color import Colour
from .direction import Direction
from .lighting import Lighting
from .occlusion import Occlusion
from .parameters import allowed
from .position import Position
from .reinsertion import Reinsertion
from .size import Size

EDITS: dict[str, Any] = {
    edit.name: edit for edit in (Background, Size, Position, Direction, Occlusion, Lighting, Blur, Colour, Reinsertion)
}


def find_edit(name: str) -> Any:
    """The class of that name: of this package, or of any installed one that declares it as an entry point.

    A package adds its own edits in its pyproject.toml: [project.entry-points."unfazed.edits"] fog = "my_edits:Fog".
    """
    if name not in EDITS:
        add_installed()
    if name not in EDITS:
        raise unknown("edit", name, EDITS, run="unfazed edits")
    return EDITS[name]


def add_installed() -> None:
    """The edits of other installed packages, added to EDITS."""
    for point in entry_points(group="unfazed.edits"):
        EDITS.setdefault(point.name, point.load())


def make_edit(name: str, **parameters: Any) -> Any:
    """The edit of that name with these parameters; raises UserError with what is allowed.

    >>> make_edit("size", rate=0.05)
    Size(rate=0.05, start=0.25)
    """
    edit = find_edit(name)
    for parameter in parameters:
        allowed(edit, parameter)
    return edit(**parameters)


def parse_edit(name: str, text: str, **others: Any) -> Any:
    """The edit written `name=text`, as on the command line: its main parameter, or `X,Y` (`X/Y`) for position.

    >>> parse_edit("position", "0.2,0.8"), parse_edit("size", "full").rate
    (Position(x=0.2, y=0.8, start=0.25), 'full')
    """
    edit = find_edit(name)
    for parameter in others:
        allowed(edit, parameter)
    text = text.strip()
    if not text:
        raise UserError(f"{name} has no value", allowed=allowed(edit, edit.axis).describe(), run="unfazed edits")
    if hasattr(edit, "parse"):
        return edit.parse(text, **others)
    return edit(**{edit.axis: text, **others})
