"""Gaussian noise as a pure function of (seed, draw, position): the same on every device, in every batch.

A counter is hashed (SplitMix64, Steele et al. 2014) into 64 bits, and those become two normals (Box & Muller 1958).
No generator is kept, so a picture's noise cannot depend on its neighbors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def as_seeds(seeds: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """Any integers as (N,) int64, modulo 2^64."""
    return torch.tensor([_signed(seed) for seed in seeds], dtype=torch.int64, device=device)


def normal(seeds: Tensor, draw: Tensor | int, shape: Sequence[int]) -> Tensor:
    """Standard normals (N, *shape) float32: for each of N seeds, its draw number `draw` ((N,) int64 or one for all).

    >>> one = normal(as_seeds([7]), 3, (4,))
    >>> both = normal(as_seeds([5, 7]), 3, (4,))
    >>> bool((one[0] == both[1]).all())
    True
    """
    count = math.prod(shape)
    pairs = (count + 1) // 2
    # `full` fills on the device; copying a number would block.
    one = draw if isinstance(draw, Tensor) else torch.full((), draw, dtype=torch.int64, device=seeds.device)
    draws = one.to(seeds.device, torch.int64).expand(seeds.shape)
    key = _mixed(_mixed(seeds) + (draws + 1) * _signed(_GOLDEN))
    lanes = torch.arange(1, pairs + 1, dtype=torch.int64, device=seeds.device) * _signed(_GOLDEN)
    bits = _mixed(key[:, None] + lanes[None])
    # The added 0.5 avoids the logarithm of zero.
    radius = ((bits & 0xFFFFFFFF).to(torch.float32).add_(0.5).mul_(2.0**-32)).log_().mul_(-2.0).sqrt_()
    angle = _shifted(bits, 32).to(torch.float32).mul_(2.0 * math.pi * 2.0**-32)
    flat = torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)
    return flat[:, :count].reshape(len(seeds), *shape)


def _mixed(z: Tensor) -> Tensor:
    """SplitMix64's finalizer, a well-mixing permutation of 2^64 values; products wrap around."""
    z = (z ^ _shifted(z, 30)) * _signed(_FIRST)
    z = (z ^ _shifted(z, 27)) * _signed(_SECOND)
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, places: int) -> Tensor:
    """z >> places with zeros moving in, which int64 does not do by itself."""
    return (z >> places) & ((1 << (64 - places)) - 1)


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
