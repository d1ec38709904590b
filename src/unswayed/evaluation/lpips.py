"""LPIPS (Zhang et al. 2018): how different two pictures look, by AlexNet features and their published calibration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from unswayed.errors import UserError
from unswayed.files.downloads import place_of

NAME = "lpips-alex"
_SHIFT, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
_LAYERS = ((4, 2), (1, 2), (1, 1), (1, 1), (1, 1))  # stride, padding of AlexNet's convolutions


def lpips_file() -> Path | None:
    """The fetched weights, or None where they are not here: LPIPS is then left out."""
    path = place_of(NAME)
    return path if path.is_file() else None


def open_lpips(path: Path) -> Callable[[np.ndarray, np.ndarray], float]:
    """A function of two (H, W, 3) uint8 pictures of one size: their distance, 0 for equal ones."""
    import torch
    import torch.nn.functional as functional

    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        trunk, lines, pools = content["trunk"], content["lin"], content["pool_before"]
        layers = [(one["weight"].float(), one["bias"].float()) for one in trunk]
        weights = [one.float() for one in lines]
    except Exception:  # what a damaged file raises depends on where it is damaged
        raise UserError(f"{path} does not hold LPIPS weights", run=f"unswayed weights fetch {NAME}") from None
    shift, scale = (torch.tensor(one).view(1, 3, 1, 1) for one in (_SHIFT, _SCALE))

    def features(image: np.ndarray) -> list[torch.Tensor]:
        x = torch.from_numpy(image.copy()).permute(2, 0, 1)[None].float() / 127.5 - 1
        x = (x - shift) / scale
        found = []
        for (weight, bias), pool, (stride, padding) in zip(layers, pools, _LAYERS, strict=True):
            x = functional.max_pool2d(x, 3, 2) if pool else x
            x = functional.relu(functional.conv2d(x, weight, bias, stride, padding))
            found.append(x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10))
        return found

    def distance(first: np.ndarray, second: np.ndarray) -> float:
        with torch.inference_mode():
            pairs = zip(features(first), features(second), weights, strict=True)
            return float(sum((functional.conv2d((a - b).square(), line)).mean() for a, b, line in pairs))

    return distance
