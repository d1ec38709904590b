import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unswayed.analyses.sensitivity import (
    balanced_interval,
    bootstrap_balanced,
    class_balanced_mean,
    instance_sensitivity,
    region_drops,
    relative_foreground_sensitivity,
    sensitivity,
    sensitivity_by_class,
    sensitivity_by_group,
)
from unswayed.errors import UserError

PUBLISHED = json.loads((Path(__file__).parent.parent / "data" / "rival10_measures.json").read_text())


@pytest.mark.parametrize("case", PUBLISHED["rfs"], ids=str)
def test_published_spot_values(case):
    value = relative_foreground_sensitivity(case["acc_fg_noise"], case["acc_bg_noise"])
    assert np.isnan(value) if case["rfs"] is None else value == pytest.approx(case["rfs"], abs=1e-12)


def test_instance_values_are_the_published_ones_except_that_nothing_over_nothing_is_missing():
    published = PUBLISHED["irfs"]
    for foreground, background, expected in zip(published["p_fg"], published["p_bg"], published["irfs"], strict=True):
        value = relative_foreground_sensitivity(foreground, background)
        if foreground == background and foreground in (0, 1):
            assert np.isnan(value)
        else:
            assert value == pytest.approx(expected, abs=1e-9)


@given(st.floats(0, 1), st.floats(0, 1))
def test_rfs_is_bounded_and_antisymmetric(foreground, background):
    value, swapped = (
        relative_foreground_sensitivity(*pair) for pair in ((foreground, background), (background, foreground))
    )
    if np.isnan(value):
        assert np.isnan(swapped)
    else:
        assert -1 - 1e-9 <= value <= 1 + 1e-9
        assert value == pytest.approx(-swapped)


def rows(accuracies, norm="linf", levels=(30.0, 60.0), model="m", pictures=10):
    """Rows in which `accuracies[level][region]` of the first pictures are right; every label has two pictures."""
    made = []
    for picture in range(pictures):
        one = {"model": model, "source_id": f"s{picture:02}", "label": picture // 2, "seed": 0}
        made.append({**one, "norm": "clean", "level": None, "region": "none", "correct": True, "true_probability": 0.9})
        for level, pair in zip(levels, accuracies, strict=True):
            for region, share in zip(("foreground", "background"), pair, strict=True):
                right = picture < round(share * pictures)
                made.append(
                    {**one, "norm": norm, "level": level, "region": region}
                    | {"correct": right, "true_probability": 0.8 if right else 0.1}
                )
    return pl.DataFrame(made)


def test_a_row_a_level_and_one_over_all_levels():
    table = sensitivity(rows([(0.2, 0.8), (0.6, 1.0)]), draws=200)
    assert table["level"].to_list() == [30.0, 60.0, None]
    assert table["rfs"].to_list() == pytest.approx([0.6, 1.0, 0.5 / 0.7])
    assert table["n"].to_list() == [10, 10, 10]
    assert (table["rfs_low"] <= table["rfs"]).all()
    assert (table["rfs"] <= table["rfs_high"]).all()


def test_undefined_is_null_never_zero():
    row = sensitivity(rows([(1.0, 1.0)], levels=(30.0,)), draws=50).row(0, named=True)
    assert (row["rfs"], row["rfs_low"], row["rfs_high"], row["undefined"]) == (None, None, None, 1.0)
    assert row["irfs"] == pytest.approx(0.0)


def test_instance_table_gives_null_for_nothing_over_nothing():
    table = rows([(0.0, 1.0)], levels=(30.0,)).with_columns(
        pl.when(pl.col("source_id") == "s00").then(1.0).otherwise(pl.col("true_probability")).alias("true_probability")
    )
    irfs = dict(instance_sensitivity(table).select("source_id", "irfs").iter_rows())
    assert irfs["s00"] is None
    assert irfs["s01"] == pytest.approx(0.7 / 0.9)


def test_the_released_convention_counts_undefined_as_zero_and_averages_over_levels_and_pictures():
    published = PUBLISHED["irfs"]
    made = [
        {"model": "m", "source_id": f"s{i}", "label": 0, "seed": 0, "norm": "linf", "level": 30.0, "region": region,
         "correct": True, "true_probability": value}
        for i, pair in enumerate(zip(published["p_fg"], published["p_bg"], strict=True))
        for region, value in zip(("foreground", "background"), pair, strict=True)
    ]  # fmt: skip
    values = instance_sensitivity(pl.DataFrame(made), "released")["irfs"]
    assert values.to_list() == pytest.approx(published["irfs"], abs=1e-9)
    two = rows([(0.2, 0.8), (0.6, 1.0)])
    own, released = (sensitivity(two, draws=10, convention=how)["irfs"].to_list() for how in ("default", "released"))
    assert released[:2] == pytest.approx(own[:2])
    assert released[2] == pytest.approx(sum(own[:2]) / 2)
    assert released[2] != pytest.approx(own[2])


def test_released_drops_weight_pictures_and_ours_weight_classes():
    made = [
        {"model": "m", "source_id": f"s{i}", "label": int(i == 3), "seed": 0, "norm": norm, "level": None,
         "region": "wings" if norm == "grey" else "none", "correct": norm == "clean" or i == 3,
         "true_probability": 0.9 if norm == "clean" or i == 3 else 0.5}
        for i in range(4) for norm in ("clean", "grey")
    ]  # fmt: skip
    own, released = (
        region_drops(pl.DataFrame(made), 10, convention=how).row(0, named=True) for how in ("default", "released")
    )
    assert (own["drop"], released["drop"]) == (0.5, 0.75)
    assert (own["probability_drop"], released["probability_drop"]) == pytest.approx((0.2, 0.3))


def test_group_means_come_before_rfs_as_published():
    published = PUBLISHED["rfs_averaging_order"]
    levels = [30.0 * (i + 1) for i in range(7)]
    tables = [
        rows(list(zip(published["fg"][m], published["bg"][m], strict=True)), levels=levels, model=name, pictures=200)
        for m, name in enumerate("ab")
    ]
    # With 200 pictures every published accuracy is met exactly; two a class keep the class-balanced mean plain.
    groups = pl.DataFrame({"model": ["a", "b"], "training": ["standard", "standard"]})
    table = sensitivity_by_group(pl.concat(tables), groups, draws=50).filter(pl.col("level").is_not_null())
    assert table["rfs"].to_list() == pytest.approx(published["rfs_of_group_mean_per_level"])
    assert table["mean_model_rfs"].to_list() == pytest.approx(published["mean_of_model_rfs_per_level"])
    assert table["models"].to_list() == [2] * 7
    own = sensitivity(tables[0], draws=10).filter(pl.col("level").is_null())["rfs"].item()
    assert own == pytest.approx(published["fig6_rfs_of_grand_mean_model0"])


def test_groups_that_name_no_model_are_refused():
    with pytest.raises(UserError, match="no model"):
        sensitivity_by_group(rows([(0.2, 0.8)], levels=(30.0,)), pl.DataFrame({"model": ["x"], "family": ["y"]}))
    with pytest.raises(UserError, match="model,GROUPING"):
        sensitivity_by_group(rows([(0.2, 0.8)], levels=(30.0,)), pl.DataFrame({"name": ["x"]}))


def test_by_class_uses_only_the_pictures_of_the_class():
    table = sensitivity_by_class(rows([(0.1, 0.2)], levels=(30.0,)), draws=20).filter(pl.col("level") == 30.0)
    assert table["label"].to_list() == [0, 1, 2, 3, 4]
    assert table["n"].to_list() == [2] * 5
    assert table["rfs"].to_list() == [pytest.approx(1.0), None, None, None, None]


def test_pictures_that_one_model_lacks_are_left_out_for_all():
    short = rows([(0.5, 1.0)], levels=(30.0,), model="b").filter(pl.col("source_id") != "s03")
    table = sensitivity(pl.concat([rows([(0.5, 1.0)], levels=(30.0,), model="a"), short]), draws=20)
    assert set(table["n"]) == {9}
    with pytest.raises(UserError, match="no picture"):
        sensitivity(rows([(0.5, 1.0)], levels=(30.0,)).filter(pl.col("region") != "background"))


def test_drops_are_paired_with_the_clean_picture():
    table = region_drops(rows([(0.2, 0.8)], levels=(30.0,)), draws=200)
    foreground = table.row(by_predicate=pl.col("region") == "foreground", named=True)
    assert (foreground["clean_accuracy"], foreground["accuracy"]) == (1, pytest.approx(0.2))
    assert foreground["drop"] == pytest.approx(0.8)
    assert foreground["low"] < 0.8 < foreground["high"]
    assert foreground["probability_drop"] == pytest.approx(0.9 - (0.2 * 0.8 + 0.8 * 0.1))


def test_balanced_mean_weighs_classes_equally_and_skips_nan():
    labels = np.array([0, 0, 0, 1])
    assert class_balanced_mean(np.array([1.0, 1.0, 0.0, 0.0]), labels) == pytest.approx(1 / 3)
    assert class_balanced_mean(np.array([1.0, np.nan, np.nan, np.nan]), labels) == pytest.approx(1.0)
    assert np.isnan(class_balanced_mean(np.full(4, np.nan), labels)).all()


@pytest.mark.parametrize("a_class", [1, 20], ids=["one picture a class", "twenty pictures a class"])
def test_bootstrap_covers_the_truth_about_as_often_as_it_says(a_class):
    rng, hits = np.random.default_rng(1), 0
    labels = np.arange(60) // a_class
    for trial in range(300):
        sample = (rng.random(60) < 0.3).astype(float)
        low, high = balanced_interval(
            bootstrap_balanced(sample, labels, [str(i) for i in range(60)], draws=200, seed=trial), 60
        )
        hits += low <= 0.3 <= high
    assert 0.90 <= hits / 300 <= 0.98


def test_one_picture_has_no_interval():
    alone = rows([(0.0, 1.0)], levels=(30.0,), pictures=1)
    row = sensitivity(alone, draws=20).row(0, named=True)
    assert (row["rfs"], row["rfs_low"], row["irfs_high"]) == (1.0, None, None)


def test_equal_resamples_give_no_interval_instead_of_one_of_width_zero():
    """Equal answers on both regions made every resample 0, and the table claimed RFS 0.000 (0.000 to 0.000)."""
    row = sensitivity(rows([(0.5, 0.5)], levels=(30.0,)), draws=50).row(0, named=True)
    assert (row["rfs"], row["rfs_low"], row["rfs_high"]) == (0.0, None, None)
