"""Figures of sensitivity and saliency: accuracy under noise, RFS, iRFS, attributes, heat maps by class and group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl

from unswayed.evaluation.measures import MEASURES

from .section import COLORS, MARKERS, MOST, QUIET, cells_of, heat_map, new_figure, new_panels, places, plain, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_UNITS = {"linf": "standard deviation of the noise, in 255ths", "l2": "l2 norm of the noise"}


def sensitivity_curve(table: pl.DataFrame, name: str = "model", series: Mapping[str, int] | None = None) -> Figure:
    """Draw accuracy under noise and RFS against the level, one row of panels per norm, one color per model (or group).

    table: of `sensitivity` (name="model") or `sensitivity_by_group` (name="group"). An undefined RFS leaves a gap. More
    than eight names repeat the colors with other markers, without the shaded intervals. series: the places in the
    palette that models already have.
    """
    names = table[name].unique(maintain_order=True).to_list()
    levels = table.filter(pl.col("level").is_not_null())
    norms = levels["norm"].unique(maintain_order=True).to_list()
    many = len(names) > MOST
    legend = 1.9 * (1 + len(names) // 30) if many else 0
    figure = new_figure(8.6 + legend, 0.5 + 3.1 * len(norms) + (1.6 if many else 0))
    panels = figure.subplots(len(norms), 2, squeeze=False)
    for (accuracy, rfs), norm in zip(panels, norms, strict=True):
        for label, number in places(names, series).items():
            part = levels.filter((pl.col(name) == label) & (pl.col("norm") == norm)).sort("level")
            look = {"color": COLORS[number % MOST], "marker": _marker(number), "markersize": 3.5, "linewidth": 1.4}
            for column, style in (("accuracy_background", "-"), ("accuracy_foreground", "--")):
                accuracy.plot(part["level"], part[column], style, **look)
            level, value, low, high = (
                part[column].cast(pl.Float64).fill_null(np.nan).to_numpy()
                for column in ("level", "rfs", "rfs_low", "rfs_high")
            )
            if not many:
                rfs.fill_between(level, low, high, color=look["color"], alpha=0.12, linewidth=0)
            rfs.plot(level, value, **look | {"markersize": 4}, label=label)
        accuracy.set(xlabel=_UNITS.get(norm, norm), ylabel="accuracy, class-balanced", ylim=(-0.03, 1.03))
        rfs.set(xlabel=_UNITS.get(norm, norm), ylabel="relative foreground sensitivity", ylim=(-1.05, 1.05))
        rfs.axhline(0, color=QUIET, linewidth=0.8)
        ticks = levels.filter(pl.col("norm") == norm)["level"].unique().sort().to_list()
        for axes in (accuracy, rfs):
            axes.set_xticks(ticks[:: 1 + len(ticks) // 10])
            plain(axes, "y")
    from matplotlib.lines import Line2D

    key = [Line2D([], [], color="#444444", linestyle=style) for style in ("-", "--")]
    panels[0][0].legend(key, ["noise on the background", "noise on the foreground"], frameon=False, fontsize=8)
    handles, labels = panels[0][1].get_legend_handles_labels()
    if many:
        columns = 1 + len(names) // 30
        figure.legend(handles, labels, frameon=False, loc="outside right upper", ncols=columns, fontsize=7.5)
    else:
        figure.legend(handles, labels, frameon=False, loc="outside upper right", ncols=min(4, len(names)), fontsize=9)
    return figure


def _marker(number: int) -> str:
    """Return a marker that differs from that of the last model with the same color."""
    return MARKERS[(number // MOST + number) % MOST]


MOST_PANELS = 24  # one per model
_FEW = 8  # pictures that a density needs
_NARROWEST = 0.06  # standard deviation of the kernel of a density of iRFS
_NAMES = {"density_difference": "Δdensity", "average_precision": "average precision", "iou": "IoU", "dice": "Dice"}


def noise_scatter(models: pl.DataFrame, classes: pl.DataFrame, names: Sequence[str]) -> Figure:
    """Draw accuracy under background noise against accuracy under foreground noise, over all levels of the first norm.

    models, classes: tables of `sensitivity` and `sensitivity_by_class`; names: of the classes. The first panel has one
    point per model, the others, one for each of the first models, one point per class. Above the diagonal the model
    depends more on the object.
    """
    norm = models["norm"][0]
    over_levels = (pl.col("norm") == norm) & pl.col("level").is_null()
    models, classes = models.filter(over_levels), classes.filter(over_levels)
    order = models["model"].to_list()
    figure, panels = new_panels(1 + min(len(order), MOST_PANELS), 2.6)
    for number, (model, x, y) in enumerate(models.select("model", *_ACCURACIES).iter_rows()):
        color, marker = COLORS[number % MOST], _marker(number)
        panels[0].plot(x, y, marker, color=color, markersize=6, label=model, linestyle="none")
    panels[0].set_title("all models", fontsize=9)
    labels = sorted(set(classes["label"]))
    few = len(labels) <= 2 * MOST
    for axes, model in zip(panels[1:], order, strict=False):
        for label, x, y in classes.filter(pl.col("model") == model).select("label", *_ACCURACIES).iter_rows():
            number = labels.index(label)
            color, marker = (COLORS[number % MOST], _marker(number)) if few else (COLORS[0], "o")
            axes.plot(
                x, y, marker, color=color, markersize=4.5, linestyle="none", label=names[label] if few else None,
                alpha=0.8 if few else 0.4,
            )  # fmt: skip
        axes.set_title(short(model), fontsize=8)
    _foreground_against_background(figure, panels, "accuracy")
    _legend(figure, panels[0], "outside right upper")
    if few and len(panels) > 1:
        _legend(figure, panels[1], "outside right lower")
    return figure


def _foreground_against_background(figure: Figure, panels: Sequence[Axes], what: str) -> None:
    """Name the axes, and draw the diagonal on which noise on the object and on its background cost the same."""
    for axes in panels:
        axes.plot([0, 1], [0, 1], color=QUIET, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        axes.set_aspect("equal")
    figure.supxlabel(f"{what} under noise on the foreground", fontsize=9)
    figure.supylabel(f"{what} under noise on the background", fontsize=9)


def probability_scatter(table: pl.DataFrame, names: Sequence[str]) -> Figure:
    """Draw the true class's probability under background against foreground noise: a panel per model, a point per
    picture and level of the first norm, in the colors of the most frequent classes.

    table: of `instance_sensitivity`; names: of the classes.
    """
    shown = table.filter(pl.col("norm") == table["norm"][0])
    order = table["model"].unique(maintain_order=True).to_list()[:MOST_PANELS]
    figure, panels = new_panels(len(order), 2.6)
    for axes, model in zip(panels, order, strict=True):
        for number, label in enumerate(_most_frequent(shown)):
            part = shown.filter((pl.col("model") == model) & (pl.col("label") == label))
            x, y = part["foreground_probability"], part["background_probability"]
            faint = min(1.0, 40 / max(len(part), 1) + 0.05)
            axes.plot(x, y, "o", color=COLORS[number], markersize=3, markeredgewidth=0, alpha=faint)
            axes.plot([], [], "o", color=COLORS[number], markersize=4.5, label=names[label])
        axes.set_title(short(model), fontsize=8)
    _foreground_against_background(figure, panels, "p(true class)")
    _legend(figure, panels[0], "outside right upper")
    return figure


def rfs_bars(table: pl.DataFrame) -> Figure:
    """Draw RFS over all levels with its interval: a bar per model, a panel per norm; table: of `sensitivity`."""
    shown = table.filter(pl.col("level").is_null())
    norms, models = (shown[column].unique(maintain_order=True).to_list() for column in ("norm", "model"))
    figure = new_figure(1.2 + max(3.0, 0.42 * len(models)) * len(norms), 3.4)
    for axes, norm in zip(figure.subplots(1, len(norms), squeeze=False, sharey=True)[0], norms, strict=True):
        part = shown.filter(pl.col("norm") == norm)
        value, low, high = (part[name].fill_null(np.nan).to_numpy() for name in ("rfs", "rfs_low", "rfs_high"))
        at = range(len(value))
        axes.bar(at, value, color=[COLORS[number % MOST] for number in at])
        axes.vlines(at, low, high, color="#444444", linewidth=1.2)
        axes.axhline(0, color=QUIET, linewidth=0.8)
        axes.set_xticks(at, map(short, part["model"]), rotation=40, ha="right", rotation_mode="anchor", fontsize=8)
        axes.set_title(norm, fontsize=9)
        axes.set_ylim(-1.05, 1.05)
        axes.tick_params(labelsize=8)
        plain(axes, "y")
    figure.supylabel("RFS over all levels", fontsize=9)
    return figure


def _most_frequent(table: pl.DataFrame) -> list[int]:
    """Return the labels with the most rows, as many as there are colors, in order."""
    counts = table.group_by("label").len().sort("len", "label", descending=[True, False])["label"].to_list()
    return sorted(counts[:MOST])


def irfs_densities(table: pl.DataFrame, names: Sequence[str]) -> Figure:
    """Draw the density of iRFS over the pictures and levels of the first norm: one panel per model, one line per class.

    table: of `instance_sensitivity`; names: of the classes. Classes with fewer than eight values have no line; the
    gray area is all pictures of the model.
    """
    norm = table["norm"][0]
    shown = table.filter((pl.col("norm") == norm) & pl.col("irfs").is_not_null())
    order = table["model"].unique(maintain_order=True).to_list()[:MOST_PANELS]
    figure, panels = new_panels(len(order), 2.6)
    at = np.linspace(-1, 1, 201)
    chosen = _most_frequent(shown)
    for axes, model in zip(panels, order, strict=True):
        part = shown.filter(pl.col("model") == model)
        everything = _density(part["irfs"].to_numpy(), at)
        if everything is not None:
            axes.fill_between(at, everything, color="#dddddd", linewidth=0, label="all pictures")
        for number, label in enumerate(chosen):
            line = _density(part.filter(pl.col("label") == label)["irfs"].to_numpy(), at)
            if line is not None:
                axes.plot(at, line, color=COLORS[number], linewidth=1.3, label=names[label])
        axes.axvline(0, color=QUIET, linewidth=0.8)
        axes.set_title(short(model), fontsize=8)
        axes.set(xlim=(-1, 1))
        axes.set_ylim(bottom=0)
    figure.supxlabel("iRFS: 1 only the object matters, −1 only the background", fontsize=9)
    figure.supylabel("density", fontsize=9)
    _legend(figure, panels[0], "outside right upper")
    return figure


def attribute_map(drops: pl.DataFrame) -> Figure | None:
    """Draw how many points of accuracy each model loses if an attribute is gray, with averages.

    drops: of `region_drops`; None if it has no attributes.
    """
    gray = drops.filter((pl.col("norm") == "grey") & ~pl.col("region").is_in(["foreground", "background"]))
    if gray.is_empty():
        return None
    models = gray["model"].unique(maintain_order=True).to_list()
    attributes = gray.group_by("region").agg(pl.col("drop").mean()).sort("drop", descending=True)["region"].to_list()
    cells = 100 * cells_of(gray, "region", "model", "drop", attributes, models)
    return heat_map(
        _with_averages(cells), [*attributes, "average"], [*map(short, models), "average"],
        "drop of accuracy, points,\nwith the attribute gray", colors="RdBu_r",
    )  # fmt: skip


def alignment_map(by_class: pl.DataFrame, measure: str, names: Sequence[str]) -> Figure:
    """Draw the mean of one measure of heat maps by class and model, with averages; table: of `alignment.by_class`."""
    column = "predicted" if "predicted" in by_class.columns else "label"
    table = by_class.filter(pl.col("method") == by_class["method"][0])
    models = table["model"].unique(maintain_order=True).to_list()
    labels = sorted(set(table[column]))
    cells = cells_of(table, column, "model", measure, labels, models)
    what = "predicted class" if column == "predicted" else "class"
    return heat_map(
        _with_averages(cells), [*(short(names[label]) for label in labels), "average"],
        [*map(short, models), "average"], f"{_NAMES.get(measure, measure.replace('_', ' '))}\nby {what}",
        colors="viridis", around_zero=False, decimals=2,
    )  # fmt: skip


def alignment_bars(by_group: pl.DataFrame) -> Figure:
    """Draw every measure of heat maps by group of models; table: of `alignment.by_group` for one grouping."""
    table = by_group.filter(pl.col("method") == by_group["method"][0])
    figure, panels = new_panels(len(MEASURES), 2.2, 4)
    groups = table["group"].to_list()
    for axes, measure in zip(panels, MEASURES, strict=True):
        values = table[measure].fill_null(np.nan).to_numpy()
        axes.bar(range(len(groups)), values, color=[COLORS[number % MOST] for number in range(len(groups))])
        axes.set_xticks(range(len(groups)), map(short, groups), rotation=40, ha="right", rotation_mode="anchor")
        axes.set_title(_NAMES.get(measure, measure.replace("_", " ")), fontsize=9)
    return figure


_ACCURACIES = ("accuracy_foreground", "accuracy_background")


def _legend(figure: Figure, axes: Axes, corner: Literal["outside right upper", "outside right lower"]) -> None:
    """Put the names of a panel's points beside the panels."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        columns = 1 + len(labels) // 28
        figure.legend(handles, map(short, labels), frameon=False, loc=corner, fontsize=7.5, ncols=columns)


def _density(values: np.ndarray, at: np.ndarray) -> np.ndarray | None:
    """Return a Gaussian kernel density at the given points; None for few or equal values."""
    from scipy.stats import gaussian_kde

    if len(values) < _FEW or np.ptp(values) < 1e-6:
        return None
    density = gaussian_kde(values)
    # Many values close to 1 would otherwise give a peak that flattens every other line.
    density.set_bandwidth(max(density.factor, _NARROWEST / np.std(values, ddof=1)))
    return density(at)


def _with_averages(cells: np.ndarray) -> np.ndarray:
    """Return the cells with a last column and a last row of means; empty cells do not count."""
    for axis in (1, 0):
        means = np.ma.masked_invalid(cells).mean(axis, keepdims=True).filled(np.nan)
        cells = np.concatenate([cells, means], axis)
    return cells


MOST_HISTOGRAMS = 8
_SCORES = {"energy": "Energy", "gradnorm": "GradNorm"}


def score_histograms(table: pl.DataFrame, sets: Sequence[str]) -> Figure:
    """Histograms of the scores of each set over those of the originals, a panel for each set and score.

    table: of `histogram_table`, of one model; sets: at most eight.
    """
    scores = [score for score in _SCORES if score in table["score"].to_list()]
    figure = new_figure(3.6 * len(scores) + 0.6, 0.5 + 1.5 * len(sets))
    panels = figure.subplots(len(sets), len(scores), squeeze=False)
    for line, name in zip(panels, sets, strict=True):
        for axes, score in zip(line, scores, strict=True):
            part = table.filter((pl.col("set") == name) & (pl.col("score") == score)).sort("low")
            edges = [*part["low"].to_list(), *part["high"].to_list()[-1:]]
            if not edges:
                axes.set_visible(False)
                continue
            axes.stairs(part["reference_share"].to_list(), edges, fill=True, color="#dddddd", label="reference")
            axes.stairs(part["share"].to_list(), edges, color=COLORS[0], linewidth=1.5, label="edited")
            axes.set_title(f"{name}: {_SCORES[score]}", fontsize=9, loc="left")
            axes.set_yticks([])
            axes.tick_params(labelsize=8, color=QUIET)
            axes.spines[["top", "right", "left"]].set_visible(False)
    panels[0][0].legend(frameon=False, fontsize=8)
    return figure
