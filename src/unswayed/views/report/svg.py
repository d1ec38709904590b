"""Figures as inline SVG with the colors of the page, so that they follow its light and dark modes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from .figures_factors import figure_bytes
from .palette import COLORS, GRID, QUIET

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Fixed colors of the drawing -> variables of the page's style sheet.
_VARIABLES = {
    **{color.lower(): f"var(--series-{place})" for place, color in enumerate(COLORS) if color != "#000000"},
    "#000000": "currentColor",
    "#262626": "currentColor",
    "#444444": "currentColor",
    GRID: "var(--line)",
    "#b0b0b0": "var(--line)",
    QUIET: "var(--quiet)",
}


@contextlib.contextmanager
def drawing(name: str) -> Iterator[None]:
    """Set how figures are drawn and saved: no name is read as a formula, and equal figures give equal bytes."""
    import matplotlib

    settings: Any = {
        "text.parse_math": False,
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "pdf.fonttype": 42,
        "font.family": "sans-serif",
        "axes.unicode_minus": True,
    }
    with matplotlib.rc_context(settings):
        yield


def inline(figure: Figure, name: str, description: str) -> Markup:
    """Return the figure as an `<svg role="img">` whose ids begin with `name`; description: for screen readers.

    Call it inside `drawing(name)`.
    """
    patches = [figure.patch, *(axes.patch for axes in figure.axes)]
    for patch in patches:
        patch.set_alpha(0)
    source = figure_bytes(figure, "svg").decode()
    for patch in patches:
        patch.set_alpha(None)
    body = source[source.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.S)
    body = re.sub(r"<style.*?</style>", "", body, flags=re.S)  # it would apply to the whole page
    body = re.sub(r'\bid="mark:(\d+):', r'data-place="\1" data-edit="', body)  # what the page's filters look for
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", body)
    body = re.sub(r"#[0-9a-fA-F]{6}\b", lambda found: _VARIABLES.get(found.group().lower(), found.group()), body)
    body = re.sub(r"font(-family)?: ?[^;\"]*DejaVu[^;\"]*", _font, body)
    wide, high = (float(number) for number in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', body)[0])
    opening = (
        f'<svg role="img" aria-label="{escape(description)}" viewBox="0 0 {wide:g} {high:g}" '
        f'style="--wide: {wide:.0f}px" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return Markup(opening + re.sub(r"^<svg[^>]*>", "", body, count=1, flags=re.S))


def _font(found: re.Match[str]) -> str:
    """Return the style of text in the page's own font, at the size of the layout."""
    size = re.search(r"([\d.]+)px", found.group())
    return f"font-size: {size.group(1)}px" if size else "font-family: inherit"
