"""Our tables equal the published toolkit's own functions on random answers over the real annotations.

Needs the package imagenet-x (CC BY-NC 4.0): `pip install 'unswayed[imagenetx]'`.
"""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pytest

pytest.importorskip("pandas", reason="the published toolkit needs pandas")
pytest.importorskip("imagenet_x", reason="needs the package imagenet-x: pip install 'unswayed[imagenetx]'")

import imagenet_x.aggregate as published
import imagenet_x.utils as published_files
import pandas as pd

from factor_worlds import random_answers
from unswayed.analyses.factors import published_tables
from unswayed.analyses.factors.answers import human_answers, read_answers
from unswayed.analyses.factors.error_ratios import factor_calibration, factor_errors
from unswayed.analyses.factors.prevalence import factor_correlation, misclassification_shift, prevalence
from unswayed.sources.imagenet_x import FACTORS, METACLASSES, load_annotations

CORRECT = {"class": "is_correct", "metaclass": "is_metaclass_correct", "real": "is_correct_real"}
MODELS = {"good": 0.9, "middling": 0.6, "poor": 0.25}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three models of different skill over all 50,000 validation images."""
    folder = tmp_path_factory.mktemp("predictions")
    names = pl.read_csv(str(published_files.get_annotation_path() / "filename_label.csv"))
    for seed, (model, accuracy) in enumerate(MODELS.items()):
        answers = random_answers(names["file_name"].to_list(), names["label"].to_numpy(), seed, accuracy)
        answers.write_csv(folder / f"{model}.csv")
    return folder


@pytest.fixture(scope="module", params=["top", "multi"])
def both(request, folder):
    """(our annotations, our answers by model, the published joined frame)."""
    ours = load_annotations(request.param)
    theirs = published_files.load_annotations(which_factor=request.param)
    models, _ = published_files.load_model_predictions(str(folder))
    joined = published_files.augment_model_predictions(theirs, models, add_human_performance=True)
    answers = {one.model: one for one in read_answers(folder, ours)}
    return ours, {**answers, "human": human_answers(ours)}, joined


def test_annotations_are_the_published_ones():
    for which in ("top", "multi"):
        for partition in ("val", "train"):
            for keep in (False, True):
                ours = load_annotations(which, partition, keep_prototypes=keep)
                theirs = published_files.load_annotations(which, partition, filter_prototypes=not keep)
                assert ours.keys.to_list() == [name.removesuffix(".JPEG") for name in theirs["file_name"]]
                assert np.array_equal(ours.factors, theirs[list(FACTORS)].to_numpy().astype(bool))
                assert np.array_equal(ours.labels, theirs["class"])
                assert [METACLASSES[m] for m in ours.metaclasses] == theirs["metaclass"].to_list()
    assert tuple(published_files.FACTORS) == FACTORS
    assert tuple(published_files.METACLASSES) == METACLASSES


@pytest.mark.parametrize("right", CORRECT)
def test_accuracies_and_error_ratios(both, right):
    annotations, answers, joined = both
    theirs = published.compute_factor_accuracies(joined, list(FACTORS), CORRECT[right])
    their_ratios = published.error_ratio(theirs)
    for model, one in answers.items():
        ours = factor_errors(annotations, one, right, resamples=0)
        accuracy = dict(ours.select("factor", "accuracy").iter_rows())
        for name in (*FACTORS, "worst_factor", "average"):
            assert accuracy[name] == pytest.approx(theirs.loc[model, name], abs=1e-12)
        for factor, ratio in ours.select("factor", "error_ratio").head(len(FACTORS)).iter_rows():
            # the published ratio is 0 / 0 where every answer is right, as the labels are by the notion `class`
            assert (ratio is None and model == "human") or ratio == pytest.approx(
                their_ratios.loc[model, factor], abs=1e-12
            )
    human = factor_errors(annotations, answers["human"], "real", resamples=0).filter(pl.col("factor") == "average")
    assert human["accuracy"][0] == pytest.approx(0.83522, abs=5e-6)


ROWS = [*FACTORS, "average"]


def test_counts_and_worst_classes(both):
    annotations, answers, joined = both
    for model in MODELS:
        rows = joined[joined.model == model]
        counts = factor_errors(annotations, answers[model], resamples=0).filter(pl.col("factor").is_in(ROWS))
        assert counts["n"].to_list() == [*(int(rows[f].sum()) for f in FACTORS), len(rows)]
        assert (counts["n"] * counts["accuracy"]).round(9).to_list() == [
            *(int(rows.loc[rows.is_correct, f].sum()) for f in FACTORS),
            rows.is_correct.sum(),
        ]
        # the published choice among equally bad classes is what an unstable sort leaves; ours takes the lower number
        per_class = (
            rows.groupby("class").is_correct.agg(["mean", "sum", "size"]).sort_values("mean", kind="stable").head(100)
        )
        table = factor_errors(annotations, answers[model], resamples=0).filter(pl.col("factor") == "worst_100_classes")
        assert table["n"][0] == per_class["size"].sum()
        assert table["accuracy"][0] == pytest.approx(per_class["sum"].sum() / per_class["size"].sum(), abs=1e-12)
        theirs = published.worst_k_class_acc(rows, k=100, error_type="is_correct")[model]
        assert table["accuracy"][0] == pytest.approx(theirs, abs=5e-3)


@pytest.mark.parametrize("right", CORRECT)
def test_accuracies_by_metaclass(both, right):
    annotations, answers, joined = both
    models = joined[joined.model != "human"]
    theirs = published.compute_factor_metaclass_accuracies(models, list(FACTORS), CORRECT[right], list(METACLASSES))
    for model in MODELS:
        ours = factor_errors(annotations, answers[model], right, by="metaclass", resamples=0)
        assert ours.height == len(METACLASSES) * (len(FACTORS) + 2)
        for metaclass, factor, accuracy in ours.select("metaclass", "factor", "accuracy").iter_rows():
            expected = theirs.loc[(model, metaclass), factor]
            assert (accuracy is None and np.isnan(expected)) or accuracy == pytest.approx(expected, abs=1e-12)


def test_calibration(both):
    annotations, answers, joined = both
    models = joined[joined.model != "human"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = published.compute_factor_calibration_errors(models, list(FACTORS), "is_correct")
    for model in MODELS:
        for factor, error in (
            factor_calibration(annotations, answers[model]).select("factor", "calibration_error").iter_rows()
        ):
            assert error == pytest.approx(theirs.loc[model, factor], abs=1e-12)


@pytest.mark.parametrize("both", ["top"], indirect=True)  # the published class knows only the top factors
def test_prevalence_shifts(both, folder):
    from imagenet_x.prevalence import Prevalence

    annotations, answers, _ = both
    theirs = Prevalence(models_dir=str(folder))
    for metaclass, factor, share, shift in (
        prevalence(annotations, "metaclass").select("metaclass", "factor", "prevalence", "shift").iter_rows()
    ):
        assert share == pytest.approx(theirs.metaclass_prevalence.loc[metaclass, factor], abs=1e-12)
        assert shift == pytest.approx(theirs.metaclass_prevalence_shift.loc[metaclass, factor], abs=1e-12)
    overall = theirs.misclassification_shifts_df.set_index(["model", "factor"])["shift"]
    within = theirs.metaclass_misclassification_shifts_df.set_index(["model", "metaclass"])
    for model in MODELS:
        for factor, shift in misclassification_shift(annotations, answers[model]).select("factor", "shift").iter_rows():
            assert shift == pytest.approx(overall[model, factor], abs=1e-12)
        by_metaclass = misclassification_shift(annotations, answers[model], by="metaclass")
        for metaclass, factor, shift in by_metaclass.select("metaclass", "factor", "shift").iter_rows():
            assert shift == pytest.approx(within.loc[(model, metaclass), factor], abs=1e-12)


def test_spearman_correlation(both):
    annotations, _, joined = both
    ours = factor_correlation(annotations)
    assert ours.height == len(FACTORS) * (len(FACTORS) + len(METACLASSES))
    # the published function takes half a second a pair, so a few columns stand for all
    some = ["pose", "background", "subcategory", "style"]
    theirs, their_p = published.spearman_corr_heatmaps(joined[joined.model == "human"], some, ["dog", "other"])
    for factor in some:
        for other in {*some, "dog", "other"} - {factor}:
            row = ours.filter((pl.col("factor") == factor) & (pl.col("other") == other)).row(0, named=True)
            assert row["correlation"] == pytest.approx(theirs.loc[factor, other], abs=1e-10)
            assert row["p_value"] == pytest.approx(their_p.loc[factor, other], rel=1e-6, abs=1e-300)


def test_all_twelve_tables_at_once(both, folder):
    annotations, answers, joined = both
    tables = published_tables(folder)
    assert len(tables) == 12
    for right, column in CORRECT.items():
        table = tables[annotations.which, right, None]
        assert set(table["model"]) == {*MODELS, *(["human"] if right == "real" else [])}
        theirs = published.compute_factor_accuracies(joined, list(FACTORS), column)
        wide = (
            table.filter(pl.col("factor").is_in(FACTORS)).pivot("factor", index="model", values="accuracy").to_pandas()
        )
        pd.testing.assert_frame_equal(
            wide.set_index("model").sort_index()[list(FACTORS)],
            theirs.loc[sorted(set(table["model"])), list(FACTORS)],
            check_names=False,
            rtol=0,
            atol=1e-12,
        )


def test_spill_over_and_model_types_follow_the_published_formulas():
    """The published plot module needs plotly and seaborn to be imported, so its two formulas stand here."""
    from scipy import stats

    from unswayed.analyses.factors.model_types import compare_model_types, spill_over

    rng = np.random.default_rng(0)
    models = [f"m{i}" for i in range(60)]
    strength = np.repeat(np.arange(6) * 10.0, 10)
    ratio = 1 + 0.002 * (strength - 25) ** 2 / 25 + rng.normal(0, 0.05, 60)
    errors = pl.DataFrame({"model": models, "factor": ["pose"] * 60, "error_ratio": ratio})
    strengths = pl.DataFrame({"model": models, "augmentation": ["crop"] * 60, "strength": strength})
    fit = np.polyval(np.polyfit(strength, ratio, 3), np.unique(strength))
    low, high = np.sort([fit.argmin(), fit.argmax()]) * 10.0
    expected = stats.ttest_ind(ratio[strength == low], ratio[strength == high], equal_var=False)
    row = spill_over(errors, strengths).row(0, named=True)
    assert (row["statistic"], row["p_value"]) == (pytest.approx(expected.statistic), pytest.approx(expected.pvalue))
    assert {row["best_strength"], row["worst_strength"]} == {low, high}
    assert (row["best"], row["worst"]) == (pytest.approx(fit.min()), pytest.approx(fit.max()))

    groups = pl.DataFrame({"model": models, "grouping": ["kind"] * 60, "group": [f"g{i % 3}" for i in range(60)]})
    table = compare_model_types(errors, groups)
    expected = stats.alexandergovern(*(ratio[i::3] for i in range(3)))
    assert table["p_value"].to_list() == [pytest.approx(expected.pvalue)] * 3
    assert table["error_ratio"].to_list() == [pytest.approx(ratio[i::3].mean()) for i in range(3)]
