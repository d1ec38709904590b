"""Figures of the ImageNet-X annotations: how common factors are, where they are more common, what they go with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from unswayed.errors import UserError
from unswayed.sources.imagenet_x import FACTORS, METACLASSES

from .figures_factors import words
from .heat_map import cells_of, heat_map
from .palette import COLORS, GRID, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PARTITIONS = {"train": COLORS[4], "val": COLORS[0]}
_SELECTIONS = {"multi": "every factor of an image", "top": "the main factor of an image"}
_MOST_ROWS = 60


def distribution_bars(table: pl.DataFrame) -> Figure:
    """Draw the share of images with each factor in both partitions: one panel for all factors, one for the main one."""
    common = table.group_by("factor").agg(pl.col("share").mean()).sort("share", "factor")["factor"].to_list()
    figure = new_figure(8.2, 4.6)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (which, title) in zip(panels, _SELECTIONS.items(), strict=True):
        for place, (partition, color) in enumerate(_PARTITIONS.items()):
            part = table.filter((pl.col("which") == which) & (pl.col("partition") == partition))
            y = np.array([common.index(f) for f in part["factor"]]) + 0.2 - 0.4 * place
            images = part["images"][0] if len(part) else 0
            axes.barh(y, 100 * part["share"], height=0.38, color=color, label=f"{partition} ({images:,} images)")
        axes.set_yticks(range(len(common)), [words(f) for f in common])
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlabel("images, %")
        _clean(axes, "x")
    panels[1].legend(frameon=False, loc="lower right", fontsize=9)
    return figure


def active_factor_bars(table: pl.DataFrame) -> Figure:
    """Draw how many images have one, two, three … factors at once, in both partitions, on a log scale."""
    figure = new_figure(5.6, 3)
    axes = figure.subplots()
    for place, (partition, color) in enumerate(_PARTITIONS.items()):
        part = table.filter(pl.col("partition") == partition)
        axes.bar(part["factors"].to_numpy() - 0.2 + 0.4 * place, part["n"], width=0.38, color=color, label=partition)
    axes.set_yscale("log")
    axes.set_xticks(sorted(set(table["factors"])))
    axes.set(xlabel="number of factors of an image", ylabel="images")
    _clean(axes, "y")
    axes.legend(frameon=False)
    return figure


def correlation_map(table: pl.DataFrame) -> Figure:
    """Draw Spearman's correlation of every factor with the other factors and the metaclasses; *: p < 0.01."""
    others = [*FACTORS, *METACLASSES]
    cells = cells_of(table, "factor", "other", "correlation", list(FACTORS), others)
    sure = cells_of(table, "factor", "other", "p_value", list(FACTORS), others) < 0.01
    cells[np.arange(len(FACTORS)), np.arange(len(FACTORS))] = np.nan  # a factor with itself is 1 and hides the rest
    names = [words(name) for name in others]
    return heat_map(cells, names[: len(FACTORS)], names, "Spearman's correlation", decimals=2, marked=sure)


def shift_map(table: pl.DataFrame) -> Figure:
    """Draw how much more common each factor is (%) among a model's mistakes, or within a metaclass, than overall.

    table: of `mistakes`, by model, or for one model by metaclass; or of `prevalence` by metaclass.
    """
    if "shift" not in table.columns:
        raise UserError("this figure shows how metaclasses shift the factors", run="unswayed factors … --by metaclass")
    if "metaclass" in table.columns and "model" in table.columns and table["model"].n_unique() > 1:
        models = ", ".join(table["model"].unique(maintain_order=True).to_list()[:5])
        raise UserError(
            f"the metaclasses of {table['model'].n_unique()} models do not fit into one figure",
            allowed=f"the predictions of one model, such as one of {models}",
        )
    rows = "metaclass" if "metaclass" in table.columns else "model"
    names = table[rows].unique(maintain_order=True).to_list()
    if len(names) > _MOST_ROWS:
        raise UserError(f"a map of {len(names)} models is not readable", allowed=f"at most {_MOST_ROWS} models")
    cells = 100 * cells_of(table, rows, "factor", "shift", names, list(FACTORS))
    what = "among mistakes" if "model" in table.columns else "in the metaclass"
    label = f"more common\n{what}, %"
    shown = [words(name) if rows == "metaclass" else name for name in names]
    return heat_map(cells, shown, [words(f) for f in FACTORS], label, colors="RdBu_r", most=200, decimals=0)


def _clean(axes: Axes, grid: str) -> None:
    axes.grid(axis=grid, color=GRID, linewidth=0.6)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
