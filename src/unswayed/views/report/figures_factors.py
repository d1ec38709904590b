"""Figures of factor tables for paper and page: factor profile, model types, spill-over (PNG, SVG or PDF)."""

from __future__ import annotations

import io
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from unswayed.errors import UserError, unknown
from unswayed.files.whole import write_bytes
from unswayed.sources.imagenet_x import FACTORS

from .heat_map import cells_of, heat_map
from .palette import COLORS, MARKERS, MOST, new_figure, places

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
MOST_MODELS = MOST


def factor_profile(
    errors: pl.DataFrame, models: list[str] | None = None, series: Mapping[str, int] | None = None
) -> Figure:
    """Draw the error ratio of every factor with its interval, one color per model, factors from easiest to hardest.

    `errors` is the table of `factor_errors` over models without metaclasses; at most eight models are readable;
    series: the places in the palette that models already have.
    """
    chosen = models or errors["model"].unique(maintain_order=True).to_list()
    if len(chosen) > MOST_MODELS:
        raise UserError(
            f"a profile of {len(chosen)} models is not readable",
            allowed=f"at most {MOST_MODELS} models",
            run="unswayed factors … --table accuracy --figure FILE",
        )
    if "metaclass" in errors.columns:
        raise UserError("the profile shows all images together", allowed="the table without --by metaclass")
    shown = errors.filter(pl.col("factor").is_in(FACTORS) & pl.col("model").is_in(chosen))
    order = _easiest_first(shown)
    figure, axes = _empty(6.4, 0.9 + len(order) * max(0.3, 0.11 * len(chosen)))
    for number, (model, place) in enumerate(places(chosen, series).items()):
        part = shown.filter(pl.col("model") == model)
        values = {name: (ratio, low, high) for name, ratio, low, high in
                  part.select("factor", "error_ratio", "low", "high").iter_rows()}  # fmt: skip
        offset = (number - (len(chosen) - 1) / 2) * 0.7 / len(chosen)
        rows = [(y + offset, *values[f]) for y, f in enumerate(order) if values.get(f, (None,))[0] is not None]
        y, ratio, low, high = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
        axes.hlines(y, low, high, color=COLORS[place % MOST], linewidth=1.6, alpha=0.55)
        axes.plot(
            ratio, y, MARKERS[place % MOST], color=COLORS[place % MOST], markersize=4.5, label=model, linestyle="none"
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
    figure, panels = _empty(2.6 + 3.8 * len(groupings), 1.2 + 0.3 * len(order), columns=len(groupings))
    for axes, grouping in zip(np.atleast_1d(panels), groupings, strict=True):
        part = compared.filter(pl.col("grouping") == grouping)
        for place, group in enumerate(part["group"].unique(maintain_order=True).to_list()):
            rows = part.filter(pl.col("group") == group)
            color, marker = COLORS[place % MOST_MODELS], MARKERS[place % MOST_MODELS]
            sure = (rows["p_value"].fill_null(1.0) < 0.05).to_numpy()
            y = np.array([order.index(f) for f in rows["factor"]])
            ratio = rows["error_ratio"].to_numpy()
            offset = (place - (part["group"].n_unique() - 1) / 2) * 0.12
            axes.errorbar(
                ratio, y + offset, xerr=rows["spread"].fill_null(0.0).to_numpy(), fmt="none", ecolor=color,
                elinewidth=1, alpha=0.35,
            )  # fmt: skip
            y = y + offset
            axes.plot(ratio[sure], y[sure], marker, color=color, markersize=6, linestyle="none")
            axes.plot(ratio[~sure], y[~sure], marker, color=color, markersize=6, linestyle="none", alpha=0.25)
            models = rows["models"].to_list()[0]
            axes.plot([], [], marker, color=color, linestyle="none", label=f"{group} ({models})")
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


# factor table -> (the module of this room, the function that draws it)
FIGURES: dict[str, tuple[str, str]] = {
    "errors": ("figures_factors", "factor_profile"),
    "accuracy": ("figures_models", "accuracy_scatter"),
    "model-types": ("figures_factors", "model_type_profile"),
    "spill-over": ("figures_factors", "spill_over_map"),
    "strengths": ("figures_models", "strength_curves"),
    "mistakes": ("figures_annotations", "shift_map"),
    "prevalence": ("figures_annotations", "shift_map"),
    "distribution": ("figures_annotations", "distribution_bars"),
    "active-factors": ("figures_annotations", "active_factor_bars"),
    "correlation": ("figures_annotations", "correlation_map"),
}


def draw(table: pl.DataFrame, name: str, path: str | Path) -> None:
    """Write the figure of the named factor table to a .png, .svg or .pdf file."""
    if name not in FIGURES:
        raise unknown("figure of the factor table", name, FIGURES)
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"cannot draw into {path}", allowed=", ".join(SUFFIXES))
    module, function = FIGURES[name]
    make = getattr(import_module(f"unswayed.views.report.{module}"), function)
    write_bytes(path, figure_bytes(make(table), suffix[1:]))


def figure_bytes(figure: Figure, format: str = "svg") -> bytes:
    """Return the figure as the bytes of a file; the report uses `svg`."""
    buffer = io.BytesIO()
    # No date in the file, so that equal tables give equal bytes.
    metadata: dict[str, None] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(format, {})  # type: ignore[assignment]
    figure.savefig(buffer, format=format, dpi=160, bbox_inches="tight", metadata=metadata)
    return buffer.getvalue()


def _empty(width: float, height: float, columns: int = 1) -> tuple[Figure, Any]:
    figure = new_figure(width, height)
    return figure, figure.subplots(1, columns, sharey=True)


def _ratio_axis(axes: Axes) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    ticks = [t for t in (0.125, 0.25, 0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8) if low <= t <= high]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.axvline(1, color="black", linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    axes.grid(axis="both", linewidth=0.5, alpha=0.25)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _easiest_first(table: pl.DataFrame) -> list[str]:
    means = table.drop_nulls("error_ratio").group_by("factor").agg(pl.col("error_ratio").mean()).sort("error_ratio")
    if means.is_empty():
        raise UserError("the table contains no error ratio to draw")
    return means["factor"].to_list()


def words(factor: str) -> str:
    """Return the factor's name for people."""
    return factor.replace("_", " ")
