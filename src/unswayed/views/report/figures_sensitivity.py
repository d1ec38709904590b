"""Figures of sensitivity and saliency: RFS against noise level, heat maps over photographs, channels on attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from .palette import COLORS, MARKERS, MOST, new_figure, places

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CURVES = MOST
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
    many = len(names) > MOST_CURVES
    legend = 1.9 * (1 + len(names) // 30) if many else 0
    figure = new_figure(8.6 + legend, 0.5 + 3.1 * len(norms) + (1.6 if many else 0))
    panels = figure.subplots(len(norms), 2, squeeze=False)
    for (accuracy, rfs), norm in zip(panels, norms, strict=True):
        for one, place in places(names, series).items():
            part = levels.filter((pl.col(name) == one) & (pl.col("norm") == norm)).sort("level")
            _accuracy(accuracy, part, place)
            _rfs(rfs, part, place, one, shaded=not many)
        accuracy.set(xlabel=_UNITS.get(norm, norm), ylabel="accuracy, class-balanced", ylim=(-0.03, 1.03))
        rfs.set(xlabel=_UNITS.get(norm, norm), ylabel="relative foreground sensitivity", ylim=(-1.05, 1.05))
        rfs.axhline(0, color="#888888", linewidth=0.8)
        ticks = levels.filter(pl.col("norm") == norm)["level"].unique().sort().to_list()
        for axes in (accuracy, rfs):
            axes.set_xticks(ticks[:: 1 + len(ticks) // 10])
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color="#dddddd", linewidth=0.6)
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


def overlay(image: np.ndarray, heat: np.ndarray, strength: float = 0.6) -> np.ndarray:
    """Return the photograph (H, W, 3) uint8 overlaid with its heat map (H, W) in [0, 1].

    Where the map is 0 the photograph is unchanged; higher values are more strongly colored (dark red to yellow).
    """
    from matplotlib import colormaps

    colors = colormaps["inferno"](0.15 + 0.85 * np.clip(heat, 0, 1))[..., :3] * 255
    share = (strength * np.sqrt(np.clip(heat, 0, 1)))[..., None]
    return (image * (1 - share) + colors * share).round().astype(np.uint8)


def outlined(image: np.ndarray, mask: np.ndarray, color: tuple[int, int, int] = (255, 255, 255)) -> np.ndarray:
    """Return the picture with the mask's outline drawn on it."""
    import cv2

    contours, _ = cv2.findContours((mask > 0.5).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    return cv2.drawContours(image.copy(), contours, -1, color, max(1, len(image) // 110))


def picture_sheet(rows: Sequence[tuple[Sequence[np.ndarray], Sequence[str]]], names: Sequence[str] = ()) -> Figure:
    """Draw rows of pictures, each with a line of text above it; `names` are written at the left of the rows."""
    wide = max(len(pictures) for pictures, _ in rows)
    figure = new_figure(1.75 * wide + (0.9 if names else 0), 1.95 * len(rows))
    panels = figure.subplots(len(rows), wide, squeeze=False)
    for row, (pictures, texts) in enumerate(rows):
        for column in range(wide):
            axes: Any = panels[row][column]
            axes.set_axis_off()
            if column < len(pictures):
                axes.imshow(pictures[column])
                axes.set_title(texts[column], fontsize=7.5, pad=3)
        if names:
            panels[row][0].text(
                -0.08, 0.5, names[row], transform=panels[row][0].transAxes, ha="right", va="center", fontsize=8
            )
    return figure


def _accuracy(axes: Axes, part: pl.DataFrame, place: int) -> None:
    for column, style in (("accuracy_background", "-"), ("accuracy_foreground", "--")):
        axes.plot(
            part["level"],
            part[column],
            style,
            color=COLORS[place % MOST],
            marker=_marker(place),
            markersize=3.5,
            linewidth=1.4,
        )


def _marker(place: int) -> str:
    """A marker that differs from that of the last model with the same color."""
    return MARKERS[(place // MOST + place) % MOST]


def _rfs(axes: Axes, part: pl.DataFrame, place: int, label: str, shaded: bool) -> None:
    level, value, low, high = (
        part[column].cast(pl.Float64).fill_null(np.nan).to_numpy() for column in ("level", "rfs", "rfs_low", "rfs_high")
    )
    color = COLORS[place % MOST]
    if shaded:
        axes.fill_between(level, low, high, color=color, alpha=0.12, linewidth=0)
    axes.plot(level, value, color=color, marker=_marker(place), markersize=4, linewidth=1.4, label=label)
