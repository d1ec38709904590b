"""HTML that is safe by construction: text is escaped wherever it enters, only what `tag` made passes as markup."""

from __future__ import annotations

import html
from collections.abc import Iterable

_EMPTY = {"img", "input", "br", "meta", "link", "col"}


class Markup(str):
    """Text that is HTML already; made by `tag`, `joined` and `raw` alone."""


def raw(text: str) -> Markup:
    """Text that its maker vouches for: a template's, or an SVG's that a drawing library wrote."""
    return Markup(text)


def text(value: object) -> Markup:
    """Any value as HTML text; markup stays as it is.

    >>> text("<script>")
    '&lt;script&gt;'
    """
    return value if isinstance(value, Markup) else Markup(html.escape(str(value), quote=True))


def joined(parts: Iterable[object], separator: str = "") -> Markup:
    """The parts one after another, each escaped unless it is markup; None is left out."""
    return Markup(text(separator).join(text(part) for part in parts if part is not None))


def tag(name: str, *inside: object, **attributes: object) -> Markup:
    """One element. An attribute of None or False is left out, one of True stands alone; `_` at the end is dropped and
    other underscores become hyphens, so that `class_` and `aria_label` can be written.

    >>> tag("p", "a < b", class_="note", hidden=True, id=None)
    '<p class="note" hidden>a &lt; b</p>'
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _EMPTY:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(inside)}</{name}>")


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{text(value)}"'
