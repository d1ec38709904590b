"""A small benchmark on disk in the documented layout, and models of one's own in a Python file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from PIL import Image

CLASSES = ("red", "green", "blue", "grey")
MODELS = '''
"""Classifiers that answer by the picture's mean colour, well or badly."""
import torch
from torch import nn
from unswayed.models import Classifier, LogProbabilities, Transform

NAMES = ["red", "green", "blue", "grey"]
PLAIN = Transform(32, 28, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


class Colour(nn.Module):
    def __init__(self, order=(0, 1, 2, 3)):
        super().__init__()
        rows = torch.tensor([[2.0, -1, -1], [-1, 2, -1], [-1, -1, 2], [0, 0, 0]]) * 20
        self.linear = nn.Linear(3, 4)
        with torch.no_grad():
            self.linear.weight.copy_(rows[list(order)])
            self.linear.bias.copy_(torch.tensor([0.0, 0, 0, 3])[list(order)])

    def forward(self, x):
        return self.linear(x.mean((2, 3)))


class Soft(Colour):
    def forward(self, x):
        return super().forward(x).softmax(1)


class SoftHalf(Colour):
    def forward(self, x):
        return super().forward(x).softmax(1).half()


class Sigmoid(Colour):
    def forward(self, x):
        return super().forward(x).sigmoid()


class Noisy(Colour):
    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.5, training=True))


class BatchStatistics(Colour):
    def forward(self, x):
        return super().forward(x - x.mean((0, 2, 3), keepdim=True))


class Broken(Colour):
    def forward(self, x):
        return super().forward(x) + float("nan")


class BrokenOnBlue(Colour):
    def forward(self, x):
        y = super().forward(x)
        return torch.where(y.argmax(1, keepdim=True) == 2, torch.nan, y)


class Constant(Colour):
    def forward(self, x):
        return 0 * super().forward(x)


class Failing(Colour):
    def forward(self, x):
        raise RuntimeError("no kernel for this")


class Adapting(Colour):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3, affine=False)

    def forward(self, x):
        return super().forward(self.norm(x))


def good(): return Classifier(Colour(), PLAIN, NAMES)
def reordered(): return Classifier(Colour((2, 0, 3, 1)), PLAIN, ["blue", "red", "grey", "green"])
def shifted(): return Classifier(Colour((1, 2, 3, 0)), PLAIN, NAMES)
def permuted(): return Classifier(Colour((1, 0, 3, 2)), PLAIN, NAMES)
def bytes_wanted(): return Classifier(Colour(), Transform(32, 28, mean=(0.5,) * 3, std=(40.0,) * 3), NAMES)
def exchanged(): return Classifier(Colour((0, 2, 1, 3)), PLAIN, NAMES)
def soft(): return Classifier(Soft(), PLAIN, NAMES)
def soft_half(): return Classifier(SoftHalf(), PLAIN, NAMES)
def soft_stated(): return Classifier(LogProbabilities(Soft()), PLAIN, NAMES)
def sigmoid(): return Classifier(Sigmoid(), PLAIN, NAMES)
def soft_shades(): return Classifier(Soft(), PLAIN, ["crimson", "green", "scarlet", "grey"])
def noisy(): return Classifier(Noisy(), PLAIN, NAMES)
def batch_statistics(): return Classifier(BatchStatistics(), PLAIN, NAMES)
def broken(): return Classifier(Broken(), PLAIN, NAMES)
def broken_on_blue(): return Classifier(BrokenOnBlue(), PLAIN, NAMES)
def failing(): return Classifier(Failing(), PLAIN, NAMES)
def too_few(): return Classifier(Colour(), PLAIN, ["red", "green", "blue"])
def too_few_outputs(): return Classifier(Colour(), PLAIN, [*NAMES, "white"])
def adapting(): return Classifier(Adapting(), PLAIN, NAMES)
def constant(): return Classifier(Constant(), PLAIN, NAMES)
def nothing(): return None
'''


def coloured(label: int, seed: int) -> np.ndarray:
    image = np.random.default_rng(seed).integers(0, 60, (32, 32, 3)).astype(np.uint8)
    if label < 3:
        image[..., label] += 150
    else:
        image += 80
    return image


def write_benchmark(root: Path, a_class: int = 6, guide: dict[str, str] | None = None) -> Path:
    """`original` and `dark` pictures of four classes, with masks, as `unswayed build` lays them out."""
    rows = []
    for number in range(4 * a_class):
        label, source = number % 4, f"photo-{number:03}"
        for edit in ("original", "dark"):
            image = coloured(label, number) // (1 if edit == "original" else 2)
            mask = np.zeros((32, 32), np.uint8)
            mask[:16, 8:24] = 255
            paths = {kind: f"{kind}/{edit}/{source}.png" for kind in ("images", "masks")}
            for kind, pixels in (("images", image), ("masks", mask)):
                (root / paths[kind]).parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(root / paths[kind])
            rows.append(
                {
                    "sample_id": f"{source}/{edit}/0",
                    "source_id": source,
                    "edit": edit,
                    "run": 0,
                    "label": label,
                    "path": paths["images"],
                    "mask_path": paths["masks"],
                    "status": "ok",
                    "guide": (guide or {}).get("name"),
                }
            )
    rows.append(
        {
            **rows[0],
            "sample_id": "photo-000/lost/0",
            "edit": "lost",
            "path": None,
            "mask_path": None,
            "status": "skipped",
        }
    )
    card = {
        "labels": {"name": "own", "classes": list(CLASSES)},
        "recipe": {"name": "test"},
        "renderer": {"guide": guide},
    }
    (root / "benchmark.json").write_text(json.dumps(card))
    parquet.write_table(pa.Table.from_pylist(rows), root / "manifest.parquet")
    return root


def copied(benchmark: Path, target: Path, **changed: object) -> Path:
    """A copy of a benchmark, with other entries in its card."""
    shutil.copytree(benchmark, target)
    card = json.loads((target / "benchmark.json").read_text())
    (target / "benchmark.json").write_text(json.dumps({**card, **changed}))
    return target
