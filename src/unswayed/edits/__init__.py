"""Edits: one file per attribute, each a frozen dataclass that declares its parameters and how it is used."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any

from unswayed.errors import UserError, unknown

from .background import Background
from .blur import Blur
from .color import Color
from .direction import Direction
from .edit import Edit
from .lighting import Lighting
from .occlusion import Occlusion
from .parameters import allowed
from .position import Position
from .reinsertion import Reinsertion
from .size import Size

ENTRY_POINTS = "unswayed.edits"
EDITS: dict[str, type[Edit]] = {
    edit.name: edit for edit in (Background, Size, Direction, Position, Occlusion, Lighting, Blur, Color, Reinsertion)
}


def find_edit(name: str) -> type[Edit]:
    """Return the edit class of that name, of this package or of an installed one that declares it as an entry point.

    A package adds its own edits in its pyproject.toml: [project.entry-points."unswayed.edits"] fog = "my_edits:Fog".
    """
    known = EDITS if name in EDITS else all_edits()
    former = {edit.former_name: edit for edit in known.values()}
    if name not in known and name not in former:
        raise unknown("edit", name, known, run="unswayed edits")
    return known.get(name) or former[name]


@functools.cache
def all_edits() -> dict[str, type[Edit]]:
    """Return the edits of this and other installed packages by name, in the order in which they are applied."""
    found = dict(EDITS)
    for point in entry_points(group=ENTRY_POINTS):
        edit = point.load()
        if not (isinstance(edit, type) and issubclass(edit, Edit) and edit.name == point.name):
            raise UserError(
                f"the entry point {point.name} = {point.value} is not an edit",
                allowed=f"a subclass of unswayed.edits.Edit whose name is '{point.name}'",
            )
        found.setdefault(point.name, edit)
    return dict(sorted(found.items(), key=lambda item: item[1].order))


def edit_named_in(text: str) -> type[Edit] | None:
    """Return the edit whose name the name of a recipe's item or attribute begins with; None if there is none.

    >>> edit_named_in("lighting-object+1.5").name, edit_named_in("made-up")
    ('lighting', None)
    """
    names = {name: edit for edit in all_edits().values() for name in (edit.name, edit.former_name) if name}
    found = [name for name in names if re.match(rf"{re.escape(name)}(?=[-+]|$)", text)]
    return names[max(found, key=len)] if found else None


def make_edit(name: str, **parameters: Any) -> Edit:
    """Return the edit of that name with these parameters; raises UserError with what is allowed.

    >>> make_edit("size", rate=0.05)
    Size(rate=0.05, start=0.25)
    """
    edit = find_edit(name)
    for parameter in parameters:
        allowed(edit, parameter)
    return edit(**parameters)


def edit_from(step: Mapping[str, Any]) -> Edit:
    """Return the edit of a complete record, as `parameters.as_json` writes it: {"edit": "size", "rate": 0.05}."""
    return make_edit(str(step.get("edit", "")), **{name: value for name, value in step.items() if name != "edit"})


def parse_edit(name: str, text: str, **others: Any) -> Edit:
    """Return the edit written `name=text`, as on the command line: its main parameter, or `X,Y` (`X/Y`) for position.

    >>> parse_edit("position", "0.2,0.8"), parse_edit("size", "full").rate
    (Position(x=0.2, y=0.8, start=0.25), 'full')
    """
    edit = find_edit(name)
    for parameter in others:
        allowed(edit, parameter)
    text = text.strip()
    if not text:
        raise UserError(f"{name} has no value", allowed=allowed(edit, edit.axis).describe(), run="unswayed edits")
    return edit.parse(text, **others)


def in_order(chain: Iterable[Edit]) -> tuple[Edit, ...]:
    """Return the edits in the order in which they are applied."""
    return tuple(sorted(chain, key=lambda edit: edit.order))
