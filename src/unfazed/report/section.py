"""A section of the report: its text, and the figures and tables that can also be written as files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl
from markupsafe import Markup

from .markup import joined, tag
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


def paragraphs(*texts: str | None) -> Markup:
    """Return a paragraph for each text that is not empty; no line break separates a number from its unit or `n =`."""
    kept = (one.replace("n = ", "n\u00a0=\u00a0").replace(" %", "\u00a0%") for one in texts if one)
    return joined(tag("p", one) for one in kept)


def figure_block(figure: Figure, name: str, description: str, caption: str) -> Markup:
    """Return the figure in its own region, which scrolls on narrow screens."""
    drawn = inline(figure, name, description)
    region = tag("div", drawn, class_="drawing", tabindex=0, role="region", aria_label=f"Figure: {caption}")
    return tag("figure", region, tag("figcaption", caption), class_="figure")
