"""Samplers on pictures whose exact denoiser is known: every step's distribution, the limit they share, their order."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gaussian_network import gaussian
from unswayed.errors import UserError
from unswayed.rendering.sampling import Schedule, as_seeds, normal
from unswayed.rendering.sampling.loop import Job, Settings, denoise_all
from unswayed.rendering.sampling.samplers import SAMPLERS, find_sampler, total_push, visited

FULL = Schedule.respaced(1000).alpha_bar
PICTURES = 6


def jobs(mean, deviation, timesteps, size=64):
    """Pictures of the known distribution, with nothing to keep."""
    pictures = mean + deviation * normal(as_seeds(range(900, 900 + PICTURES)), 0, (3, size, size))
    empty = torch.zeros(1, size, size)
    return [Job(one, one, empty, timesteps, 0.5, 100, seed) for seed, one in enumerate(pictures)]


def run(network, work, sampler, watch=None):
    done = dict(denoise_all(network, work, 3, Settings(SAMPLERS[sampler], watch=watch)))
    return torch.stack([done[i] for i in range(len(work))])


@pytest.mark.parametrize(
    ("kind", "mean", "deviation"),
    [("error", 0.2, 0.4), ("error", -0.3, 0.1), ("learned_range", 0.0, 1.0), ("fixed_large", 0.0, 1.0)],
)
@pytest.mark.parametrize("steps", [20, 100])
def test_every_ancestral_step_has_the_mean_and_variance_of_theory(kind, mean, deviation, steps):
    """With the exact posterior variance x_t stays N(√ᾱ·mean, ᾱ·deviation² + 1 − ᾱ) at every level."""
    timesteps = visited(0.5, steps)
    seen = {}

    def watch(positions, places, x, start):
        for slot, place in enumerate(places):
            seen.setdefault(place, []).append(x[slot].clone())

    work = jobs(mean, deviation, timesteps)
    run(gaussian(mean, deviation, kind), work, "ancestral", watch)
    assert sorted(seen) == list(range(len(timesteps)))
    for place, found in seen.items():
        alpha_bar = FULL[timesteps[place]]
        values = torch.stack(found).double()
        assert len(found) == PICTURES
        expected = alpha_bar * deviation**2 + 1 - alpha_bar
        count = values.numel()
        assert float(values.mean()) == pytest.approx(np.sqrt(alpha_bar) * mean, abs=5 * np.sqrt(expected / count))
        assert float(values.var()) == pytest.approx(expected, rel=5 * np.sqrt(2 / count))


def test_too_little_variance_would_be_seen():
    """The same check fails for the fixed variance at 20 steps: the test above can fail."""
    timesteps = visited(0.5, 20)
    result = run(gaussian(0.2, 0.4, "fixed"), jobs(0.2, 0.4, timesteps), "ancestral")
    assert float(result.double().var()) < 0.8 * 0.4**2


def exact_flow(work, mean, deviation):
    """Where the probability flow ends: each pixel keeps its place within the distribution."""
    alpha_bar = FULL[work[0].timesteps[0]]
    end = FULL[work[0].timesteps[-1]]
    first = torch.stack([job.first for job in work])
    noise = torch.cat([normal(as_seeds([job.seed]), 0, job.first.shape) for job in work])
    x = np.sqrt(alpha_bar) * first + np.sqrt(1 - alpha_bar) * noise
    place = (x - np.sqrt(alpha_bar) * mean) / np.sqrt(alpha_bar * deviation**2 + 1 - alpha_bar)
    last = np.sqrt(end) * mean + place * np.sqrt(end * deviation**2 + 1 - end)
    gain = np.sqrt(end) * deviation**2 / (end * deviation**2 + 1 - end)
    return mean + gain * (last - np.sqrt(end) * mean)


@pytest.mark.parametrize(("sampler", "order"), [("ddim", 1), ("dpm", 2)])
def test_deterministic_samplers_converge_to_the_flow_at_their_order(sampler, order):
    mean, deviation = 0.2, 0.4
    errors = []
    for steps in (20, 80, 320):
        # one spacing for both, so that only the sampler differs
        work = jobs(mean, deviation, visited(0.5, steps, "karras"), size=32)
        found = run(gaussian(mean, deviation, "fixed", 32), work, sampler)
        errors.append(float((found - exact_flow(work, mean, deviation)).square().mean().sqrt()))
    assert errors[2] < 0.004
    assert errors[1] / errors[2] > 0.8 * 4 ** (order - 0.5)
    assert errors[0] / errors[1] > 0.8 * 4 ** (order - 0.5)


@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
def test_samplers_agree_as_steps_grow(sampler):
    mean, deviation = 0.2, 0.4
    far = []
    for steps in (20, 500):
        work = jobs(mean, deviation, visited(0.5, steps, SAMPLERS[sampler].spacing))
        found = run(gaussian(mean, deviation, "fixed"), work, sampler).double()
        assert float(found.mean()) == pytest.approx(mean, abs=0.01)
        far.append(abs(float(found.std()) / deviation - 1))
    assert far[1] < 0.03
    assert far[1] <= far[0] + 0.005


def test_the_fast_solver_keeps_texture_that_few_ancestral_steps_lose():
    kept = {}
    for sampler in ("ancestral", "dpm", "dpm-sde"):
        work = jobs(0.0, 0.05, visited(0.5, 20, SAMPLERS[sampler].spacing))
        kept[sampler] = float(run(gaussian(0.0, 0.05, "fixed"), work, sampler).std()) / 0.05
    assert kept["dpm"] > 0.85
    assert kept["dpm-sde"] > 0.85
    assert kept["ancestral"] < 0.8


@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
@given(start=st.floats(0.02, 1.0), steps=st.integers(2, 300))
def test_a_clean_picture_stays_what_it_is(sampler, start, steps):
    """keep · √ᾱ + toward = √ᾱ′: without noise, a denoiser that is right leaves the picture alone."""
    levels = FULL[visited(start, steps, SAMPLERS[sampler].spacing)]
    table = SAMPLERS[sampler].steps(levels)
    assert np.allclose(table.keep * np.sqrt(levels[:-1]) + table.toward, np.sqrt(levels[1:]), atol=1e-12)
    assert (table.sigma >= 0).all()
    assert (table.push >= 0).all()


@given(start=st.floats(0.01, 1.0), steps=st.integers(1, 1000), spacing=st.sampled_from(["respaced", "karras"]))
def test_visited_levels_fall_strictly(start, steps, spacing):
    levels = visited(start, steps, spacing)
    assert len(levels) >= 1
    assert (np.diff(levels) < 0).all()
    assert levels.min() >= 0
    assert levels.max() <= 999


def test_starts_are_the_papers():
    assert visited(0.5, 100)[0] == 494
    assert len(visited(0.5, 100)) == 50
    assert visited(0.25, 100)[0] == 242
    assert len(visited(0.25, 100)) == 25
    assert len(visited(0.5, 20, "karras")) == 10
    assert visited(0.5, 20, "karras")[0] == 494
    assert visited(0.001, 100).tolist() == [0]


def test_a_noise_scale_above_one_adds_what_it_says():
    timesteps = visited(0.5, 100)
    plain = run(gaussian(0.2, 0.4, "error"), jobs(0.2, 0.4, timesteps), "ancestral").std()
    more = run(gaussian(0.2, 0.4, "error", noise_scale=1.05), jobs(0.2, 0.4, timesteps), "ancestral").std()
    assert 1.01 < float(more / plain) < 1.06


@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
def test_a_steady_push_moves_gaussian_pictures_as_far_as_told(sampler):
    """`total_push` is exact where the denoiser is: push each step by hand through the Wiener filter and compare."""
    levels = FULL[visited(0.5, 20, SAMPLERS[sampler].spacing)]
    table = SAMPLERS[sampler].steps(levels)
    places = (np.arange(64) + 0.5) / 128
    variance = 6.4e-4 * np.hypot(places[:, None], places[None]) ** -2.6
    ends = []
    for push in (0.0, 1.0):
        x, previous = np.ones_like(variance), np.zeros_like(variance)
        for k, alpha_bar in enumerate(levels):
            start = np.sqrt(alpha_bar) * variance / (alpha_bar * variance + 1 - alpha_bar) * x
            if k < len(table.keep):
                toward = start + table.memory[k] * (start - previous) + push * table.push[k]
                x, previous = table.keep[k] * x + table.toward[k] * toward, start
        ends.append(start)
    expected = np.average(ends[1] - ends[0], weights=np.sqrt(variance))
    assert total_push(levels, table) == pytest.approx(expected, rel=1e-9)
    assert expected > 0


def test_auto_takes_the_papers_sampler_for_many_steps():
    assert find_sampler("auto", 100).name == "ancestral"
    assert find_sampler("auto", 20).name != "ancestral"
    assert find_sampler("auto").name != "ancestral"


@pytest.mark.parametrize("start", [0, -0.5, 1.5])
def test_an_impossible_start_is_refused(start):
    with pytest.raises(UserError, match="start"):
        visited(start, 100)


def test_an_unknown_sampler_names_the_known_ones():
    with pytest.raises(UserError, match="ancestral, ddim"):
        find_sampler("euler", 20)
