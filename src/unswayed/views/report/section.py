"""A section of the report: its text with figures as inline SVG, its tables, and the files that they also become."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from unswayed.files.whole import write_bytes
from unswayed.views.tables import Cell, Column, csv_texts
from unswayed.views.text import interval, joined, number, tag

from .figures import COLORS, GRID, QUIET, SUFFIXES, figure_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("unswayed.views", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: object) -> Markup:
    """Return a template of this folder filled with the values; every value is escaped unless it is Markup."""
    return Markup(_templates().get_template(template).render(values))


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
    body = re.sub(r"#[0-9a-fA-F]{6}\b", lambda match: _VARIABLES.get(match.group().lower(), match.group()), body)
    body = re.sub(r"font(-family)?: ?[^;\"]*DejaVu[^;\"]*", _font, body)
    wide, high = (float(number) for number in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', body)[0])
    opening = (
        f'<svg role="img" aria-label="{escape(description)}" viewBox="0 0 {wide:g} {high:g}" '
        f'style="--wide: {wide:.0f}px" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return Markup(opening + re.sub(r"^<svg[^>]*>", "", body, count=1, flags=re.S))


def _font(match: re.Match[str]) -> str:
    """Return the style of text in the page's own font, at the size of the layout."""
    size = re.search(r"([\d.]+)px", match.group())
    return f"font-size: {size.group(1)}px" if size else "font-family: inherit"


@dataclass(frozen=True, eq=False)
class Section:
    """id: its anchor; title; body; figures and tables: by the name of their files under `--assets`."""

    id: str
    title: str
    body: Markup
    figures: dict[str, Figure] = field(default_factory=dict)
    tables: dict[str, pl.DataFrame] = field(default_factory=dict)


def paragraphs(*texts: str | None) -> Markup:
    """Return a paragraph for each text that is not empty; no line break separates a number from its unit or `n =`."""
    kept = (text.replace("n = ", "n\u00a0=\u00a0").replace(" %", "\u00a0%") for text in texts if text)
    return joined(tag("p", text) for text in kept)


def figure_block(figure: Figure, name: str, description: str, caption: str, narrow: Figure | None = None) -> Markup:
    """Return the figure in its own region, which scrolls on narrow screens; narrow: a variant for phones."""
    drawn = [tag("div", inline(figure, name, description), class_="wide" if narrow else None)]
    if narrow is not None:
        drawn.append(tag("div", inline(narrow, f"{name}-narrow", description), class_="narrow"))
    region = tag("div", *drawn, class_="drawing", tabindex=0, role="region", aria_label=f"Figure: {caption}")
    return tag("figure", region, tag("figcaption", caption), class_="figure")


def csv_files(sections: Sequence[Section]) -> dict[str, bytes]:
    """Return the tables of all sections as CSV files, by name."""
    tables = {name: table for section in sections for name, table in section.tables.items()}
    return {name: text.encode() for name, text in zip(tables, csv_texts(tables.values()), strict=True)}


def write_assets(folder: Path, sections: Sequence[Section], tables: Mapping[str, bytes]) -> list[Path]:
    """Write FOLDER/<figure>.png, .svg, .pdf and FOLDER/<table>.csv; return the paths."""
    files: dict[str, bytes] = {}
    for section in sections:
        for name, figure in section.figures.items():
            files |= {f"{name}{suffix}": figure_bytes(figure, suffix[1:]) for suffix in SUFFIXES}
        files |= {f"{name}.csv": tables[name] for name in section.tables}
    written = {folder / re.sub(r"[^\w.+-]+", "-", name): content for name, content in files.items()}
    for path, content in written.items():
        write_bytes(path, content)
    return list(written)


def filtered(name: str, noun: str, *choosers: Markup) -> Markup:
    """Return the line above a table or list that says how much of it the page's filters leave; choosers: its own
    filters."""
    counted = tag("output", "", aria_live="polite")
    return tag("div", *choosers, counted, class_="filters", data_for=name, data_noun=noun)


def chooser(name: str, label: str, values: Sequence[str], every: str) -> Markup:
    """Return a labeled list to choose one value or all; name: its name in the script."""
    options = [tag("option", every, value=""), *(tag("option", value, value=value) for value in values)]
    return tag("label", label, " ", tag("select", *options, data_filter=name))


def interval_column(heading: str, low: str, high: str, faint: bool = False) -> Column:
    """Return a column of intervals in points, sorted by their lower ends."""
    return Column(heading, lambda row: Cell(interval(row[low], row[high]), row[low], faint=faint), number=True)


def matrix_cell(edit: str, value: float, ends: tuple[float, float], largest: float, label: str) -> dict[str, str]:
    """Return a cell of a colored matrix of drops in points: its number, the share of the darkest color, its marks."""
    unsure = ends[0] <= 0 <= ends[1]
    return {
        "edit": edit,
        "value": number(value, 0),
        "share": f"{min(100.0, 100 * abs(value) / largest):.0f}",
        "marks": ("worse" if value > 0 else "better") + (" hatched" if unsure else ""),
        "label": label,
    }
