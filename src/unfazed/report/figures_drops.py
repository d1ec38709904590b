"""Figures of dropped accuracy: by edit, against the original accuracy, and along sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from unfazed.predictions.facts import AVERAGE, ORIGINAL

from .heat_map import cells_of
from .palette import COLORS, GRID, MARKERS, MOST, QUIET, new_figure
from .words import axis_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK, _PAPER = "#111111", "#fefefe"  # text on colored cells, independent of the page's own colors


def drop_figure(drops: pl.DataFrame, edits: list[str], models: list[str]) -> Figure:
    """Draw the drop of every edit: dots with intervals, one color per model; over eight models as a colored table."""
    shown = drops.filter(pl.col("edit").is_in([*edits, AVERAGE]))
    rows = [*edits, *([AVERAGE] if AVERAGE in set(shown["edit"]) else [])]
    return _dots(shown, rows, models) if len(models) <= MOST else _cells(shown, rows, models)


def _dots(drops: pl.DataFrame, edits: list[str], models: list[str]) -> Figure:
    figure, axes = _empty(7.6, 1.1 + len(edits) * max(0.34, 0.13 * len(models)))
    for place, model in enumerate(models):
        offset = (place - (len(models) - 1) / 2) * 0.72 / len(models)
        part = {row["edit"]: row for row in drops.filter(pl.col("model") == model).iter_rows(named=True)}
        for y, edit in enumerate(edits):
            row = part.get(edit)
            if row is None:
                continue
            color = COLORS[place]
            axes.hlines(y + offset, row["low"], row["high"], color=color, linewidth=1.8, alpha=0.55)
            # A white-box result has a hollow marker: the pictures were made to attack this model.
            face = "none" if row["white_box"] else color
            axes.plot(
                row["drop"], y + offset, MARKERS[place], color=color, markerfacecolor=face, markersize=5.5, zorder=3
            )
    counts = dict(drops.group_by("edit").agg(pl.col("n").max()).iter_rows())
    axes.set_yticks(range(len(edits)), [f"{edit}  (n = {counts.get(edit, 0):,})" for edit in edits])
    axes.set_ylim(len(edits) - 0.4, -0.6)
    axes.axvline(0, color=QUIET, linewidth=1)
    if AVERAGE in edits:
        axes.axhline(len(edits) - 1.5, color=GRID, linewidth=1)
    axes.set_xlabel("dropped accuracy, points (right: worse); bars: 95 % intervals")
    _plain(axes, "x")
    axes.tick_params(axis="y", length=0)
    _legend(figure, models, drops)
    return figure


def _cells(drops: pl.DataFrame, edits: list[str], models: list[str]) -> Figure:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    values = cells_of(drops, "model", "edit", "drop", models, edits)
    figure, axes = _empty(2.6 + 0.62 * len(edits), 1.5 + 0.22 * len(models))
    limit = max(float(np.nanmax(np.abs(values), initial=1.0)), 1.0)
    scale = colormaps["RdBu_r"]
    for row, column in np.ndindex(*values.shape):
        value = values[row, column]
        if np.isnan(value):
            continue
        share = 0.5 + value / limit / 2
        axes.bar(column, 1, width=1, bottom=row - 0.5, color=to_hex(tuple(scale(share))), edgecolor="none")
        ink = _INK if 0.2 < share < 0.8 else _PAPER
        axes.text(
            column, row, f"{round(float(value)):d}".replace("-", "−"), ha="center", va="center", fontsize=7, color=ink
        )
    axes.set_xticks(range(len(edits)), edits, rotation=45, ha="left")
    axes.set_yticks(range(len(models)), models, fontsize=7)
    axes.xaxis.tick_top()
    axes.set_xlim(-0.5, len(edits) - 0.5)
    axes.set_ylim(len(models) - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.set_xlabel(f"dropped accuracy, points (red: worse); n up to {max(drops['n']):,}; intervals in the table")
    axes.spines[:].set_visible(False)
    return figure


def accuracy_and_drop(drops: pl.DataFrame, models: list[str]) -> Figure:
    """Draw original accuracy against average drop, one point per model, with intervals; of more than eight models only
    the four that drop least and the four that drop most are named."""
    average = {row["model"]: row for row in drops.filter(pl.col("edit") == AVERAGE).iter_rows(named=True)}
    original = {row["model"]: row for row in drops.filter(pl.col("edit") == ORIGINAL).iter_rows(named=True)}
    there = [name for name in models if name in average and name in original]
    named = there if len(there) <= MOST else [*there[: MOST // 2], *there[-MOST // 2 :]]
    figure, axes = _empty(7.2, 4.0 + 0.2 * -(-len(named) // _columns(named)))
    for model in [*(one for one in there if one not in named), *named]:
        x, y = original[model], average[model]
        place = named.index(model) if model in named else None
        color = QUIET if place is None else COLORS[place]
        marker = "o" if place is None else MARKERS[place]
        horizontal = [[x["accuracy"] - x["accuracy_low"]], [x["accuracy_high"] - x["accuracy"]]]
        axes.errorbar(
            100 * x["accuracy"],
            y["drop"],
            xerr=100 * np.maximum(horizontal, 0),
            yerr=np.maximum([[y["drop"] - y["low"]], [y["high"] - y["drop"]]], 0),
            fmt=marker,
            color=color,
            ecolor=color,
            elinewidth=1.1,
            alpha=0.5 if place is None else 1,
            # If two models have the same numbers, the first one is visible as a ring around the second.
            markersize=5 if place is None else 10 - 0.7 * place,
            zorder=3 if place is None else 4 + place,
        )
    counts = sorted({row["n"] for row in original.values()})
    size = f"n = {counts[0]:,}" if len(counts) == 1 else f"n = {counts[0]:,} to {counts[-1]:,}"
    axes.set_xlabel(f"accuracy on the originals, % ({size}); bars: 95 % intervals")
    axes.set_ylabel("average drop, points (up: worse)")
    _plain(axes, "both")
    _legend(figure, named, drops.head(0))
    return figure


def curve_figure(curves: pl.DataFrame, attribute: str, models: list[str]) -> Figure:
    """Draw accuracy along one attribute, one line per model with its interval, for the eight models that drop least."""
    part = curves.filter(pl.col("attribute") == attribute)
    named = [name for name in models if name in set(part["model"])][:MOST]
    figure, axes = _empty(7.2, 3.6 + 0.2 * -(-len(named) // _columns(named)))
    for place, model in enumerate(named):
        # Both sides of a sweep through zero are one line; levels below zero are stored as distances.
        signed = pl.when(pl.col("side") == "below 0").then(-pl.col("level")).otherwise(pl.col("level"))
        rows = part.filter(pl.col("model") == model).with_columns(x=signed).unique("x").sort("x")
        x, y, low, high = (rows[name].to_numpy() for name in ("x", "accuracy", "low", "high"))
        axes.fill_between(x, 100 * low, 100 * high, color=COLORS[place], alpha=0.1, linewidth=0)
        axes.plot(x, 100 * y, color=COLORS[place], marker=MARKERS[place], markersize=5, linewidth=1.5)
    counts = sorted(set(part["n"].to_list()))
    size = f"n = {counts[0]:,}" if len(counts) == 1 else f"n = {counts[0]:,} to {counts[-1]:,}"
    levels = part["level"].unique().sort().to_list()
    if levels[0] > 0 and levels[-1] >= 4 * levels[0]:
        from matplotlib.ticker import NullLocator

        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(_apart(levels), [f"{level:.3g}" for level in _apart(levels)])
    axes.set_xlabel(axis_label(attribute))
    axes.set_ylabel(f"accuracy, % ({size})")
    axes.set_ylim(-3, 103)
    _plain(axes, "both")
    _legend(figure, named, curves.head(0))
    return figure


def _apart(levels: list[float], least: float = 0.045) -> list[float]:
    """Return levels whose tick labels do not overlap on a log axis, `least` of the axis apart."""
    whole = float(np.log(levels[-1] / levels[0]))
    kept = [levels[0]]
    for level in levels[1:]:
        if np.log(level / kept[-1]) >= least * whole * 1.5:
            kept.append(level)
    return kept


def _empty(width: float, height: float) -> tuple[Figure, Axes]:
    figure = new_figure(width, height)
    return figure, figure.subplots()


def _plain(axes: Axes, grid: Any) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(QUIET)
    axes.grid(axis=grid, color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.margins(x=0.04)


def _legend(figure: Figure, models: list[str], drops: pl.DataFrame) -> None:
    """Add the models' names above the figure, and the hollow marker if there is a white-box result."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=COLORS[place], marker=MARKERS[place], linestyle="none", label=_short(model))
        for place, model in enumerate(models)
    ]
    if drops.height and drops["white_box"].any():
        hollow = Line2D([], [], color=QUIET, marker="o", markerfacecolor="none", linestyle="none")
        hollow.set_label("hollow: white-box")
        handles.append(hollow)
    columns = _columns([str(handle.get_label()) for handle in handles])
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=columns,
        frameon=False,
        fontsize=9,
    )


def _columns(names: list[str]) -> int:
    """Return how many names fit side by side above a figure."""
    longest = max((len(_short(name)) for name in names), default=1)
    return max(1, min(4, 96 // (longest + 6)))


def _short(name: str) -> str:
    return name if len(name) <= 48 else f"{name[:22]}…{name[-24:]}"
