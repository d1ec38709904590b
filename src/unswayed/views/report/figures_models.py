"""Figures of many models: accuracy on each factor against accuracy on all images, and error ratio against strength."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from .figures_factors import words
from .palette import COLORS, GRID, MARKERS, MOST, QUIET, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_AT_ONCE = 3  # factors that an augmentation helps most, and that it harms most


def accuracy_scatter(table: pl.DataFrame) -> Figure:
    """Draw one panel per factor: each model's accuracy on its images against the model's accuracy on all images.

    table: of the factor table `accuracy`; with a column `group` one color per group, and models without one are gray.
    Panels go from the easiest factor to the hardest. Below the diagonal the factor makes mistakes more frequent.
    """
    shown = table.drop_nulls("accuracy")
    order = shown.group_by("factor").agg(pl.col("error_ratio").mean()).sort("error_ratio", "factor")["factor"].to_list()
    groups: list[str | None] = [None]
    if "group" in table.columns:
        groups += table["group"].drop_nulls().unique(maintain_order=True).to_list()
    columns = min(6, max(1, len(order)))
    lines = -(-len(order) // columns)
    figure = new_figure(1.9 * columns, 0.7 + 1.9 * lines)
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for axes in panels.ravel()[len(order) :]:
        axes.set_axis_off()
    least = float(np.floor(10 * shown.select("accuracy", "average").to_numpy().min()) / 10)
    size = 16 if shown["model"].n_unique() < 50 else 7
    for axes, factor in zip(panels.ravel(), order, strict=False):
        part = shown.filter(pl.col("factor") == factor)
        axes.plot([0, 1], [0, 1], color=QUIET, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        for place, group in enumerate(groups):
            chosen = part
            if "group" in table.columns:
                chosen = part.filter(pl.col("group").is_null() if group is None else pl.col("group") == group)
            elif group is not None:
                continue
            gray = group is None and "group" in table.columns
            axes.scatter(
                chosen["average"], chosen["accuracy"], s=size, linewidths=0, alpha=0.25 if gray else 0.6,
                color=QUIET if gray else COLORS[max(0, place - 1) % MOST],
                marker=MARKERS[max(0, place - 1) % MOST], label=group if group is not None else "other",
            )  # fmt: skip
        axes.set_title(words(factor), fontsize=9)
        axes.set(xlim=(least, 1), ylim=(least, 1))
        axes.grid(color=GRID, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("accuracy on all images", fontsize=9)
    figure.supylabel("accuracy on images with the factor", fontsize=9)
    if len(groups) > 1:
        handles, labels = panels[0][0].get_legend_handles_labels()
        pairs = [(h, name) for h, name in zip(handles, labels, strict=True) if len(h.get_offsets())]
        figure.legend(
            [h for h, _ in pairs], [name for _, name in pairs], frameon=False, loc="outside upper center", ncols=4,
            fontsize=8, markerscale=2,
        )  # fmt: skip
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
        for place, (axes, factor) in enumerate(zip(line, chosen, strict=False)):
            rows = part.filter(pl.col("factor") == factor).sort("strength")
            color = COLORS[0] if place < (len(chosen) + 1) // 2 else COLORS[1]
            axes.scatter(rows["strength"], rows["error_ratio"], s=5, alpha=0.15, color=color, linewidths=0)
            fit = np.polynomial.Polynomial.fit(
                rows["strength"], rows["fitted"], min(3, max(0, rows["strength"].n_unique() - 1))
            )
            strengths = rows["strength"].to_numpy()
            at = np.linspace(strengths[0], strengths[-1], 100)
            axes.plot(at, fit(at), color=color, linewidth=1.8)
            axes.set_title(words(factor), fontsize=9, color=color)
            axes.set_xlabel(f"strength of {words(augmentation)}", fontsize=8)
            axes.tick_params(labelsize=8)
            axes.grid(color=GRID, linewidth=0.5)
            axes.spines[["top", "right"]].set_visible(False)
        line[0].set_ylabel("error ratio", fontsize=9)
    return figure
