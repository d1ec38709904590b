"""A sheet of pictures that shows how a trained network reproduces photographs it has never seen."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor

from unswayed.files.whole import write_bytes
from unswayed.rendering.diffusion import open_diffusion
from unswayed.rendering.layers import Layers, Rendered

ROWS = ((0.25, 100), (0.5, 100), (0.25, 20), (0.5, 20))


def inversions(folder: str | Path, pictures: np.ndarray, start: float, steps: int, **settings: object) -> np.ndarray:
    """(N, S, S, 3) uint8 pictures, noised to `start` and denoised everywhere, with no pixel kept."""
    renderer = open_diffusion(network=str(folder), steps=steps, **settings)  # type: ignore[arg-type]
    nothing = np.zeros(pictures.shape[1:3], np.float32)
    batch = [Layers(picture, nothing, picture, start, None, None, seed) for seed, picture in enumerate(pictures)]
    return np.stack([answer.image for answer in renderer.render(batch) if isinstance(answer, Rendered)])


def write_sheet(folder: Path, held: Tensor, columns: int = 8) -> Path:
    """`sheet.png`: held-out photographs, and their reconstructions from a quarter and half of the noise schedule."""
    shown = ((held[:columns].permute(0, 2, 3, 1).cpu() + 1) * 127.5).round().to(torch.uint8).numpy()
    rows = [shown, *(inversions(folder, shown, start, steps) for start, steps in ROWS)]
    sheet = np.concatenate([np.concatenate(list(row), axis=1) for row in rows])
    path = folder / "sheet.png"
    write_bytes(path, cv2.imencode(".png", cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR))[1].tobytes())
    return path
