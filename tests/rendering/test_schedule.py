"""The noise schedule against guided-diffusion's numbers and against its own definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unswayed.errors import UserError
from unswayed.rendering import Schedule
from unswayed.rendering.sampling import BETAS, spaced_timesteps
from unswayed.rendering.sampling.samplers import sample_ancestral

# index -> timestep, ᾱ, posterior variance of guided-diffusion's 1000 linear steps respaced to 100
ORIGINAL = {
    0: (0, 0.9999, 0.0),
    1: (10, 0.997806572507846, 9.545047024934424e-05),
    5: (50, 0.9699514935950494, 0.006745677869772402),
    25: (252, 0.5161078480420028, 0.0464653933900926),
    49: (494, 0.0826373761846283, 0.09337050899101033),
    50: (505, 0.0739391247214384, 0.10426941686284175),
    75: (757, 0.0029663280615167048, 0.1409836065619838),
    99: (999, 4.035829765375676e-05, 0.1821778929430258),
}


@pytest.mark.parametrize("index", ORIGINAL)
def test_respaced_to_100_is_the_original(index):
    schedule = Schedule.respaced(100)
    timestep, alpha_bar, variance = ORIGINAL[index]
    assert schedule.timesteps[index] == timestep
    assert schedule.alpha_bar[index] == pytest.approx(alpha_bar, rel=1e-12)
    if index:
        step = sample_ancestral(schedule.alpha_bar[[index, index - 1]])
        assert step.sigma[0] ** 2 == pytest.approx(variance, rel=1e-11)


def test_everything_is_float64():
    schedule = Schedule.respaced(37, "cosine")
    assert schedule.alpha_bar.dtype == sample_ancestral(schedule.alpha_bar[::-1]).sigma.dtype == np.float64
    assert schedule.timesteps.dtype == np.int64


@given(st.integers(1, 1000))
def test_any_number_of_steps_spans_the_schedule(steps):
    kept = spaced_timesteps(steps)
    assert len(kept) == steps
    assert kept[0] == 0
    assert steps == 1 or kept[-1] == 999
    assert (np.diff(kept) > 0).all()


@given(st.integers(2, 1000), st.sampled_from(sorted(BETAS)))
def test_respaced_betas_multiply_to_the_same_noise(steps, beta):
    schedule = Schedule.respaced(steps, beta)
    full = Schedule.respaced(1000, beta)
    assert np.allclose(schedule.alpha_bar, full.alpha_bar[schedule.timesteps], rtol=1e-9)
    step = sample_ancestral(schedule.alpha_bar[::-1])
    assert np.allclose(np.cumprod((1 - np.exp(step.high))[::-1]) * schedule.alpha_bar[0], schedule.alpha_bar[1:])
    assert (step.low <= step.high).all()


def test_cosine_is_the_squared_cosine():
    alpha_bar = Schedule.respaced(1000, "cosine").alpha_bar
    place = np.arange(1, 1001) / 1000
    expected = np.cos((place + 0.008) / 1.008 * np.pi / 2) ** 2 / np.cos(0.008 / 1.008 * np.pi / 2) ** 2
    assert np.allclose(alpha_bar[:990], expected[:990], rtol=1e-9)


@pytest.mark.parametrize("steps", [0, -3, 1001])
def test_impossible_steps_are_refused(steps):
    with pytest.raises(UserError, match="step"):
        spaced_timesteps(steps)


def test_an_unknown_schedule_names_the_known_ones():
    with pytest.raises(UserError, match="linear, cosine"):
        Schedule.respaced(10, "sigmoid")
