import numpy as np
import polars as pl
import pytest

from unfazed.errors import UserError
from unfazed.report.figures_factors import figure_bytes
from unfazed.report.figures_sensitivity import outlined, overlay, sensitivity_curve
from unfazed.report.sensitivity_tables import choose_table, for_people


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
    with pytest.raises(UserError, match="at most 8"):
        sensitivity_curve(table([str(i) for i in range(9)]))


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
    assert for_people(table(["a"]))["level"].to_list() == ["30", "60", "all"]
    tables = {"rfs": table(["a"]), "saliency": table(["b"])}
    assert choose_table(tables, None)["model"][0] == "a"
    with pytest.raises(UserError, match="no table 'group'"):
        choose_table(tables, "group")
    with pytest.raises(UserError, match="did you mean 'drops'"):
        choose_table(tables, "drop")
