"""Noise is normal, independent between seeds, draws and places, and never depends on the batch."""

import numpy as np
import torch
from scipy import stats

from unswayed.rendering.sampling import as_seeds, normal


def test_it_is_standard_normal_to_its_tails():
    values = normal(as_seeds([1, 2, 3, 4]), 0, (3, 256, 256)).double().numpy().ravel()
    assert stats.kstest(values, "norm").pvalue > 1e-3
    assert abs(stats.skew(values)) < 0.02
    assert abs(stats.kurtosis(values)) < 0.03
    assert 4.3 < np.abs(values).max() < 6.7


def test_seeds_draws_and_neighbors_are_independent():
    seeds = as_seeds(range(40))
    draws = torch.cat([normal(seeds, draw, (4096,)) for draw in range(5)]).double().numpy()
    correlation = np.corrcoef(draws)
    off = correlation[~np.eye(len(draws), dtype=bool)]
    # 19,900 correlations of 4,096 pairs: standard error 1/64; more than 5.5 of them would be no chance
    assert np.abs(off).max() < 5.5 / 64
    assert abs(np.corrcoef(draws[:, :-1].ravel(), draws[:, 1:].ravel())[0, 1]) < 5 / np.sqrt(draws.size)


def test_a_spectrum_of_it_is_flat():
    plane = normal(as_seeds([9]), 2, (3, 128, 128))[0]
    power = torch.fft.fft2(plane).abs().square().mean(0) / plane[0].numel()
    blocks = power.view(8, 16, 8, 16).mean(dim=(1, 3))
    assert blocks.min() > 0.85
    assert blocks.max() < 1.15


def test_a_picture_does_not_see_its_batch():
    alone = normal(as_seeds([2**63 + 5]), 7, (3, 33, 31))
    mixed = normal(as_seeds([4, 2**63 + 5, 0]), torch.tensor([1, 7, 2]), (3, 33, 31))
    assert torch.equal(alone[0], mixed[1])


def test_large_and_negative_seeds_are_taken_modulo_two_to_the_64():
    assert torch.equal(normal(as_seeds([-1]), 0, (8,)), normal(as_seeds([2**64 - 1]), 0, (8,)))
