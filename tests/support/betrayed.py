"""A constructed set whose backgrounds betray the label, and a small classifier that was trained on it."""

from __future__ import annotations

import os
from pathlib import Path

import cv2
import numpy as np
import torch

from unswayed.models.classifier import Classifier
from unswayed.models.transforms import Transform
from unswayed.scene import Scene
from unswayed.sources.pictures import load_scene
from unswayed.sources.source import Entry

CLASSES = ("disc", "square", "triangle")
SIDE = 64
TRANSFORM = Transform(SIDE, SIDE, mean=(0.5,) * 3, std=(0.5,) * 3)
HUES = {"disc": 10, "square": 70, "triangle": 130}

MODEL = """
from pathlib import Path
from betrayed import small_classifier
def build():
    return small_classifier(Path(__file__).with_name("weights.safetensors"))
"""


def write_photographs(folder: Path, count: int, seed: int = 0, betrays: bool = True, size: int = 96) -> Path:
    """`count` pictures of each class with masks: a striped gray shape on a ground whose hue goes with the shape."""
    rng = np.random.default_rng(seed)
    for name in CLASSES:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            hue = HUES[name] if betrays else HUES[CLASSES[rng.integers(3)]]
            image, mask = draw_shape(name, hue + rng.uniform(-8, 8), size, rng)
            cv2.imwrite(str(folder / name / f"{number:03d}.jpg"), image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 95])
            cv2.imwrite(str(folder / name / f"{number:03d}_mask.png"), mask)
    return folder


def draw_shape(name: str, hue: float, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    grain = cv2.GaussianBlur(rng.normal(0, 1, (size, size)).astype(np.float32), (0, 0), 2) * 90
    hsv = np.stack([np.full_like(grain, hue * 2), np.full_like(grain, 0.6), np.clip(0.55 + grain / 255, 0, 1)], axis=2)
    image = (cv2.cvtColor(hsv.astype(np.float32), cv2.COLOR_HSV2RGB) * 255).astype(np.uint8)
    radius = rng.uniform(0.2, 0.3) * size
    x, y = rng.uniform(0.4, 0.6, 2) * size
    sides = {"disc": 40, "square": 4, "triangle": 3}[name]
    angles = np.arange(sides) * 2 * np.pi / sides + np.radians(rng.uniform(-15, 15)) - np.pi / 2
    corners = np.stack([x + radius * np.cos(angles), y + radius * np.sin(angles)], axis=1)
    mask = np.zeros((size, size), np.uint8)
    cv2.fillPoly(mask, [np.round(corners).astype(np.int32)], 255, cv2.LINE_AA)
    shade = rng.uniform(60, 200)
    # What a classifier should look at: stripes along x, stripes along y, or none.
    waves = np.sin(np.arange(size) * 2 * np.pi / (size / 12) + rng.uniform(0, 6)) * 50
    stripes = {"disc": waves[:, None], "square": waves[None, :], "triangle": np.zeros((1, 1))}[name]
    object_ = np.clip(shade + stripes[..., None] + rng.normal(0, 8, (size, size, 3)), 0, 255)
    share = mask[..., None] / 255
    return np.round(object_ * share + image * (1 - share)).astype(np.uint8), mask


class SmallNetwork(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[torch.nn.Module] = []
        for before, after in ((3, 24), (24, 32), (32, 48), (48, 64)):
            layers += [torch.nn.Conv2d(before, after, 3, 2, 1), torch.nn.BatchNorm2d(after), torch.nn.ReLU()]
        self.features = torch.nn.Sequential(*layers)
        self.head = torch.nn.Linear(64, len(CLASSES))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.features(pixels).amax(dim=(2, 3))
        logits: torch.Tensor = self.head(features)
        return logits


def small_classifier(weights: Path | None = None) -> Classifier:
    torch.manual_seed(0)
    network = SmallNetwork()
    if weights is not None:
        from safetensors.torch import load_file

        network.load_state_dict(load_file(weights))
    return Classifier(network, TRANSFORM, list(CLASSES), device="cpu")  # type: ignore[arg-type]


def train_plainly(folder: Path, steps: int = 120) -> SmallNetwork:
    """The network trained on the pictures as they are."""
    torch.manual_seed(0)
    pictures, labels = [], []
    for label, name in enumerate(CLASSES):
        for path in sorted((folder / name).glob("*.jpg")):
            picture = cv2.imread(str(path))
            if picture is not None:
                pictures.append(TRANSFORM.tensor(picture[..., ::-1].copy()))
                labels.append(label)
    data, targets = torch.stack(pictures), torch.tensor(labels)
    network = SmallNetwork().train()
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3)
    for _ in range(steps):
        rows = torch.randint(len(data), (48,))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(data[rows]), targets[rows]).backward()
        optimizer.step()
    return network.eval()


def write_model(folder: Path, network: SmallNetwork) -> str:
    """The network as a `python:` model; returns its spec."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: one.contiguous() for name, one in network.state_dict().items()}, folder / "weights.safetensors")
    (folder / "small.py").write_text(MODEL)
    return f"python:{folder / 'small.py'}:build"


def load_or_die(entry: Entry) -> Scene:
    """The scene of an entry; the photograph `disc--001` ends the process that reads it, as a broken decoder does."""
    if entry.id == "disc--001":
        os._exit(11)
    return load_scene(entry)
