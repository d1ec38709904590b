"""Figures of the factor tables of ImageNet-X: profiles, spill-over, annotations, and many models at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from unswayed.errors import UserError, check_known
from unswayed.files.whole import write_bytes
from unswayed.sources.imagenet_x import FACTORS, METACLASSES

from .section import (
    COLORS,
    MARKERS,
    MOST,
    QUIET,
    SUFFIXES,
    cells_of,
    figure_bytes,
    heat_map,
    new_axes,
    new_figure,
    new_panels,
    places,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def factor_profile(
    errors: pl.DataFrame, models: list[str] | None = None, series: Mapping[str, int] | None = None
) -> Figure:
    """Draw the error ratio of every factor with its interval, one color per model, factors from easiest to hardest.

    `errors` is the table of `factor_errors` over models without metaclasses; at most eight models are readable;
    series: the places in the palette that models already have.
    """
    chosen = models or errors["model"].unique(maintain_order=True).to_list()
    if len(chosen) > MOST:
        raise UserError(
            f"a profile of {len(chosen)} models is not readable",
            allowed=f"at most {MOST} models",
            run="unswayed factors … --table accuracy --figure FILE",
        )
    if "metaclass" in errors.columns:
        raise UserError("the profile shows all images together", allowed="the table without --by metaclass")
    shown = errors.filter(pl.col("factor").is_in(FACTORS) & pl.col("model").is_in(chosen))
    order = _easiest_first(shown)
    figure, axes = new_axes(6.4, 0.9 + len(order) * max(0.3, 0.11 * len(chosen)))
    for number, (model, rank) in enumerate(places(chosen, series).items()):
        row = pl.col("factor").replace_strict(order, range(len(order)), return_dtype=pl.Float64)
        part = shown.filter(pl.col("model") == model).drop_nulls("error_ratio").with_columns(row=row).sort("row")
        y, ratio, low, high = (part[name].to_numpy() for name in ("row", "error_ratio", "low", "high"))
        y = y + (number - (len(chosen) - 1) / 2) * 0.7 / len(chosen)
        axes.hlines(y, low, high, color=COLORS[rank % MOST], linewidth=1.6, alpha=0.55)
        axes.plot(
            ratio, y, MARKERS[rank % MOST], color=COLORS[rank % MOST], markersize=4.5, label=model, linestyle="none"
        )
    # Published result tables do not say how many images have a factor.
    counts = {f: f"  ({n:,})" for f, n in shown.group_by("factor").agg(pl.col("n").max()).iter_rows() if n is not None}
    axes.set_yticks(range(len(order)), [words(f) + counts.get(f, "") for f in order])
    axes.set_xlabel("error ratio: mistakes on images with the factor / on average (log scale)")
    _ratio_axis(axes)
    figure.legend(frameon=False, loc="outside upper right", ncols=min(4, len(chosen)))
    return figure


def model_type_profile(compared: pl.DataFrame) -> Figure:
    """Draw the mean error ratio of each group of models with the spread over its models; pale if p ≥ 0.05.

    One panel per grouping.
    """
    groupings = compared["grouping"].unique(maintain_order=True).to_list()
    order = _easiest_first(compared)
    figure = new_figure(2.6 + 3.8 * len(groupings), 1.2 + 0.3 * len(order))
    panels = figure.subplots(1, len(groupings), sharey=True, squeeze=False)
    for axes, grouping in zip(panels[0], groupings, strict=True):
        part = compared.filter(pl.col("grouping") == grouping)
        for number, group in enumerate(part["group"].unique(maintain_order=True).to_list()):
            rows = part.filter(pl.col("group") == group)
            color, marker = COLORS[number % MOST], MARKERS[number % MOST]
            sure = (rows["p_value"].fill_null(1.0) < 0.05).to_numpy()
            y = np.array([order.index(f) for f in rows["factor"]])
            ratio = rows["error_ratio"].to_numpy()
            y = y + (number - (part["group"].n_unique() - 1) / 2) * 0.12
            spread = rows["spread"].fill_null(0.0).to_numpy()
            axes.errorbar(ratio, y, xerr=spread, fmt="none", ecolor=color, elinewidth=1, alpha=0.35)
            axes.plot(ratio[sure], y[sure], marker, color=color, markersize=6, linestyle="none")
            axes.plot(ratio[~sure], y[~sure], marker, color=color, markersize=6, linestyle="none", alpha=0.25)
            axes.plot([], [], marker, color=color, linestyle="none", label=f"{group} ({rows['models'][0]})")
        axes.set_yticks(range(len(order)), [words(f) for f in order])
        axes.set_title(grouping, loc="left", fontsize=10)
        axes.set_xlabel("mean error ratio ± standard deviation (log scale); pale: p ≥ 0.05")
        _ratio_axis(axes)
        axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def spill_over_map(effects: pl.DataFrame) -> Figure:
    """Draw Welch's t of every augmentation on every factor; blue: it lowers the error ratio; *: p_holm < 0.05."""
    augmentations = effects["augmentation"].unique(maintain_order=True).to_list()
    present = set(effects["factor"])
    order = [f for f in FACTORS if f in present]
    values, p = (
        cells_of(effects, "augmentation", "factor", value, augmentations, order) for value in ("statistic", "p_holm")
    )
    return heat_map(values, augmentations, [words(f) for f in order], "t (blue: helps,\nred: harms)", marked=p < 0.05)


def _ratio_axis(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    ticks = [tick for tick in (0.125, 0.25, 0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8) if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.axvline(1, color="black", linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    axes.grid(axis="both", linewidth=0.5, alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _easiest_first(table: pl.DataFrame) -> list[str]:
    means = table.drop_nulls("error_ratio").group_by("factor").agg(pl.col("error_ratio").mean()).sort("error_ratio")
    if means.is_empty():
        raise UserError("the table contains no error ratio to draw")
    return means["factor"].to_list()


def words(factor: str) -> str:
    """Return the factor's name for people."""
    return factor.replace("_", " ")


_PARTITIONS = {"train": COLORS[4], "val": COLORS[0]}
_SELECTIONS = {"multi": "every factor of an image", "top": "the main factor of an image"}
_MOST_ROWS = 60


def distribution_bars(table: pl.DataFrame) -> Figure:
    """Draw the share of images with each factor in both partitions: one panel for all factors, one for the main one."""
    common = table.group_by("factor").agg(pl.col("share").mean()).sort("share", "factor")["factor"].to_list()
    figure = new_figure(8.2, 4.6)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (which, title) in zip(panels, _SELECTIONS.items(), strict=True):
        for number, (partition, color) in enumerate(_PARTITIONS.items()):
            part = table.filter((pl.col("which") == which) & (pl.col("partition") == partition))
            y = np.array([common.index(f) for f in part["factor"]]) + 0.2 - 0.4 * number
            images = part["images"][0] if len(part) else 0
            axes.barh(y, 100 * part["share"], height=0.38, color=color, label=f"{partition} ({images:,} images)")
        axes.set_yticks(range(len(common)), [words(f) for f in common])
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlabel("images, %")
        plain(axes, "x")
    panels[1].legend(frameon=False, loc="lower right", fontsize=9)
    return figure


def active_factor_bars(table: pl.DataFrame) -> Figure:
    """Draw how many images have one, two, three … factors at once, in both partitions, on a log scale."""
    figure, axes = new_axes(5.6, 3)
    for number, (partition, color) in enumerate(_PARTITIONS.items()):
        part = table.filter(pl.col("partition") == partition)
        axes.bar(part["factors"].to_numpy() - 0.2 + 0.4 * number, part["n"], width=0.38, color=color, label=partition)
    axes.set_yscale("log")
    axes.set_xticks(sorted(set(table["factors"])))
    axes.set(xlabel="number of factors of an image", ylabel="images")
    plain(axes, "y")
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


_AT_ONCE = 3  # factors that an augmentation helps most, and that it harms most


def accuracy_scatter(table: pl.DataFrame) -> Figure:
    """Draw one panel per factor: each model's accuracy on its images against the model's accuracy on all images.

    table: of the factor table `accuracy`; with a column `group` one color per group, and models without one are gray.
    Panels go from the easiest factor to the hardest. Below the diagonal the factor makes mistakes more frequent.
    """
    shown = table.drop_nulls("accuracy")
    order = shown.group_by("factor").agg(pl.col("error_ratio").mean()).sort("error_ratio", "factor")["factor"].to_list()
    grouped = "group" in table.columns
    groups = [None, *(table["group"].drop_nulls().unique(maintain_order=True) if grouped else ())]
    figure, panels = new_panels(len(order), 1.9, 6, (0, 0.7), labelsize=10, share=True)
    least = float(np.floor(10 * shown.select("accuracy", "average").to_numpy().min()) / 10)
    size = 16 if shown["model"].n_unique() < 50 else 7
    for axes, factor in zip(panels, order, strict=True):
        part = shown.filter(pl.col("factor") == factor)
        axes.plot([0, 1], [0, 1], color=QUIET, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        for number, group in enumerate(groups):
            chosen = part.filter(pl.col("group").eq_missing(pl.lit(group, pl.String))) if grouped else part
            if chosen.is_empty():
                continue
            gray, look = grouped and group is None, max(0, number - 1) % MOST
            axes.scatter(
                chosen["average"], chosen["accuracy"], s=size, linewidths=0, alpha=0.25 if gray else 0.6,
                color=QUIET if gray else COLORS[look], marker=MARKERS[look], label="other" if group is None else group,
            )  # fmt: skip
        axes.set_title(words(factor), fontsize=9)
        axes.set(xlim=(least, 1), ylim=(least, 1))
    figure.supxlabel("accuracy on all images", fontsize=9)
    figure.supylabel("accuracy on images with the factor", fontsize=9)
    if len(groups) > 1:
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, loc="outside upper center", ncols=4, fontsize=8, markerscale=2)
    return figure


def strength_curves(table: pl.DataFrame) -> Figure:
    """Draw the error ratio against an augmentation's strength with the cubic fit, one row of panels per augmentation.

    table: of the factor table `strengths`. The three factors whose fit falls most between the weakest and the strongest
    augmentation, in standard deviations of the error ratio, come first (blue), then the three that rise most (red).
    """
    augmentations = table["augmentation"].unique(maintain_order=True).to_list()
    figure = new_figure(2.2 * 2 * _AT_ONCE, 0.3 + 2.1 * len(augmentations))
    panels = figure.subplots(len(augmentations), 2 * _AT_ONCE, squeeze=False)
    for line, augmentation in zip(panels, augmentations, strict=True):
        part = table.filter(pl.col("augmentation") == augmentation)
        change = (pl.col("fitted").last() - pl.col("fitted").first()) / pl.col("error_ratio").std()
        ends = part.sort("strength").group_by("factor").agg(change)
        changes = ends.sort("fitted", "factor")["factor"].to_list()
        chosen = changes if len(changes) <= 2 * _AT_ONCE else [*changes[:_AT_ONCE], *changes[-_AT_ONCE:][::-1]]
        for axes in line[len(chosen) :]:
            axes.set_axis_off()
        for number, (axes, factor) in enumerate(zip(line, chosen, strict=False)):
            rows = part.filter(pl.col("factor") == factor).sort("strength")
            color = COLORS[0] if number < (len(chosen) + 1) // 2 else COLORS[1]
            axes.scatter(rows["strength"], rows["error_ratio"], s=5, alpha=0.15, color=color, linewidths=0)
            fit = np.polynomial.Polynomial.fit(
                rows["strength"], rows["fitted"], min(3, max(0, rows["strength"].n_unique() - 1))
            )
            at = np.linspace(rows["strength"][0], rows["strength"][-1], 100)
            axes.plot(at, fit(at), color=color, linewidth=1.8)
            axes.set_title(words(factor), fontsize=9, color=color)
            axes.set_xlabel(f"strength of {words(augmentation)}", fontsize=8)
            axes.tick_params(labelsize=8)
            plain(axes, "both", 0.5)
        line[0].set_ylabel("error ratio", fontsize=9)
    return figure


# What draws each factor table.
FIGURES: dict[str, Callable[[pl.DataFrame], Figure]] = {
    "errors": factor_profile,
    "accuracy": accuracy_scatter,
    "model-types": model_type_profile,
    "spill-over": spill_over_map,
    "strengths": strength_curves,
    "mistakes": shift_map,
    "prevalence": shift_map,
    "distribution": distribution_bars,
    "active-factors": active_factor_bars,
    "correlation": correlation_map,
}


def draw(table: pl.DataFrame, name: str, path: str | Path) -> None:
    """Write the figure of the named factor table to a .png, .svg or .pdf file."""
    check_known("figure of the factor table", [name], FIGURES)
    figure, suffix = FIGURES[name](table), Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"cannot draw into {path}", allowed=", ".join(SUFFIXES))
    write_bytes(path, figure_bytes(figure, suffix[1:]))
