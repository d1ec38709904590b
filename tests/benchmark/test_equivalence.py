"""benchmarks/equivalence.py decides how many steps are enough: its verdicts must hold as often as they say."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from benchmark_scripts import load_script


@pytest.fixture(scope="module")
def equivalence() -> ModuleType:
    return load_script("equivalence")


def differences(rng: np.random.Generator, photographs: int, mean: float) -> tuple[np.ndarray, np.ndarray]:
    """Four dependent differences of each photograph, in points."""
    own = rng.normal(mean, 10, photographs)
    return np.repeat(np.arange(photographs), 4), (own[:, None] + rng.normal(0, 5, (photographs, 4))).ravel()


def test_intervals_hold_although_the_edits_of_a_photograph_depend_on_each_other(equivalence: ModuleType) -> None:
    rng = np.random.default_rng(0)
    found = [equivalence.mean_difference(*differences(rng, 60, 2.0)) for _ in range(400)]
    assert 0.86 <= np.mean([one.low <= 2.0 <= one.high for one in found]) <= 0.94


def test_the_verdict_needs_the_whole_interval_on_one_side_of_the_margin(equivalence: ModuleType) -> None:
    def verdict(mean: float, half: float) -> str:
        return str(equivalence.Difference(mean, mean - half, mean + half, 100).verdict(1.0))

    assert verdict(0.3, 0.5) == "equivalent"
    assert verdict(0.6, 0.5) == verdict(1.2, 0.5) == "cannot tell"
    assert verdict(-1.8, 0.5) == "different"


def test_the_number_of_photographs_that_it_would_take(equivalence: ModuleType) -> None:
    # Half of the interval is 2 points, and there is room for half a point: 16 times as many photographs.
    assert equivalence.Difference(0.5, -1.5, 2.5, 100).needed(1.0) == 1600
    assert equivalence.Difference(1.5, 1.0, 2.0, 100).needed(1.0) is None
