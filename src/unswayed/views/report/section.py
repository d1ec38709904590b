"""A section of the report and what its figures share: colors, small maps, SVG in a page, and files of both."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl
from markupsafe import Markup, escape

from unswayed.files.whole import write_bytes
from unswayed.views.tables import Cell, Column
from unswayed.views.text import interval, joined, number, render, unbroken

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A8A00")
MARKERS = "osD^vPX*"
MOST = len(COLORS)
GRID, QUIET = "#dddddd", "#888888"


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches; not by pyplot, which has a global state and needs a window system."""
    from matplotlib.figure import Figure as NewFigure

    return NewFigure(figsize=(width, height), layout="constrained")


def new_axes(width: float, height: float) -> tuple[Figure, Axes]:
    """Return an empty figure with one panel."""
    figure = new_figure(width, height)
    return figure, figure.subplots()


def new_panels(
    count: int,
    side: float,
    columns: int = 5,
    margins: tuple[float, float] = (0.4, 0.5),
    labelsize: int = 8,
    share: bool = False,
) -> tuple[Figure, list[Axes]]:
    """Return a figure with `count` plain panels of `side` inches, at most `columns` in a row, and `margins` beside and
    below them; share: whether they share their axes."""
    wide = max(1, min(columns, count))
    lines = -(-count // wide)
    figure = new_figure(margins[0] + side * wide, margins[1] + side * lines)
    panels = figure.subplots(lines, wide, squeeze=False, sharex=share, sharey=share).ravel()
    for axes in panels[count:]:
        axes.set_axis_off()
    for axes in panels[:count]:
        plain(axes, "both", 0.5)
        axes.tick_params(labelsize=labelsize)
    return figure, list(panels[:count])


def plain(axes: Axes, grid: Literal["x", "y", "both"], linewidth: float = 0.6, *hidden: str) -> None:
    """Draw a faint grid behind the marks, and no frame at the top, at the right and at the `hidden` sides."""
    axes.spines[["top", "right", *hidden]].set_visible(False)
    axes.grid(axis=grid, color=GRID, linewidth=linewidth)
    axes.set_axisbelow(True)


def series(models: Sequence[str]) -> dict[str, int]:
    """Return each model's place in COLORS and MARKERS, the same in every figure of a report; of more than eight models
    the first four and the last four have one."""
    named = list(models) if len(models) <= MOST else [*models[: MOST // 2], *models[-MOST // 2 :]]
    return {name: number for number, name in enumerate(named)}


def places(names: Iterable[str], known: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the place of each name: the known one, or the next that no other name has.

    >>> places(["b", "new", "a"], {"a": 0, "b": 1})
    {'b': 1, 'new': 2, 'a': 0}
    """
    known = known or {}
    names = list(names)
    free = iter(number for number in range(MOST + len(names)) if number not in known.values())
    return {name: known[name] if name in known else next(free) for name in names}


_TEXT_CELLS = 700  # more cells than this are drawn without numbers


def heat_map(
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    label: str,
    *,
    colors: str = "RdBu",
    around_zero: bool = True,
    most: float = np.inf,
    decimals: int = 1,
    marked: np.ndarray | None = None,
) -> Figure:
    """Draw `values` (rows, columns), NaN for an empty cell; `label` explains the colors.

    around_zero: the colors are symmetrical around 0, otherwise they span the values; beyond `most` they stay the
    same. marked: (rows, columns) bool, cells whose number is bold with an asterisk.
    """
    size = (2.4 + 0.5 * len(columns), 1.9 + max(0.26, 0.45 - 0.012 * len(rows)) * len(rows))
    figure, axes = new_axes(*size)
    shown = values[np.isfinite(values)]
    high = min(most, float(np.abs(shown).max() if around_zero else shown.max())) if shown.size else 1.0
    low = -high if around_zero or not shown.size else float(shown.min())
    picture = axes.imshow(values, cmap=colors, vmin=low, vmax=high, aspect="auto")
    if values.size <= _TEXT_CELLS:
        for row, column in zip(*np.nonzero(np.isfinite(values)), strict=True):
            sure = marked is not None and bool(marked[row, column])
            # Adding 0.0 turns a rounded -0.0 into 0.0.
            text = f"{values[row, column].round(decimals) + 0.0:.{decimals}f}".replace("-", "−") + ("*" if sure else "")
            red, green, blue, _ = picture.cmap(picture.norm(values[row, column]))
            dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
            axes.text(
                column, row, text, ha="center", va="center", fontsize=8 if len(text) < 6 else 7,
                color="white" if dark else "black", fontweight="bold" if sure else "normal",
            )  # fmt: skip
    axes.set_xticks(range(len(columns)), columns, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.colorbar(picture, ax=axes, label=label, pad=0.02)
    return figure


def cells_of(
    table: pl.DataFrame, rows: str, columns: str, value: str, row_names: Sequence[object], column_names: Sequence[str]
) -> np.ndarray:
    """Return (rows, columns) float64 with the table's values by the names in two of its columns, NaN where there is
    none."""
    cells = np.full((len(row_names), len(column_names)), np.nan)
    for row, column, content in table.select(rows, columns, value).drop_nulls(value).iter_rows():
        cells[row_names.index(row), column_names.index(column)] = content
    return cells


SUFFIXES = (".png", ".svg", ".pdf")


def figure_bytes(figure: Figure, format: str = "svg") -> bytes:
    """Return the figure as the bytes of a file; the report uses `svg`."""
    buffer = io.BytesIO()
    # No date in the file, so that equal tables give equal bytes.
    dates: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(buffer, format=format, dpi=160, bbox_inches="tight", metadata=dates.get(format, {}))
    return buffer.getvalue()


def short(name: str, most: int = 34) -> str:
    """Return a long name with its middle left out.

    >>> short("timm:convnext_tiny.fb_in22k_ft_in1k", 21)
    'timm:conv…2k_ft_in1k'
    """
    half = most // 2
    return name if len(name) <= most else f"{name[: half - 1]}…{name[-half:]}"


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return the shortest end of each path that no other name ends in; names without a path stay.

    >>> list(short_names(["python:/a/x/model.py:build", "python:/a/y/model.py:build", "onnx:/b/net.onnx"]).values())
    ['x/model.py:build', 'y/model.py:build', 'net.onnx']
    """
    shortest = {}
    for name in names:
        parts, others = name.split("/"), [f"/{other}" for other in names if other != name]
        ends = ["/".join(parts[-count:]) for count in range(1, len(parts) + 1)]
        alone = [end for end in ends if end and not any(other.endswith(f"/{end}") for other in others)]
        shortest[name] = alone[0] if alone else name
    return shortest


# Fixed colors of the drawing -> variables of the page's style sheet.
_VARIABLES = {
    **{color.lower(): f"var(--series-{number})" for number, color in enumerate(COLORS) if color != "#000000"},
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

    with matplotlib.rc_context(
        {
            "text.parse_math": False,
            "svg.fonttype": "none",
            "svg.hashsalt": name,
            "pdf.fonttype": 42,
            "font.family": "sans-serif",
            "axes.unicode_minus": True,
        }
    ):
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
    # A style would apply to the whole page.
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", "", body, flags=re.S)
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
    """Return a paragraph for each text that is not empty; no line break separates a number from its unit or `n =`, and
    what stands between backticks is code."""
    kept = (str(escape(unbroken(text))) for text in texts if text)
    return joined(*(Markup("<p>" + re.sub(r"`([^`]+)`", r"<code>\1</code>", text) + "</p>") for text in kept))


def figure_block(
    figure: Figure, name: str, caption: str, narrow: Figure | None = None, description: str | None = None
) -> Markup:
    """Return the figure in its own region, which scrolls on narrow screens; narrow: a variant for phones; description:
    for screen readers, the caption if None."""
    description = description or caption
    drawn = inline(figure, name, description)
    small = None if narrow is None else inline(narrow, f"{name}-narrow", description)
    return render("sections.html", "figure", drawn=drawn, narrow=small, label=caption, caption=unbroken(caption))


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


def interval_column(heading: str, low: str, high: str, faint: bool = False) -> Column:
    """Return a column of intervals in points, sorted by their lower ends."""
    return Column(heading, lambda row: Cell(interval(row[low], row[high]), row[low], faint=faint), number=True)


def matrix_cell(edit: str, value: float, certain: bool, largest: float, label: str) -> dict[str, str]:
    """Return a cell of a colored matrix of drops in points: its number, the share of the darkest color, its marks."""
    return {
        "edit": edit,
        "value": number(value, 0),
        "share": f"{min(100.0, 100 * abs(value) / largest):.0f}",
        "marks": ("worse" if value > 0 else "better") + ("" if certain else " hatched"),
        "label": label,
    }
