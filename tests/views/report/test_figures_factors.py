"""Figures of factor tables are drawn into real files and refuse what cannot be read."""

from __future__ import annotations

import io

import numpy as np
import polars as pl
import pytest
from PIL import Image

from factor_worlds import write_annotations
from unswayed.analyses.factors import Study, make_table
from unswayed.analyses.factors.model_types import by_strength, compare_model_types, spill_over
from unswayed.errors import UserError
from unswayed.sources.imagenet_x import FACTORS
from unswayed.views.report.figures_factors import (
    accuracy_scatter,
    active_factor_bars,
    correlation_map,
    distribution_bars,
    draw,
    factor_profile,
    model_type_profile,
    shift_map,
    spill_over_map,
    strength_curves,
)
from unswayed.views.report.section import figure_bytes


@pytest.fixture(scope="module")
def errors():
    rng = np.random.default_rng(0)
    ratio = np.tile(np.linspace(0.6, 2.4, 16), 12) + rng.normal(0, 0.05, 192)
    return pl.DataFrame(
        {
            "model": np.repeat([f"m{i}" for i in range(12)], 16),
            "factor": list(FACTORS) * 12,
            "n": list(range(40, 56)) * 12,
            "error_ratio": ratio,
            "low": ratio - 0.2,
            "high": ratio + 0.2,
        }
    )


@pytest.fixture(scope="module")
def tables(errors):
    models = [f"m{i}" for i in range(12)]
    groups = {"model": models, "grouping": "kind", "group": ["a", "b"] * 6}
    strengths = {"model": models, "augmentation": "crop", "strength": [float(i // 3) for i in range(12)]}
    return {
        "errors": errors.filter(pl.col("model").is_in(["m0", "m1"])),
        "model-types": compare_model_types(errors, pl.DataFrame(groups)),
        "spill-over": spill_over(errors, pl.DataFrame(strengths)),
    }


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
@pytest.mark.parametrize("name", ["errors", "model-types", "spill-over"])
def test_every_figure_in_every_format_the_same_bytes_twice(name, suffix, tables, tmp_path):
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    for path in (tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"):
        draw(tables[name], name, path)
        assert path.read_bytes().startswith(start)
    if suffix != ".svg":  # the ids inside an SVG are drawn anew
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_the_profile_shows_every_factor_once_and_each_interval_around_its_point(tables):
    figure = factor_profile(tables["errors"])
    axes = figure.axes[0]
    labels = [label.get_text().split("  ")[0].replace(" ", "_") for label in axes.get_yticklabels()]
    assert sorted(labels) == sorted(FACTORS)
    assert labels[0] == "pose"
    assert labels[-1] == "multiple_objects"
    first = tables["errors"].filter((pl.col("model") == "m0") & (pl.col("factor") == "pose")).row(0, named=True)
    assert axes.lines[0].get_xdata()[0] == first["error_ratio"]
    assert axes.collections[0].get_segments()[0][:, 0].tolist() == [first["low"], first["high"]]


def test_the_heat_map_has_a_cell_an_augmentation_and_factor(tables):
    picture = spill_over_map(tables["spill-over"]).axes[0].images[0]
    assert picture.get_array().shape == (1, 16)
    drawn = np.asarray(Image.open(io.BytesIO(figure_bytes(model_type_profile(tables["model-types"]), "png"))))
    assert len(np.unique(drawn.reshape(-1, drawn.shape[-1]), axis=0)) > 20


@pytest.fixture(scope="module")
def annotations(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSWAYED_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield write_annotations(tmp_path_factory.mktemp("annotations"))


def test_the_annotations_are_drawn_by_partition_factor_and_metaclass(annotations):
    def table(name, **options):
        return make_table(Study(folder=annotations, **options), name)

    bars = distribution_bars(table("distribution"))
    assert [len(axes.patches) for axes in bars.axes] == [32, 32]
    shares = table("distribution").filter((pl.col("partition") == "val") & (pl.col("which") == "multi"))["share"]
    drawn = [patch.get_width() for patch in bars.axes[0].patches[16:]]
    assert drawn == pytest.approx((100 * shares).to_list())
    active = active_factor_bars(table("active-factors"))
    assert sum(patch.get_height() for patch in active.axes[0].patches) == 397 + 100
    cells = correlation_map(table("correlation", which="multi")).axes[0].images[0].get_array()
    assert cells.shape == (16, 33)
    assert np.isnan(np.diagonal(cells.filled(np.nan))).all()
    shift = shift_map(table("prevalence", by="metaclass")).axes[0].images[0].get_array()
    assert shift.shape == (17, 16)
    with pytest.raises(UserError, match="--by metaclass"):
        shift_map(table("prevalence"))


def test_many_models_are_a_scatter_per_factor_and_strengths_a_curve(errors):
    table = errors.with_columns(average=pl.lit(0.7), accuracy=1 - 0.3 * pl.col("error_ratio"))
    figure = accuracy_scatter(table.with_columns(group=pl.when(pl.col("model") != "m0").then(pl.lit("a"))))
    shown = [axes for axes in figure.axes if axes.collections]
    assert [axes.get_title() for axes in shown][0] == "pose"
    assert [len(one.get_offsets()) for one in shown[0].collections] == [1, 11]
    strengths = {
        "model": [f"m{i}" for i in range(12)],
        "augmentation": "crop",
        "strength": [float(i // 3) for i in range(12)],
    }
    falling = errors.with_columns(
        error_ratio=pl.col("error_ratio")
        - pl.when(pl.col("factor") == "color").then(pl.col("model").str.tail(-1).cast(pl.Int32) / 4).otherwise(0)
    )
    curves = strength_curves(by_strength(falling, pl.DataFrame(strengths)))
    assert curves.axes[0].get_title() == "color"
    assert len(curves.axes) == 6


def test_what_cannot_be_drawn_is_refused(errors, tables, tmp_path):
    with pytest.raises(UserError, match="12 models is not readable"):
        factor_profile(errors)
    with pytest.raises(UserError, match="without --by metaclass"):
        factor_profile(tables["errors"].with_columns(metaclass=pl.lit("dog")))
    with pytest.raises(UserError, match=r"\.png, \.svg, \.pdf"):
        draw(tables["errors"], "errors", tmp_path / "a.gif")
    with pytest.raises(UserError, match="no figure of the factor table 'coverage'"):
        draw(tables["errors"], "coverage", tmp_path / "a.png")
    with pytest.raises(UserError, match="no error ratio to draw"):
        factor_profile(tables["errors"].with_columns(error_ratio=pl.lit(None, pl.Float64)))
