"""HTML that is safe by construction: Jinja templates and `tag` escape all text except what is Markup already."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

_EMPTY = {"img", "input", "br", "meta", "link", "col"}


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("unswayed", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: object) -> Markup:
    """Return a template of this folder filled with the values; every value is escaped unless it is Markup."""
    return Markup(_templates().get_template(template).render(values))


def joined(parts: Iterable[object], separator: str = "") -> Markup:
    """Return the parts joined, each escaped unless it is Markup; None is left out."""
    return escape(separator).join(escape(part) for part in parts if part is not None)


def tag(name: str, *inside: object, **attributes: object) -> Markup:
    """Return one element. An attribute of None or False is left out, True has no value; `_` at the end is dropped and
    other underscores become hyphens, so that `class_` and `aria_label` can be written.

    >>> print(tag("p", "a < b", class_="note", hidden=True, id=None))
    <p class="note" hidden>a &lt; b</p>
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _EMPTY:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(inside)}</{name}>")


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape(value)}"'
