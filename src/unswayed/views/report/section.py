"""A section of the report: its text, and the figures and tables that can also be written as files."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl
from markupsafe import Markup

from unswayed.views.tables import format_table
from unswayed.views.text import joined, tag

from .svg import inline

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Section:
    """id: its anchor; title; body; figures and tables: by the name of their files under `--assets`."""

    id: str
    title: str
    body: Markup
    figures: dict[str, Figure] = field(default_factory=dict)
    tables: dict[str, pl.DataFrame] = field(default_factory=dict)

    def files(self) -> dict[str, str]:
        """Return the tables as CSV files: names and `data:` URLs."""
        texts = {f"{name}.csv": format_table(table, "csv") for name, table in self.tables.items() if table.height}
        return {name: f"data:text/csv;base64,{b64encode(text.encode()).decode()}" for name, text in texts.items()}


def paragraphs(*texts: str | None) -> Markup:
    """Return a paragraph for each text that is not empty; no line break separates a number from its unit or `n =`."""
    kept = (one.replace("n = ", "n\u00a0=\u00a0").replace(" %", "\u00a0%") for one in texts if one)
    return joined(tag("p", one) for one in kept)


def figure_block(figure: Figure, name: str, description: str, caption: str, narrow: Figure | None = None) -> Markup:
    """Return the figure in its own region, which scrolls on narrow screens; narrow: a variant for phones."""
    drawn = [tag("div", inline(figure, name, description), class_="wide" if narrow else None)]
    if narrow is not None:
        drawn.append(tag("div", inline(narrow, f"{name}-narrow", description), class_="narrow"))
    region = tag("div", *drawn, class_="drawing", tabindex=0, role="region", aria_label=f"Figure: {caption}")
    return tag("figure", region, tag("figcaption", caption), class_="figure")
