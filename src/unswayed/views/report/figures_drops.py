"""Figures of dropped accuracy: by edit, against the original accuracy, and along sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from unswayed.edits import edit_named_in
from unswayed.edits.edit import allowed, parameters
from unswayed.evaluation.facts import AVERAGE, ORIGINAL
from unswayed.views.text import sample_size

from .section import COLORS, MARKERS, QUIET, new_axes, plain, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .findings import Findings

# The width of the figures in inches, and of their variants for phones.
WIDE, NARROW = 7.6, 4.0


def axis_label(attribute: str) -> str:
    """Return the label of an attribute's axis, with its unit, as its edit declares it.

    >>> axis_label("lighting-object")
    'change of light, stops (object)'
    >>> axis_label("color-saturation")
    'color: saturation, times its saturation'
    """
    edit = edit_named_in(attribute)
    if edit is None:
        return attribute
    rest = attribute.removeprefix(edit.name).removeprefix("-")
    swept = next((name for name in parameters(edit) if rest == name or rest.startswith(f"{name}-")), None)
    if swept is not None:
        unit, fixed = getattr(allowed(edit, swept), "unit", ""), rest.removeprefix(swept).removeprefix("-")
        return f"{edit.name}: {swept}" + (f", {unit}" if unit else "") + (f" ({fixed})" if fixed else "")
    return f"{edit.axis_label} ({rest})" if rest else edit.axis_label


def level_words(attribute: str, level: float) -> str:
    """Return a level of an attribute's axis; a share in percent.

    >>> level_words("size", 0.0771), level_words("lighting-object", -1.5)
    ('7.71\\xa0%', '-1.5')
    """
    return f"{100 * level:.3g}\u00a0%" if "share" in axis_label(attribute) else f"{level:.3g}"


def drop_figure(findings: Findings, narrow: bool = False) -> Figure:
    """Draw the effect of every edit with its interval, one color per model, and the raw drop as a faint mark.

    The edits are grouped by attribute. narrow: the variant for phones, with the edits' names above their rows. The
    elements of a model and an edit have the id `mark:MODEL'S PLACE:EDIT'S NAME`.
    """
    groups = [*([[AVERAGE]] if findings.averages else []), *findings.attributes.values()]
    series = findings.series
    edits = [edit for group in groups for edit in group]
    step, gap = (1.55, 0.35) if narrow else (1.0, 0.55)
    at: dict[str, float] = {}
    offset = 0.0
    for group in groups:
        for edit in group:
            at[edit] = offset
            offset += step
        offset += gap
    height = max(0.34, 0.13 * len(series)) * offset + 1.0
    figure, axes = new_axes(NARROW if narrow else WIDE, height)
    rows = findings.drops.filter(pl.col("edit").is_in(edits) & pl.col("model").is_in(list(series)))
    for row in rows.iter_rows(named=True):
        number = series[row["model"]]
        y = at[row["edit"]] + (number - (len(series) - 1) / 2) * 0.72 / len(series)
        _mark(axes, row, y, number)
    counts = dict(rows.group_by("edit").agg(pl.col("n").max()).iter_rows())
    names = [f"{findings.words[edit]}  (n = {counts.get(edit, 0):,})" for edit in edits]
    if narrow:
        axes.set_yticks([])
        for edit, name in zip(edits, names, strict=True):
            axes.text(0, at[edit] - 0.56, name, fontsize=9, va="center", transform=axes.get_yaxis_transform())
    else:
        axes.set_yticks([at[edit] for edit in edits], names)
    axes.set_ylim(offset - gap - 0.4 * step, -1.0 if narrow else -0.6)
    axes.axvline(0, color=QUIET, linewidth=1)
    axes.set_xlabel(
        "points of accuracy lost" if narrow else "points of accuracy lost (right: worse); bars: 95 % intervals"
    )
    _plain(axes, "x")
    axes.tick_params(axis="y", length=0)
    marks = ["faint line: raw drop"] if rows["net_drop"].is_not_null().any() else []
    marks += ["hollow: white-box"] if rows["white_box"].any() else []
    marks += ["cross: published"] if "published" in rows.columns and rows["published"].is_not_null().any() else []
    _legend(figure, series, marks, NARROW if narrow else WIDE)
    return figure


def _mark(axes: Axes, row: Mapping[str, Any], y: float, number: int) -> None:
    color, name = COLORS[number], f"mark:{number}:{row['edit']}"
    axes.hlines(y, row["effect_low"], row["effect_high"], color=color, linewidth=1.8, alpha=0.55).set_gid(name)
    # A white-box result has a hollow marker: the pictures were made to attack this model.
    face = "none" if row["white_box"] else color
    points = axes.plot(
        row["effect"], y, MARKERS[number], color=color, markerfacecolor=face, markersize=5.5, zorder=3, gid=name
    )
    if row["net_drop"] is not None:
        points += axes.plot(row["drop"], y, "|", color=color, alpha=0.45, markersize=9, gid=name)
    if row.get("published") is not None:
        axes.plot(row["published"], y, "x", color=color, markersize=6, gid=name)


def accuracy_and_drop(findings: Findings, narrow: bool = False) -> Figure:
    """Draw original accuracy against average drop, one point per model, with intervals; models without a place in the
    palette are gray."""
    width = NARROW if narrow else WIDE
    average = findings.averages
    original = {row["model"]: row for row in findings.drops.filter(edit=ORIGINAL).iter_rows(named=True)}
    there = [name for name in average if name in original]
    named = {name: rank for name, rank in findings.series.items() if name in there}
    figure, axes = new_axes(width, 4.0 + 0.2 * -(-len(named) // _columns(list(named), width)))
    for model in [*(name for name in there if name not in named), *named]:
        x, y, rank = original[model], average[model], named.get(model)
        color = QUIET if rank is None else COLORS[rank]
        horizontal = [[x["accuracy"] - x["accuracy_low"]], [x["accuracy_high"] - x["accuracy"]]]
        vertical = [[y["effect"] - y["effect_low"]], [y["effect_high"] - y["effect"]]]
        axes.errorbar(
            100 * x["accuracy"],
            y["effect"],
            xerr=100 * np.maximum(horizontal, 0),
            yerr=np.maximum(vertical, 0),
            fmt="o" if rank is None else MARKERS[rank],
            color=color,
            ecolor=color,
            elinewidth=1.1,
            alpha=0.5 if rank is None else 1,
            # If two models have the same numbers, the first one is visible as a ring around the second.
            markersize=5 if rank is None else 10 - 0.7 * rank,
            zorder=3 if rank is None else 4 + rank,
        )
    axes.set_xlabel(f"accuracy on the originals, % ({sample_size(row['n'] for row in original.values())})")
    axes.set_ylabel("average points lost (up: worse)")
    _plain(axes, "both")
    _legend(figure, named, width=width)
    return figure


def curve_figure(curves: pl.DataFrame, attribute: str, findings: Findings, narrow: bool = False) -> Figure:
    """Draw accuracy along one attribute: one line per model, its points beside those of the others, with intervals, and
    a dashed line at its accuracy on the originals."""
    width, originals = NARROW if narrow else WIDE, findings.accuracies
    part = curves.filter(pl.col("attribute") == attribute)
    named = {name: rank for name, rank in findings.series.items() if name in set(part["model"])}
    figure, axes = new_axes(width, 3.6 + 0.2 * -(-len(named) // _columns(list(named), width)))
    levels = part["level"].unique().sort().to_list()
    logarithmic = levels[0] > 0 and levels[-1] >= 4 * levels[0]
    for number, (model, rank) in enumerate(named.items()):
        # Both sides of a sweep through zero are one line; levels below zero are stored as distances.
        signed = pl.when(pl.col("side") == "below 0").then(-pl.col("level")).otherwise(pl.col("level"))
        rows = part.filter(pl.col("model") == model).with_columns(x=signed).unique("x").sort("x")
        x, y, low, high = (rows[name].to_numpy() for name in ("x", "accuracy", "low", "high"))
        axes.errorbar(
            _dodged(x, number - (len(named) - 1) / 2, logarithmic),
            100 * y,
            yerr=100 * np.maximum([y - low, high - y], 0),
            color=COLORS[rank],
            marker=MARKERS[rank],
            markersize=5,
            linewidth=1.5,
            elinewidth=1.1,
        )
        if model in originals:
            axes.axhline(100 * originals[model], color=COLORS[rank], linewidth=1, linestyle=(0, (4, 3)), alpha=0.7)
    if logarithmic:
        from matplotlib.ticker import NullLocator

        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        ticks = _apart(levels, 0.09 if narrow else 0.045)
        axes.set_xticks(ticks, [level_words(attribute, level) for level in ticks])
    else:
        axes.xaxis.set_major_formatter(lambda level, _: level_words(attribute, round(level, 6)))
    axes.set_xlabel(axis_label(attribute))
    axes.set_ylabel(f"accuracy, % ({sample_size(part['n'])})")
    _plain(axes, "both")
    _legend(figure, named, ["dashed: accuracy on the originals"] if originals else [], width)
    return figure


def _dodged(x: np.ndarray, shift: float, logarithmic: bool) -> np.ndarray:
    """Return the levels moved a little, so that the intervals of several models do not hide each other."""
    if len(x) < 2 or not shift:
        return x
    scale = np.log(x) if logarithmic else x
    moved = scale + shift * 0.012 * (scale[-1] - scale[0])
    return np.exp(moved) if logarithmic else moved


def _apart(levels: list[float], least: float = 0.045) -> list[float]:
    """Return levels whose tick labels do not overlap on a log axis, `least` of the axis apart."""
    whole = float(np.log(levels[-1] / levels[0]))
    kept = [levels[0]]
    for level in levels[1:]:
        if np.log(level / kept[-1]) >= least * whole * 1.5:
            kept.append(level)
    return kept


def against_figure(curve: pl.DataFrame, column: str) -> Figure:
    """Draw the drops along a column of numbers (`wide.along`): one line per edit, with its interval."""
    figure, axes = new_axes(6.4, 4.2)
    for number, (edit, rows) in enumerate(curve.group_by("edit", maintain_order=True)):
        color, x = COLORS[number % len(COLORS)], rows[column].to_numpy()
        axes.fill_between(x, rows["low"].to_numpy(), rows["high"].to_numpy(), color=color, alpha=0.15, linewidth=0)
        axes.plot(x, rows["drop"].to_numpy(), MARKERS[number % len(MARKERS)] + "-", color=color, label=str(edit[0]))
    axes.set_xlabel(column)
    axes.set_ylabel("dropped accuracy, points; band: 95 % interval")
    axes.legend(frameon=False)
    _plain(axes, "y")
    return figure


def _plain(axes: Axes, grid: Literal["x", "y", "both"]) -> None:
    plain(axes, grid, 0.7, "left")
    axes.spines["bottom"].set_color(QUIET)
    axes.margins(x=0.04)


def _legend(figure: Figure, series: Mapping[str, int], marks: Sequence[str] = (), width: float = WIDE) -> None:
    """Add the models' names above the figure, and what its other marks mean."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=COLORS[number], marker=MARKERS[number], linestyle="none", label=short(model, 48))
        for model, number in series.items()
    ]
    signs = {"faint": "|", "hollow": "o", "cross": "x", "dashed": "_"}
    for mark in marks:
        sign = Line2D([], [], color=QUIET, marker=signs[mark.split(":")[0].split()[0]], linestyle="none", label=mark)
        sign.set_markerfacecolor("none")
        handles.append(sign)
    columns = _columns([str(handle.get_label()) for handle in handles], width)
    # A legend is filled by columns; names are read by rows.
    handles = [handle for column in range(columns) for handle in handles[column::columns]]
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, frameon=False, fontsize=9)


def _columns(names: Sequence[str], width: float) -> int:
    """Return how many names fit side by side above a figure."""
    longest = max((len(short(name, 48)) for name in names), default=1)
    return max(1, min(4, int(12.5 * width) // (longest + 6)))
