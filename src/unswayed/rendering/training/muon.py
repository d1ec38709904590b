"""Muon (Jordan 2024) for convolutions: orthogonalized momentum, computed together for matrices of one shape."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """(K, R, C) -> the nearest matrices with singular values near one, by a quintic Newton–Schulz iteration in bf16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Orthogonalized momentum on parameters of two or more dimensions, scaled to suit AdamW's learning rates."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(list(parameters), {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[tuple[int, int], list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes.setdefault((parameter.shape[0], parameter[0].numel()), []).append(parameter)
            for (rows, columns), parameters in shapes.items():
                gradients = [p.grad for p in parameters if p.grad is not None]
                buffers = [self.state[p].setdefault("momentum", torch.zeros_like(p)) for p in parameters]
                torch._foreach_lerp_(buffers, gradients, 1 - group["momentum"])
                nesterov = torch._foreach_lerp(gradients, buffers, group["momentum"])
                stacked = torch.stack([one.reshape(rows, columns) for one in nesterov])
                # 0.2·sqrt(max side): the root mean square of an AdamW update (Liu et al. 2025).
                rate = group["lr"] * 0.2 * math.sqrt(max(rows, columns))
                update = orthogonal(stacked).float()
                torch._foreach_add_(
                    parameters, [u.view_as(p) for u, p in zip(update, parameters, strict=True)], alpha=-rate
                )
