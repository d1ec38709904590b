"""Guidance: closed forms against autograd, edge cases, and one λ that means one strength."""

import cv2
import numpy as np
import pytest
import torch

from gaussian_network import gaussian
from sample_scenes import SAMPLE_IDS, sample_scene
from unswayed.errors import UserError
from unswayed.rendering.sampling import Schedule, as_seeds, guidance, normal
from unswayed.rendering.sampling.guidance import (
    adversarial,
    amplitude,
    calibration,
    complexity,
    open_guide,
    through_network,
)
from unswayed.rendering.sampling.loop import Job, Settings, denoise_all
from unswayed.rendering.sampling.samplers import SAMPLERS, total_push, visited

FULL = Schedule.respaced(1000).alpha_bar


def pictures(n=3, size=32, seed=0):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(seed)) * 0.4


@pytest.mark.parametrize("band", ["all", "high"])
@pytest.mark.parametrize("size", [(32, 32), (31, 24), (32, 33)])
def test_the_closed_form_is_what_autograd_finds(band, size):
    start = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1)).requires_grad_(True)
    (expected,) = torch.autograd.grad(amplitude(start, band).sum(), start)
    found = complexity(1.0, band)(start.detach())
    assert float((found - expected).abs().max()) < 1e-6


@pytest.mark.parametrize("blur", [1.0, 2.0, 6.0])
def test_the_closed_form_holds_for_smooth_photographs(blur):
    photograph = cv2.GaussianBlur(sample_scene(SAMPLE_IDS[0]).image[:256, :256].astype(np.float32), (0, 0), blur)
    start = torch.from_numpy(photograph / 127.5 - 1).permute(2, 0, 1)[None]
    exact = start.double().requires_grad_(True)
    (expected,) = torch.autograd.grad(torch.fft.fft2((exact + 1) / 2).abs().mean(), exact)
    assert float((complexity(1.0)(start) - expected).norm() / expected.norm()) < 1e-6


def test_the_gradient_climbs():
    start = pictures()
    step = complexity(100.0)(start)
    assert (amplitude(start + step) > amplitude(start)).all()
    assert (amplitude(start - step) < amplitude(start)).all()


def test_each_picture_has_its_own_strength_and_no_neighbors():
    start = pictures(3)
    together = complexity(torch.tensor([20.0, 0.0, -5.0]))(start)
    assert torch.equal(together[1], torch.zeros_like(together[1]))
    assert torch.allclose(together[2:], complexity(-5.0)(start[2:]), atol=1e-9)


@pytest.mark.parametrize("value", [-1.0, 0.0, 0.37, 1.0])
def test_a_flat_or_black_picture_is_pushed_nowhere_but_in_brightness(value):
    flat = torch.full((1, 3, 64, 64), value)
    for band in ("all", "high"):
        push = complexity(20.0, band)(flat)
        assert torch.isfinite(push).all()
        assert float(push.std()) < 1e-9
    if value == -1.0:
        assert torch.equal(complexity(20.0)(flat), torch.zeros_like(flat))


def test_the_high_band_leaves_low_frequencies_alone():
    push = complexity(1.0, "high")(pictures())
    spectrum = torch.fft.fft2(push).abs()
    assert float(spectrum[..., :4, :4].max()) < 1e-5
    assert float(spectrum[..., 14:18, 14:18].min()) > 1e-3


def test_an_unknown_band_is_refused():
    with pytest.raises(UserError, match="all, high"):
        complexity(1.0, "low")


def test_adversarial_climbs_the_cross_entropy_of_the_true_class():
    torch.manual_seed(0)
    guide = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(5)
    )
    start, labels = pictures(4), torch.tensor([0, 3, 1, 4])
    guide(start)
    push = adversarial(guide, labels, torch.tensor([20.0, 20.0, 0.0, 20.0]))(start)

    def loss(x):
        return torch.nn.functional.cross_entropy(guide((x + 1) / 2), labels, reduction="none")

    rise = loss(start + 0.05 * push) - loss(start)
    assert (rise[[0, 1, 3]] > 0).all()
    assert torch.equal(push[2], torch.zeros_like(push[2]))
    alone = adversarial(guide, labels[:1], 20.0)(start[:1])
    assert torch.allclose(push[:1], alone, atol=1e-6)


def test_an_adversarial_push_is_as_long_as_the_complexity_one_whatever_the_guide_answers():
    """Before, a guide that was certain pushed hardly: strength was not equal over the steps."""
    torch.manual_seed(0)
    guide = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 5))
    start, labels = pictures(2), torch.tensor([0, 3])
    length = complexity(1.0)(start).flatten(1).norm(dim=1)
    assert torch.allclose(length, torch.full((2,), guidance.LENGTH), rtol=1e-3)
    for factor in (1e-3, 1.0, 1e3):
        pushed = adversarial(lambda x, by=factor: by * guide(x), labels, 1.0)(start)
        assert torch.allclose(pushed.flatten(1).norm(dim=1), length, rtol=1e-3)
    plain = adversarial(guide, labels, 1.0, None)(start)
    # It has no color of its own, and its share of the high band is smaller than the gradient's.
    assert float(pushed.mean(dim=(2, 3)).abs().max()) < 1e-6
    high = [float(amplitude(2 * push - 1, "high").sum() / amplitude(2 * push - 1).sum()) for push in (plain, pushed)]
    assert high[1] < 0.9 * high[0]
    assert torch.equal(adversarial(lambda x: 0 * guide(x), labels, 1.0)(start), torch.zeros_like(start))


@pytest.mark.parametrize("label", [3, np.int64(3), torch.tensor(3), torch.tensor([3])])
def test_one_label_serves_every_picture(label):
    torch.manual_seed(0)
    guide = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 5))
    expected = adversarial(guide, torch.tensor([3, 3, 3]), 20.0)(pictures())
    assert torch.equal(adversarial(guide, label, 20.0)(pictures()), expected)


@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
def test_a_picture_that_visits_one_level_cannot_be_guided(sampler):
    for start, fewest in ((0.5, 3), (0.25, 6), (1.0, 2)):
        for steps in range(1, fewest):
            with pytest.raises(UserError, match=f"guidance needs at least {fewest} steps"):
                calibration("complexity", start, steps, sampler)
        assert calibration("complexity", start, fewest, sampler) > 0
    with pytest.raises(UserError, match="needs a larger start"):
        calibration("complexity", 0.0004, 100, sampler)


def test_each_picture_has_its_own_band_through_the_network():
    x, weight = pictures(2, seed=4), torch.tensor([20.0, 20.0])
    mixed = through_network(lambda noisy: 0.9 * noisy, x, weight, ["all", "high"])
    for band, one in zip(("all", "high"), (0, 1), strict=True):
        assert torch.equal(mixed[one], through_network(lambda noisy: 0.9 * noisy, x, weight, band)[one])
    assert not torch.allclose(mixed[1], through_network(lambda noisy: 0.9 * noisy, x, weight)[1])
    with pytest.raises(UserError, match="all, high"):
        amplitude(x, ["all", "low"])


def test_through_the_network_is_the_gradient_of_the_released_codes_loss():
    x = 3 * pictures(2, seed=4)
    weight = torch.tensor([20.0, -20.0])

    def denoise(noisy):
        return 1.3 * noisy - 0.1

    found = through_network(denoise, x, weight)
    start = denoise(x)
    outside = start - start.clamp(-1, 1)
    by_hand = 1.3 * (complexity(weight)(start) - 50 * 2 * outside / start[0].numel())
    assert float((found - by_hand).abs().max()) < 1e-5
    assert float(outside.abs().max()) > 0.5


@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
@pytest.mark.parametrize("steps", [20, 50, 100, 250])
@pytest.mark.parametrize("start", [0.25, 0.5, 0.8])
def test_every_sampler_is_calibrated_to_the_total_push_of_the_reference(monkeypatch, sampler, steps, start):
    monkeypatch.setattr(guidance, "RESPONSE", {"complexity": dict.fromkeys(SAMPLERS, {20: 1.0, 100: 1.0})})
    levels = FULL[visited(start, steps, SAMPLERS[sampler].spacing)]
    reference = FULL[visited(start, 100)]
    found = calibration("complexity", start, steps, sampler) * total_push(levels, SAMPLERS[sampler].steps(levels))
    expected = guidance.STRENGTH["complexity"] * total_push(reference, SAMPLERS["ancestral"].steps(reference))
    assert found == pytest.approx(expected)


def guided(sampler, steps, strength, deviation=0.4):
    """Mean spectral amplitude of Gaussian pictures rendered with λ by an exact denoiser."""
    picture = deviation * normal(as_seeds([77, 78]), 0, (3, 64, 64))
    empty = torch.zeros(1, 64, 64)
    timesteps = visited(0.5, steps, SAMPLERS[sampler].spacing)
    work = [Job(p, p, empty, timesteps, 0.5, steps, i, "complexity", strength) for i, p in enumerate(picture)]
    done = dict(denoise_all(gaussian(0.0, deviation, "error"), work, 2, Settings(SAMPLERS[sampler])))
    return float(amplitude(torch.stack([done[0], done[1]])).mean())


@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
def test_more_lambda_is_more_complex_with_every_sampler(sampler):
    seen = [guided(sampler, 20, strength) for strength in (-20, -10, 0, 10, 20)]
    assert seen == sorted(seen)
    assert seen[-1] - seen[0] > 0.02 * seen[2]


def test_what_is_kept_is_not_pushed():
    """The gradient is masked: with everything kept, λ changes nothing."""
    picture = 0.4 * normal(as_seeds([5]), 0, (3, 32, 32))[0]
    half = torch.zeros(1, 32, 32)
    half[:, :, :16] = 1
    results = []
    for strength in (0.0, 40.0):
        work = [Job(picture, picture, half, visited(0.5, 20), 0.5, 20, 1, "complexity", strength)]
        results.append(dict(denoise_all(gaussian(0.0, 0.4, "error", 32), work, 1, Settings(SAMPLERS["ancestral"])))[0])
    difference = (results[0] - results[1]).abs()
    assert float(difference[:, :, :16].max()) < 1e-6
    assert float(difference[:, :, 16:].mean()) > 1e-3


def test_strength_is_data():
    assert set(guidance.STRENGTH) == set(guidance.RESPONSE) == {"complexity", "adversarial"}
    for tables in guidance.RESPONSE.values():
        assert set(tables) == set(SAMPLERS)
        for measured in tables.values():
            assert list(measured) == sorted(measured)  # np.interp needs it
            assert min(measured.values()) > 0


def test_an_adversarial_push_is_the_same_for_any_number_of_threads_and_any_neighbors():
    guide = open_guide("lite:0").logits
    batch, labels = pictures(3, 64), torch.tensor([207, 3, 9])
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            found.append(adversarial(guide, labels, 8.0)(batch))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert all(one.equal(found[0]) for one in found)
    alone = torch.cat([adversarial(guide, labels[k : k + 1], 8.0)(batch[k : k + 1]) for k in range(3)])
    assert alone.equal(found[0])
