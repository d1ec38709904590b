"""Intervals and tests against oracles: simulated coverage, statsmodels, scipy, brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from unswayed.analyses.statistics.paired import (
    IntervalSettings,
    bootstrap_means,
    estimates,
    holm,
    mcnemar,
    resample_weights,
    score_interval,
    shrink,
    sign_flip,
    tango_interval,
    wilson_interval,
)

DATA_SETS = 1000


def observers(rng, n, runs, original, loss, gain, alike):
    """(data sets x n) answers: right on the original or not; share of runs right after the edit; the true drop.

    alike: how much the runs of one photograph agree, 0 not at all, near 1 wholly.
    """
    before = rng.random((DATA_SETS, n)) < original
    mean = np.where(before, 1 - loss, gain)
    chance = mean
    if runs > 1:
        strength = (1 - alike) / alike
        chance = rng.beta(mean * strength, (1 - mean) * strength)
    after = rng.binomial(runs, chance) / runs
    return before.astype(float), after, original - (original * (1 - loss) + (1 - original) * gain)


def coverage(before, after, truth, runs, reach=1.0):
    """The share of the data sets whose interval holds the truth, and the methods; a data set is a column."""
    differences = (before - after).T
    images = tuple(str(index) for index in range(len(differences)))
    found = estimates(differences, np.full(DATA_SETS, runs), images, IntervalSettings(resamples=1000), reach=reach)
    return float(((found.low <= truth + 1e-9) & (truth - 1e-9 <= found.high)).mean()), set(found.method)


@pytest.mark.parametrize(
    ("n", "runs", "original", "loss", "gain"),
    [
        (20, 1, 0.9, 0.4, 0.2),
        (20, 1, 0.8, 0.5, 0.3),
        (20, 5, 0.9, 0.2, 0.2),
        (20, 5, 0.95, 0.4, 0.3),
        (200, 1, 0.9, 0.05, 0.1),
        (200, 1, 0.9, 0.4, 0.2),
        (200, 5, 0.9, 0.05, 0.1),
        (200, 5, 0.95, 0.3, 0.3),
        (4000, 1, 0.9, 0.02, 0.05),
        (4000, 1, 0.93, 0.25, 0.2),
        (4000, 5, 0.93, 0.02, 0.1),
        (4000, 5, 0.93, 0.25, 0.2),
    ],
)
def test_intervals_hold_the_true_drop_in_95_percent_of_data_sets(n, runs, original, loss, gain):
    rng = np.random.default_rng(n + runs)
    before, after, truth = observers(rng, n, runs, original, loss, gain, alike=0.5)
    share, methods = coverage(before, after, truth, runs)
    assert 0.93 <= share <= 0.97
    assert methods == ({"bootstrap"} if n == 4000 else {"score"} if n == 20 else methods)


@pytest.mark.parametrize(("n", "loss"), [(20, 0.02), (20, 0.1), (200, 0.005)])
def test_intervals_are_wide_not_narrow_where_hardly_anything_flips(n, loss):
    before, after, truth = observers(np.random.default_rng(3), n, 1, 0.95, loss, 0.05, alike=0.5)
    share, methods = coverage(before, after, truth, 1)
    assert share >= 0.93
    assert methods == {"score"}


@pytest.mark.parametrize("n", [20, 200, 4000])
def test_intervals_of_a_difference_between_two_drops_hold_it(n):
    """Two models, difference of drops in [-2, 2], as in `compare`."""
    rng = np.random.default_rng(n)
    before, after, truth = observers(rng, n, 1, 0.9, 0.35, 0.2, alike=0.5)
    other_before, other_after, other = observers(rng, n, 1, 0.85, 0.25, 0.2, alike=0.5)
    share, _ = coverage(before - after, other_before - other_after, truth - other, 2, reach=2.0)
    assert 0.93 <= share <= (0.98 if n == 20 else 0.97)


def test_nothing_flipped_is_no_proof_of_nothing():
    low, high = tango_interval(0, 0, np.array([5, 20, 1000]))
    assert (high > 0).all()
    assert (np.diff(high) < 0).all()
    np.testing.assert_allclose(low, -high, atol=1e-9)
    # With no discordant pair Tango's limit is z² / (n + z²).
    z2 = stats.norm.ppf(0.975) ** 2
    np.testing.assert_allclose(high, z2 / (np.array([5, 20, 1000]) + z2), atol=1e-6)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_tango_inverts_the_score_test_under_its_constrained_fit(losses, gains, rest):
    """At each limit, the score statistic with numerically fitted nuisance is the normal quantile."""
    n = losses + gains + rest
    if n == 0:
        return
    low, high = tango_interval(losses, gains, n)
    assert low - 1e-9 <= (losses - gains) / n <= high + 1e-9
    mirrored = tango_interval(gains, losses, n)
    np.testing.assert_allclose([low, high], [-mirrored[1], -mirrored[0]], atol=1e-8)
    z = stats.norm.ppf(0.975)
    for limit in (float(low), float(high)):
        if abs(limit) > 0.999:
            continue
        grid = np.linspace(max(0.0, -limit), (1 - limit) / 2, 200_001)[1:-1]
        fits = losses * np.log(grid + limit) + gains * np.log(grid) + rest * np.log(1 - limit - 2 * grid + 1e-300)
        q = grid[fits.argmax()]
        score = (losses - gains - n * limit) / np.sqrt(n * (2 * q + limit - limit**2))
        assert abs(abs(score) - z) < 0.02


@given(st.integers(0, 50), st.integers(1, 50))
@settings(max_examples=50, deadline=None)
def test_wilson_equals_statsmodels(right, extra):
    n = right + extra
    np.testing.assert_allclose(wilson_interval(right, n), proportion_confint(right, n, method="wilson"), atol=1e-9)


@given(st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_mcnemar_equals_statsmodels_and_scipy(losses, gains):
    expected = statsmodels_mcnemar([[5, losses], [gains, 7]], exact=True).pvalue
    assert float(mcnemar(losses, gains)) == pytest.approx(min(1.0, expected), rel=1e-9)
    if losses + gains:
        assert float(mcnemar(losses, gains)) == pytest.approx(stats.binomtest(losses, losses + gains).pvalue, rel=1e-9)


@given(st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=40, deadline=None)
def test_sign_flip_of_single_runs_is_mcnemar(losses, gains):
    differences = np.concatenate([np.ones(losses), -np.ones(gains), np.zeros(9)])
    expected = max(float(mcnemar(losses, gains)), 1e-12)
    assert sign_flip(differences) == pytest.approx(expected, rel=1e-6)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=11))
@settings(max_examples=60, deadline=None)
def test_sign_flip_counts_all_flips(steps):
    differences = np.array(steps) / 5
    signs = np.array(list(itertools.product([-1, 1], repeat=len(steps))))
    expected = (np.abs(signs @ differences) >= abs(differences.sum()) - 1e-9).mean()
    assert sign_flip(differences, lattice=5) == pytest.approx(expected, rel=1e-9)


def test_sign_flip_by_draws_agrees_with_the_count():
    differences = np.random.default_rng(0).integers(-5, 6, 300) / 5
    counted, drawn = sign_flip(differences, lattice=5), sign_flip(differences, lattice=61)
    assert 0.001 < counted < 0.9
    assert drawn == pytest.approx(counted, abs=4 * np.sqrt(counted / 9999))


def test_sign_flip_equals_scipys_permutation_test():
    differences = np.random.default_rng(2).integers(-3, 5, 9) / 3
    expected = stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    assert sign_flip(differences, lattice=3) == pytest.approx(expected, rel=1e-9)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
@settings(max_examples=25, deadline=None)
def test_holm_equals_statsmodels(p_values):
    np.testing.assert_allclose(holm(p_values), multipletests(p_values, method="holm")[1], atol=1e-12)


def test_holm_leaves_missing_tests_out():
    adjusted = holm(np.array([0.01, np.nan, 0.03]))
    np.testing.assert_allclose(adjusted[[0, 2]], [0.02, 0.03])
    assert np.isnan(adjusted[1])


def test_resamples_depend_on_the_photograph_alone():
    weights = resample_weights(["b", "a", "c"], 500)
    again = resample_weights(["c", "a"], 500)
    np.testing.assert_array_equal(weights[:, [2, 1]], again)
    assert not np.array_equal(resample_weights(["a"], 500), resample_weights(["a"], 500, seed=1))


def test_resamples_are_poisson_and_independent():
    weights = resample_weights([f"image-{index}" for index in range(400)], 1000)
    counts = np.bincount(weights.astype(int).ravel(), minlength=9)[:6]
    expected = stats.poisson.pmf(np.arange(6), 1) * weights.size
    np.testing.assert_allclose(counts, expected, rtol=0.03, atol=60)
    correlations = np.corrcoef(weights.T)[np.triu_indices(400, 1)]
    assert abs(correlations.mean()) < 0.001
    assert correlations.std() == pytest.approx(1 / np.sqrt(1000), rel=0.05)


def test_bootstrap_means_leave_gaps_out_of_their_column():
    values = np.array([[1.0, np.nan], [0.0, 1.0], [1.0, 0.0]])
    weights = np.array([[1, 1, 1], [2, 0, 1]], dtype=np.float32)
    np.testing.assert_allclose(bootstrap_means(weights, values), [[2 / 3, 0.5], [1.0, 0.0]], atol=1e-6)


def test_several_runs_narrow_the_interval_but_never_below_their_number():
    rng = np.random.default_rng(0)
    one = rng.choice([-1.0, 0.0, 1.0], 60, p=[0.1, 0.6, 0.3])
    spread = score_interval(60, np.maximum(one, 0).sum(), np.maximum(-one, 0).sum(), (one**2).sum(), 1)
    # The same photographs, five runs that agree: nothing is gained.
    agreeing = score_interval(60, np.maximum(one, 0).sum(), np.maximum(-one, 0).sum(), (one**2).sum(), 5)
    assert agreeing[1] - agreeing[0] == pytest.approx(spread[1] - spread[0], rel=0.03)
    # Every photograph flips in one run of five: the mean is known far better, but not exactly.
    even = score_interval(60, 12.0, 0.0, 60 * 0.04, 5)
    assert 0 < even[1] - even[0] < 0.75 * np.ptp(score_interval(60, 12.0, 0.0, 12.0, 1))


def test_shrinkage_is_strong_for_small_groups_and_for_chance():
    means, n = np.array([1.0, 0.5, 0.1, 0.1]), np.array([3, 50, 50, 50])
    shrunk = shrink(means, n, means * n)
    centre = (means * n).sum() / n.sum()
    kept = (shrunk - centre) / (means - centre)
    assert kept[0] < kept[1] < 1
    assert kept[1] > 0.8
    rng = np.random.default_rng(0)
    alike = rng.random((40, 12)) < 0.3
    chance = shrink(alike.mean(axis=1), np.full(40, 12), alike.sum(axis=1))
    assert np.ptp(chance) < 0.4 * np.ptp(alike.mean(axis=1))
