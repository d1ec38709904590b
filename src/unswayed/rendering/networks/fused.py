"""What the compact network does between its convolutions, in one GPU kernel each instead of ten.

As separate operations it takes three quarters of a pass, since each of them reads and writes all numbers. The kernels
round where those do. They need Triton, which comes with torch for GPUs.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor

triton: Any = None
with contextlib.suppress(ImportError):
    import triton  # type: ignore[no-redef]
    import triton.language as tl

_ELEMENTS = 4096  # numbers that one program holds


def normalized(
    x: Tensor, gain: Tensor, bias: Tensor | None, modulation: tuple[Tensor, Tensor] | None, silu: bool
) -> Tensor:
    """The RMS norm of x + bias over channels, times gain; then · (1 + scale) + shift; then SiLU.

    x: (N, C, H, W), channels-last; bias: (C,); modulation: scale and shift, (N, C) with the same strides.
    """
    out, (scale, shift) = torch.empty_like(x), (x, x) if modulation is None else modulation
    grid, count, block, rows = _programs(x)
    facts = block, rows, bias is not None, modulation is not None, silu
    numbers = count, x.shape[1], x.shape[2] * x.shape[3], scale.stride(0)
    _normalize[grid](x, x if bias is None else bias, gain, scale, shift, out, *numbers, *facts)
    return out


def joined(x: Tensor, y: Tensor, bias: Tensor) -> Tensor:
    """x + (y + bias): two pictures of features (N, C, H, W), channels-last, and a number for each channel."""
    out = torch.empty_like(x)
    grid, count, block, rows = _programs(x)
    _join[grid](x, y, bias, out, count, x.shape[1], block, rows)
    return out


def _programs(x: Tensor) -> tuple[tuple[int], int, int, int]:
    """The programs, the pixels in all, and the channels (as a power of two) and pixels of one program."""
    count, block = x.numel() // x.shape[1], 1 << (x.shape[1] - 1).bit_length()
    rows = max(1, _ELEMENTS // block)
    return (-(-count // rows),), count, block, rows


def _kernel(function: Any) -> Any:
    return function if triton is None else triton.jit(function)


@_kernel
def _normalize(
    x, bias, gain, scale, shift, out, count, channels, pixels, stride,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, BIASED: tl.constexpr, MODULATED: tl.constexpr, SILU: tl.constexpr,
):  # fmt: skip
    kind = out.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    real = column < channels
    inside = (row < count)[:, None] & real[None, :]
    offsets = row[:, None] * channels + column[None, :]
    value = tl.load(x + offsets, mask=inside, other=0.0).to(tl.float32)
    if BIASED:
        more = tl.load(bias + column, mask=real, other=0.0).to(tl.float32)
        value = (value + more[None, :]).to(kind).to(tl.float32)
    mean = tl.sum(value * value, axis=1) / channels
    factor = tl.load(gain + column, mask=real, other=0.0).to(tl.float32)
    value = (value * tl.rsqrt(mean + 1e-6)[:, None] * factor[None, :]).to(kind).to(tl.float32)
    if MODULATED:
        own = (row // pixels)[:, None] * stride + column[None, :]
        times = (1 + tl.load(scale + own, mask=inside, other=0.0).to(tl.float32)).to(kind).to(tl.float32)
        value = (value * times).to(kind).to(tl.float32)
        value = (value + tl.load(shift + own, mask=inside, other=0.0).to(tl.float32)).to(kind).to(tl.float32)
    if SILU:
        value = value / (1 + tl.exp(-value))
    tl.store(out + offsets, value.to(kind), mask=inside)


@_kernel
def _join(x, y, bias, out, count, channels, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    kind = out.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < count)[:, None] & (column < channels)[None, :]
    offsets = row[:, None] * channels + column[None, :]
    more = tl.load(bias + column, mask=column < channels, other=0.0).to(tl.float32)
    value = tl.load(y + offsets, mask=inside, other=0.0).to(tl.float32)
    value = (value + more[None, :]).to(kind).to(tl.float32)
    tl.store(out + offsets, (tl.load(x + offsets, mask=inside, other=0.0).to(tl.float32) + value).to(kind), mask=inside)
