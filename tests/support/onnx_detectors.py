"""Detectors whose answers are known beforehand, as ONNX files with the settings beside them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import torch
from torch import nn

SHEEP = 18  # of COCO's classes


def boxed(there: torch.Tensor) -> list[torch.Tensor]:
    """Left, right, top and bottom (N,) of what is 1 in (N, S, S)."""
    side = there.shape[-1]
    places, box = torch.arange(side, dtype=torch.float32), []
    for along in (1, 2):
        inside = there.amax(along)
        box.append(torch.where(inside > 0, places, torch.full_like(inside, side)).amin(1))
        box.append(torch.where(inside > 0, places + 1, torch.zeros_like(inside)).amax(1))
    return box


class ColorNetwork(nn.Module):
    """Finds the box around each of three saturated colors: (N, 3, S, S) in [0, 1] -> (N, 3, 6)."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        rows = []
        for index in range(3):
            others = torch.cat([pixels[:, :index], pixels[:, index + 1 :]], 1).amax(1)
            colored = ((pixels[:, index] > 0.47) & (others < 0.36)).float()
            left, right, top, bottom = boxed(colored)
            score = 0.9 * colored.amax((1, 2))
            rows.append(torch.stack([left, top, right, bottom, score, torch.full_like(score, index)], 1))
        return torch.stack(rows, 1)


class OfBytes(ColorNetwork):
    """The same for pixels as bytes: (N, 3, S, S) uint8."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return super().forward(pixels.float() / 255)


class WhiteSheep(nn.Module):
    """Finds the one white animal on a meadow, unless it is tiny, and calls it a sheep: (N, 3, S, S) -> (N, 1, 6)."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        white = (torch.nn.functional.avg_pool2d((pixels[:, 2] > 0.5).float(), 5, 1, 2) > 0.6).float()
        left, right, top, bottom = boxed(white)
        score = 0.8 * white.amax((1, 2))
        return torch.stack([left, top, right, bottom, score, torch.full_like(score, SHEEP)], 1)[:, None]


def write_detector(network: nn.Module, path: Path, labels: object, kind: torch.dtype = torch.float32) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (torch.zeros(1, 3, 128, 128, dtype=kind),),
            str(path),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    settings = {"labels": labels, "decoding": "yolov10", "score": 0.5}
    path.with_name(f"{path.name}.json").write_text(json.dumps(settings))
    return path
