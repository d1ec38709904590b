import numpy as np
import polars as pl
import pytest

from unswayed.errors import UserError
from unswayed.views.report.figures_sensitivity import attribute_map, irfs_densities, noise_scatter, sensitivity_curve
from unswayed.views.report.pictures import outlined, overlay
from unswayed.views.report.section import figure_bytes
from unswayed.views.studies import choose_table, for_people


def table(models, rfs=(0.5, None, 0.2)):
    columns = {name: [0.4] * 3 for name in ("accuracy_foreground", "accuracy_background", "rfs_low", "rfs_high")}
    one = {"norm": ["linf"] * 3, "level": [30.0, 60.0, None], "rfs": list(rfs), **columns}
    return pl.concat([pl.DataFrame({"model": [name] * 3, **one}) for name in models])


def test_the_curve_leaves_a_gap_where_rfs_is_undefined():
    figure = sensitivity_curve(table(["a", "b"]))
    line = figure.axes[1].get_lines()[0]
    assert line.get_xdata().tolist() == [30, 60]
    assert np.isnan(line.get_ydata()[1])
    assert figure_bytes(figure, "svg").startswith(b"<?xml")
    many = sensitivity_curve(table([str(i) for i in range(40)])).axes[1].get_lines()
    looks = {(line.get_color(), line.get_marker()) for line in many if line.get_label()[0] != "_"}
    assert len(looks) == 40


def test_points_densities_and_maps_of_many_models_show_every_model_and_class():
    models = [f"m{i}" for i in range(30)]
    classes = pl.concat([table(models).with_columns(label=pl.lit(label, pl.Int64)) for label in (0, 1)])
    scatter = noise_scatter(table(models), classes, ["cat", "dog"])
    points = [line for line in scatter.axes[0].get_lines() if line.get_label() in models]
    assert len({(line.get_color(), line.get_marker()) for line in points}) == 30
    assert [axes.get_title() for axes in scatter.axes[1:25]] == models[:24]
    values = np.random.default_rng(0).uniform(-1, 1, 40)
    irfs = pl.DataFrame({"model": "m", "label": [0] * 36 + [1] * 4, "norm": "linf", "level": 30.0, "irfs": values})
    lines = [line.get_label() for line in irfs_densities(irfs, ["cat", "dog"]).axes[0].get_lines()]
    assert "cat" in lines
    assert "dog" not in lines  # four pictures are no density
    drops = pl.DataFrame(
        {"model": ["a", "b", "a"], "norm": "grey", "region": ["wings", "wings", "beak"], "drop": [0.1, 0.3, -0.1]}
    )
    cells = attribute_map(drops).axes[0].images[0].get_array().filled(np.nan)
    assert cells[0].tolist() == pytest.approx([10, 30, 20])
    assert cells[-1].tolist() == pytest.approx([0, 30, 5])
    assert attribute_map(drops.with_columns(region=pl.lit("background"))) is None


def test_a_photograph_stays_as_it_is_where_the_map_is_cold():
    image = np.random.default_rng(0).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    heat = np.zeros((8, 8))
    heat[2, 3] = 1
    shown = overlay(image, heat)
    changed = (shown != image).any(axis=2)
    assert changed[2, 3]
    assert changed.sum() == 1


def test_an_outline_follows_the_mask():
    mask = np.zeros((20, 20))
    mask[5:15, 5:15] = 1
    white = (outlined(np.zeros((20, 20, 3), np.uint8), mask) == 255).all(axis=2)
    assert white[5, 5:15].all()
    assert not white[8:12, 8:12].any()


def test_levels_are_short_text_for_people_and_tables_are_chosen_by_name():
    shown = for_people(table(["a"]))
    assert shown["level"].to_list() == ["30", "60", "all"]
    assert shown["accuracy_foreground"].to_list() == [100 * share for share in table(["a"])["accuracy_foreground"]]
    assert shown["rfs"].equals(table(["a"])["rfs"]), "RFS is no share"
    tables = {"rfs": table(["a"]), "saliency": table(["b"])}
    assert choose_table(tables, None)["model"][0] == "a"
    with pytest.raises(UserError, match="no table 'group'"):
        choose_table(tables, "group")
    with pytest.raises(UserError, match="did you mean 'drops'"):
        choose_table(tables, "drop")
