"""What the published toolkit lacks: intervals, paired comparison, adjusted ratios, the link to edits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factor_worlds import random_answers, write_annotations
from unswayed.analyses.factors import Study, make_table
from unswayed.analyses.factors.answers import Answers
from unswayed.analyses.factors.error_ratios import (
    adjusted_error_ratios,
    correct_predictions,
    factor_calibration,
    factor_errors,
    ratio_intervals,
)
from unswayed.analyses.factors.model_types import (
    compare_model_types,
    compare_models,
    read_groups,
    read_strengths,
    spill_over,
)
from unswayed.analyses.factors.prevalence import correlation_over_models, drop_and_error_ratio
from unswayed.analyses.settings import two_models
from unswayed.analyses.statistics.paired import expected_calibration_error
from unswayed.errors import UserError
from unswayed.sources.imagenet_x import FACTORS, Annotations, load_annotations


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSWAYED_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield write_annotations(tmp_path_factory.mktemp("annotations"), images=3000)


@pytest.fixture(scope="module")
def annotations(world):
    return load_annotations("multi", folder=world)


def answers_with(annotations: Annotations, wrong: np.ndarray, model: str = "m") -> Answers:
    """A model that errs exactly where `wrong` says."""
    predicted = np.where(wrong, (annotations.labels + 1) % 1000, annotations.labels).astype(np.int16)
    return Answers(model, predicted, np.full(len(wrong), 0.5), len(wrong))


def test_cell_draws_have_the_law_of_image_draws():
    rng = np.random.default_rng(0)
    factor, wrong = rng.random(300) < 0.2, rng.random(300) < 0.3
    counts = [np.array([[x]]) for x in (factor.sum(), (factor & ~wrong).sum())]
    low, high = ratio_intervals(*counts, np.array([300]), np.array([(~wrong).sum()]), resamples=20_000)
    drawn = rng.integers(0, 300, (20_000, 300))
    f, w = factor[drawn], wrong[drawn]
    ratio = (f & w).sum(1) / f.sum(1) / w.mean(1)
    assert (low[0, 0], high[0, 0]) == pytest.approx(tuple(np.quantile(ratio, (0.025, 0.975))), abs=0.03)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(1)
    cells = np.array([0.04, 0.08, 0.26, 0.62])  # with wrong, with right, without wrong, without right
    truth = (cells[0] / cells[:2].sum()) / (cells[0] + cells[2])
    draws = rng.multinomial(800, cells, size=400)
    low, high = ratio_intervals(
        draws[:, :2].sum(1)[:, None], draws[:, 1][:, None], np.full(400, 800), draws[:, 1] + draws[:, 3], resamples=400
    )
    assert 0.91 <= np.mean((low[:, 0] <= truth) & (truth <= high[:, 0])) <= 0.98


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=4, max_size=4).filter(lambda cells: sum(cells) > 0))
def test_every_error_ratio_lies_in_its_interval_or_has_none(cells):
    with_wrong, with_right, without_wrong, without_right = cells
    n, wrong, total = with_wrong + with_right, with_wrong + without_wrong, sum(cells)
    low, high = ratio_intervals(np.array([[n]]), np.array([[with_right]]), np.array([total]), np.array([total - wrong]))
    if n == 0 or wrong == 0:
        assert np.isnan(low[0, 0]) and np.isnan(high[0, 0])
    else:
        assert 0 <= low[0, 0] <= high[0, 0]
        assert low[0, 0] - 0.05 <= (with_wrong / n) / (wrong / total) <= high[0, 0] + 0.05


def test_same_seed_same_interval_whatever_other_models_there_are(annotations):
    one = answers_with(annotations, np.random.default_rng(0).random(len(annotations)) < 0.3)
    assert factor_errors(annotations, one).equals(factor_errors(annotations, one))
    assert not factor_errors(annotations, one).equals(factor_errors(annotations, one, seed=1))
    narrow, wide = (factor_errors(annotations, one, level=level)["high"].sum() for level in (0.5, 0.99))
    assert narrow < wide


def test_real_labels_both_ways(annotations):
    empty = (annotations.real < 0).all(axis=1)
    predicted = np.where(empty, 0, annotations.real[:, 0]).astype(np.int16)
    everything_real = Answers("m", predicted, np.ones(len(empty)), len(empty))
    for right, n in (("real", len(empty)), ("real-standard", (~empty).sum())):
        row = factor_errors(annotations, everything_real, right, resamples=0).filter(pl.col("factor") == "average")
        assert (row["n"][0], row["accuracy"][0]) == (n, pytest.approx((~empty).sum() / n))
    with pytest.raises(UserError, match="no definition of correct"):
        correct_predictions(annotations, everything_real, "top5")


def test_other_is_one_metaclass(annotations):
    other = np.flatnonzero(annotations.metaclass_of_class == 16)
    mine = annotations.metaclass_of_class[annotations.labels] == 16
    predicted = np.where(mine, other[0], annotations.labels).astype(np.int16)
    correct, _ = correct_predictions(annotations, Answers("m", predicted, np.ones(len(mine)), len(mine)), "metaclass")
    assert correct.all()


def test_calibration_of_a_model_that_knows_itself_is_near_zero(annotations):
    rng = np.random.default_rng(3)
    confidence = rng.random(len(annotations))
    knowing = answers_with(annotations, rng.random(len(annotations)) > confidence)
    knowing = Answers("m", knowing.predicted, confidence, knowing.given)
    table = dict(factor_calibration(annotations, knowing).select("factor", "calibration_error").iter_rows())
    assert table["average"] < 0.05
    boastful = Answers("m", knowing.predicted, np.ones(len(annotations)), knowing.given)
    average = factor_calibration(annotations, boastful, by="metaclass").filter(pl.col("factor") == "average")
    assert average["calibration_error"].min() > 0.3
    assert np.isnan(expected_calibration_error(np.array([], bool), np.array([])))
    with pytest.raises(UserError, match="no predicted probabilities"):
        factor_calibration(annotations, Answers("m", knowing.predicted, np.full(len(annotations), np.nan), 0))


def test_paired_comparison_finds_the_one_factor_that_differs(annotations):
    rng = np.random.default_rng(4)
    base = rng.random(len(annotations)) < 0.2
    stumbles = annotations.factors[:, FACTORS.index("texture")] & (rng.random(len(annotations)) < 0.3)
    a, b = answers_with(annotations, base | stumbles, "a"), answers_with(annotations, base, "b")
    table = compare_models(annotations, a, b)
    texture = table.filter(pl.col("factor") == "texture").row(0, named=True)
    assert texture["difference"] < -0.15
    assert texture["p_holm"] < 1e-6
    assert texture["ratio_p_holm"] < 1e-3
    assert 0 < texture["low"] < texture["ratio_difference"] < texture["high"]
    assert (table["p_holm"] >= table["p_value"]).all()
    same = compare_models(annotations, b, b)
    assert same["p_value"].to_list() == [1.0] * (len(FACTORS) + 1)
    assert same["ratio_difference"].abs().max() == 0


def test_paired_comparison_uses_the_images_that_both_answered(annotations):
    wrong = np.random.default_rng(0).random(len(annotations)) < 0.3
    a, b = answers_with(annotations, wrong, "a"), answers_with(annotations, ~wrong, "b")
    a.predicted[:1000], b.predicted[1500:] = -1, -1
    assert compare_models(annotations, a, b, resamples=10)["n"][-1] == 500
    b.predicted[:] = -1
    with pytest.raises(UserError, match="no annotated image in common"):
        compare_models(annotations, a, b)


def test_adjusting_clears_the_factor_that_only_came_along(annotations):
    rng = np.random.default_rng(5)
    n = 20_000
    pose = rng.random(n) < 0.4
    flags = np.zeros((n, len(FACTORS)), bool)
    flags[:, 0], flags[:, 1] = pose, rng.random(n) < np.where(pose, 0.8, 0.2)  # background comes with pose
    wide = Annotations(
        "multi", "val", pl.Series([str(i) for i in range(n)]), flags, np.zeros(n, np.int16), np.zeros(n, np.int8),
        annotations.metaclass_of_class, None,
    )  # fmt: skip
    one = answers_with(wide, rng.random(n) < np.where(pose, 0.4, 0.1))  # only pose hurts
    table = adjusted_error_ratios(wide, one)
    background = table.filter(pl.col("factor") == "background").row(0, named=True)
    assert background["error_ratio"] > 1.25
    assert background["low"] < 1 < background["high"]
    assert background["p_value"] > 0.01
    pose_row = table.filter(pl.col("factor") == "pose").row(0, named=True)
    assert pose_row["risk_low"] < 4 < pose_row["risk_high"]
    assert table.filter(pl.col("factor") == "style")["adjusted_error_ratio"][0] is None


def test_adjusted_ratios_equal_an_ordinary_logistic_regression(annotations):
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(6)
    wrong = rng.random(len(annotations)) < 0.1 + 0.3 * annotations.factors[:, 2] + 0.2 * annotations.factors[:, 8]
    table = adjusted_error_ratios(annotations, answers_with(annotations, wrong))
    design = sm.add_constant(annotations.factors.astype(float))
    fit = sm.GLM(wrong.astype(float), design, family=sm.families.Binomial()).fit()
    on, off = design.copy(), design.copy()
    on[:, 3], off[:, 3] = 1, 0
    row = table.row(2, named=True)
    assert row["adjusted_error_ratio"] == pytest.approx(fit.predict(on).mean() / wrong.mean(), rel=1e-4)
    assert row["risk_ratio"] == pytest.approx(fit.predict(on).mean() / fit.predict(off).mean(), rel=1e-4)
    assert table["p_value"].to_numpy() == pytest.approx(fit.pvalues[1:], abs=1e-4)
    with pytest.raises(UserError, match="--which multi"):
        adjusted_error_ratios(replace(annotations, which="top"), answers_with(annotations, wrong))


def test_adjusting_survives_a_factor_whose_images_are_all_wrong(annotations):
    rng = np.random.default_rng(7)
    wrong = annotations.factors[:, 15] | (rng.random(len(annotations)) < 0.2)
    row = adjusted_error_ratios(annotations, answers_with(annotations, wrong)).row(15, named=True)
    assert row["adjusted_error_ratio"] == pytest.approx(1 / wrong.mean(), rel=0.01)
    perfect = adjusted_error_ratios(annotations, answers_with(annotations, np.zeros(len(wrong), bool)))
    assert perfect["adjusted_error_ratio"].null_count() == len(FACTORS)


def test_edits_and_annotations_agree_over_models(annotations, world, tmp_path):
    """Models that lean on the background lose more when it is edited, and err more where it is annotated unusual."""
    rng = np.random.default_rng(8)
    keys, unusual = annotations.keys.to_list()[:600], annotations.factors[:600, FACTORS.index("background")]
    tables = []
    for number in range(6):
        lean = number / 10
        before = rng.random(600) > 0.15 + lean * unusual
        for edit, right in (
            ("original", before), ("background-random", before & (rng.random(600) > lean)), ("size-full", ~before)
        ):  # fmt: skip
            names = [f"x/{key}.png" for key in keys]
            tables.append(pl.DataFrame({"model": f"m{number}", "file_name": names, "edit": edit, "correct": right}))
    edited = pl.concat(tables)
    pairs = drop_and_error_ratio(annotations, edited)
    assert pairs["attribute"].unique().to_list() == ["background"]
    first = pairs.row(0, named=True)
    assert (first["n"], first["n_factor"], first["drop"]) == (600, unusual.sum(), 0.0)
    edited.write_parquet(tmp_path / "all.parquet")
    joined = make_table(Study(tmp_path, which="multi", folder=world), "editing")
    assert joined.select(pairs.columns).equals(pairs)
    row = correlation_over_models(pairs).row(0, named=True)
    assert (row["factor"], row["models"]) == ("background", 6)
    assert row["correlation"] > 0.8
    last = edited.filter((pl.col("model") == "m5") & (pl.col("edit") == "original"))["correct"].to_numpy()
    expected = (1 - last[unusual].mean()) / (1 - last.mean())
    assert pairs.row(5, named=True)["error_ratio"] == pytest.approx(expected)
    with pytest.raises(UserError, match="no `original` rows"):
        drop_and_error_ratio(annotations, edited.filter(pl.col("edit") != "original"))
    with pytest.raises(UserError, match="none of the edited pictures"):
        drop_and_error_ratio(annotations, edited.with_columns(file_name=pl.lit("dog.png")))


def test_groups_and_strengths_are_read_and_checked(tmp_path):
    path = tmp_path / "groups.csv"
    path.write_text("model,architecture,training\na, cnn ,plain\nb,vit,\n")
    assert read_groups(path).sort("grouping", "model").rows() == [
        ("a", "architecture", "cnn"), ("b", "architecture", "vit"), ("a", "training", "plain")
    ]  # fmt: skip
    for text, reason in (
        ("model\na\n", "contains no groups of models"),
        ("model,x\na,1\na,2\n", "a more than once"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=reason):
            read_groups(path)
    path.write_text("model,augmentation,strength\na,crop,strong\n")
    with pytest.raises(UserError, match="not numbers, such as 'strong'"):
        read_strengths(path)
    path.write_text("model,strength\na,1\n")
    with pytest.raises(UserError, match="model, augmentation, strength"):
        read_strengths(path)
    with pytest.raises(UserError, match="does not exist"):
        read_groups(tmp_path / "nowhere.csv")


def test_groups_of_one_model_are_shown_but_not_tested():
    errors = pl.DataFrame({"model": ["a", "b", "c"], "factor": ["pose"] * 3, "error_ratio": [1.0, 1.2, 2.0]})
    groups = pl.DataFrame({"model": ["a", "b", "c"], "grouping": ["g"] * 3, "group": ["x", "x", "y"]})
    table = compare_model_types(errors, groups)
    assert table["p_value"].to_list() == table["p_holm"].to_list() == [None, None]
    strengths = pl.DataFrame({"model": ["a", "b", "c"], "augmentation": ["crop"] * 3, "strength": [0.0, 0.0, 1.0]})
    assert spill_over(errors, strengths).row(0, named=True)["p_holm"] is None
    assert table["error_ratio"].to_list() == [pytest.approx(1.1), 2.0]
    with pytest.raises(UserError, match="none of the models"):
        compare_model_types(errors, groups.with_columns(model=pl.lit("z")))


def test_every_table_of_a_study(tmp_path, world, annotations):
    for seed in range(6):
        table = random_answers([f"{k}.JPEG" for k in annotations.keys], annotations.labels, seed, 0.5 + 0.05 * seed)
        table.write_csv(tmp_path / f"m{seed}.csv")
    groups, strengths = tmp_path / "groups.txt", tmp_path / "strengths.txt"
    groups.write_text("model,kind\n" + "".join(f"m{i},k{i % 2}\n" for i in range(6)))
    strengths.write_text("model,augmentation,strength\n" + "".join(f"m{i},crop,{i // 2}\n" for i in range(6)))
    study = Study(
        tmp_path,
        which="multi",
        folder=world,
        groups=groups,
        strengths=strengths,
        pair=two_models("m0,m5"),
        resamples=20,
    )
    heights = {
        "errors": 6 * 19, "calibration": 6 * 18, "mistakes": 6 * 16, "adjusted": 6 * 16, "compare": 17, "coverage": 6,
        "prevalence": 16, "correlation": 16 * 33, "model-types": 32, "spill-over": 16,
        "accuracy": 6 * 16, "strengths": 6 * 16, "distribution": 4 * 16,
    }  # fmt: skip
    assert {name: make_table(study, name).height for name in heights} == heights
    real = make_table(Study(tmp_path, which="multi", right="real", folder=world, resamples=0))
    assert real["model"].unique(maintain_order=True).to_list()[-1] == "human"
    for name, reason in (("model-types", "--groups"), ("spill-over", "--strengths"), ("compare", "--models A,B"),
                         ("editing", "no predictions for edited pictures"), ("ratios", "no factor table")):  # fmt: skip
        with pytest.raises(UserError, match=reason):
            make_table(Study(tmp_path, which="multi", folder=world), name)
    with pytest.raises(UserError, match="did you mean 'm0'"):
        make_table(Study(tmp_path, which="multi", folder=world, pair=("m00", "m1")), "compare")
    with pytest.raises(UserError, match="not two models"):
        two_models("m0")
