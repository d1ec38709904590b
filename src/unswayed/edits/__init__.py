"""Edits: each a frozen dataclass that declares its parameters and how it is used.

This module and the declarations load no OpenCV and no torch, so that analyses may read them.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from unswayed.errors import UserError
from unswayed.files.whole import Json
from unswayed.registry import Part, Registry

from .edit import Choice, Edit, Range, Text, allowed, parameters


def _expected(name: str, thing: object) -> str | None:
    fits = isinstance(thing, type) and issubclass(thing, Edit) and thing.name == name
    return None if fits else f"a subclass of unswayed.edits.Edit whose name is '{name}'"


# A package adds its own in its pyproject.toml: [project.entry-points."unswayed.edits"] haze = "my_edits:Haze".
# batch: its column in the draws of a training batch; an edit without one is drawn only if a mixture names it.
EDITS = Registry[type[Edit]](
    "edit",
    {
        "background": Part(f"{__name__}.background:Background", facts={"batch": 0}),
        "size": Part(f"{__name__}.size:Size", facts={"batch": 1}),
        "direction": Part(f"{__name__}.position:Direction", facts={"batch": 3}),
        "position": Part(f"{__name__}.position:Position", facts={"batch": 2}),
        "occlusion": Part(f"{__name__}.occlusion:Occlusion", facts={"batch": 7}),
        "lighting": Part(f"{__name__}.lighting:Lighting", facts={"batch": 4}),
        "blur": Part(f"{__name__}.blur:Blur", facts={"batch": 5}),
        "color": Part(f"{__name__}.color:Color", facts={"batch": 6}),
        **{
            name: Part(f"{__name__}.weather:{name.title()}")
            for name in ("fog", "rain", "snow", "night", "shadow", "sun")
        },
        "relight": Part(f"{__name__}.lighting:Relight", facts={"trains": False}),
        "object-words": Part(f"{__name__}.background:ObjectWords", facts={"trains": False}),
        "reinsertion": Part(f"{__name__}.position:Reinsertion", facts={"trains": False}),
    },
    check=_expected,
    run="unswayed edits",
)


def all_edits() -> dict[str, type[Edit]]:
    """Return the edits of this and other installed packages by name, in the order in which they are applied."""
    loaded = {name: EDITS.load(name) for name in EDITS}
    return dict(sorted(loaded.items(), key=lambda item: item[1].order))


def list_edits() -> list[str]:
    """The names of the edits of this and other installed packages, in the order in which they are applied.

    >>> list_edits()[:3]
    ['background', 'size', 'direction']
    """
    return list(all_edits())


def edit_named_in(text: str) -> type[Edit] | None:
    """Return the edit whose name the name of a recipe's item or attribute begins with; None if there is none.

    >>> edit_named_in("lighting-object+1.5").name, edit_named_in("made-up")
    ('lighting', None)
    """
    return _named_in(text, tuple(sys.path))


@functools.cache
def _named_in(text: str, path: tuple[str, ...]) -> type[Edit] | None:
    names = "|".join(map(re.escape, sorted(EDITS, key=len, reverse=True)))
    named = re.match(rf"({names})(?=[-+]|$)", text)
    return EDITS.load(named[1]) if named else None


def words_of(chains: Mapping[str, Sequence[Edit]]) -> dict[str, str]:
    """What a stranger would call each of these items; those that would be called the same have longer names."""
    short = {
        name: " and ".join(part.words(len(chain) > 1) for part in chain) or name.replace("-", " ")
        for name, chain in chains.items()
    }
    long = {name: ", ".join(part.words() for part in chain) for name, chain in chains.items()}
    counts, long_counts = Counter(short.values()), Counter(long.values())
    return {
        name: words if counts[words] == 1 else long[name] if long_counts[long[name]] == 1 else name
        for name, words in short.items()
    }


def make_edit(name: str, **parameters: object) -> Edit:
    """Return the edit of that name with these parameters; raises UserError with what is allowed.

    >>> make_edit("size", rate=0.05)
    Size(rate=0.05, start=0.25)
    """
    edit = EDITS.load(name)
    for parameter in parameters:
        allowed(edit, parameter)
    return edit(**parameters)


def edit_from(step: Mapping[str, object]) -> Edit:
    """Return the edit of a complete record, as `as_json` writes it: {"edit": "size", "rate": 0.05}."""
    return make_edit(str(step.get("edit", "")), **{name: value for name, value in step.items() if name != "edit"})


def parse_edit(name: str, text: str, **others: object) -> Edit:
    """Return the edit written `name=text`, as on the command line: its main parameter, or `X,Y` (`X/Y`) for position.

    >>> parse_edit("position", "0.2,0.8"), parse_edit("size", "full").rate
    (Position(x=0.2, y=0.8, start=0.25), 'full')
    """
    edit = EDITS.load(name)
    for parameter in others:
        allowed(edit, parameter)
    if not text.strip():
        raise UserError(f"{name} has no value", allowed=allowed(edit, edit.axis).describe(), run="unswayed edits")
    return edit.parse(text.strip(), **others)


def in_order(chain: Iterable[Edit]) -> tuple[Edit, ...]:
    """Return the edits in the order in which they are applied."""
    return tuple(sorted(chain, key=lambda edit: edit.order))


def catalog() -> Json:
    """Return {"edits": {name: declarations and parameters}, "recipes": {name: {explains, edits}}}, ready for JSON.

    >>> catalog()["edits"]["size"]["parameters"]["rate"]["high"]
    1.0
    """
    from .recipes import RECIPES, named_recipe

    return {
        "edits": {name: _edit(edit) for name, edit in all_edits().items()},
        "recipes": {
            name: {"explains": recipe.explains, "edits": [item.name for item in recipe.items]}
            for name, recipe in zip(RECIPES, map(named_recipe, RECIPES), strict=True)
        },
    }


def edits_table() -> str:
    """Return the Markdown tables of the edits and of the meanings of their choices, for docs/edits.md."""
    rows = ["| edit | what changes | parameters | control | needs |", "| --- | --- | --- | --- | --- |"]
    meanings = []
    for name, edit in all_edits().items():
        declared = ", ".join(f"`{parameter}`" for parameter in parameters(edit))
        control = f"`{edit.control}`" if edit.control and edit.control != name else "–"
        rows.append(f"| `{name}` | {edit.description} | {declared} | {control} | {', '.join(edit().needs) or '–'} |")
        texts = {key: "FILE" for key, field in parameters(edit).items() if isinstance(field.metadata["allowed"], Text)}
        for parameter, field in parameters(edit).items():
            if explained := getattr(field.metadata["allowed"], "meanings", None):
                meanings += ["", f"| {name}: {parameter} | meaning | needs |", "| --- | --- | --- |"]
            for choice, meaning in (explained or {}).items():
                needs = edit.from_controls({**texts, parameter: choice}).needs
                meanings.append(f"| `{choice}` | {meaning} | {', '.join(needs) or '–'} |")
    return "\n".join([*rows, *meanings]) + "\n"


def _edit(edit: type[Edit]) -> dict[str, object]:
    usual = edit()
    return {
        "explains": edit.description,
        "axis": edit.axis,
        "axis_label": edit.axis_label,
        "control": edit.control,
        "random": usual.random,
        "borrows": usual.borrows,
        "needs": list(usual.needs),
        "order": edit.order,
        "parameters": {name: _parameter(field) for name, field in parameters(edit).items()},
    }


def _parameter(field: dataclasses.Field[object]) -> dict[str, object]:
    declared = field.metadata["allowed"]
    record = {"default": field.default, "explains": field.metadata["explains"], "allowed": declared.describe()}
    if isinstance(declared, Range):
        record |= {"low": declared.low, "high": declared.high, "spacing": declared.spacing, "words": declared.words}
    if isinstance(declared, Choice):
        record |= {"choices": declared.names, "meanings": dict(declared.meanings)}
    return record
