"""Photographs with planted objects in a COCO file, and detectors and segmenters whose answers are known beforehand."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

COLORS = {"apple": (220, 20, 20), "leaf": (20, 200, 20), "ball": (20, 20, 230)}
NAMES = tuple(COLORS)
WIDE, HIGH = 320, 240

MODELS = '''
"""Models that find saturated colors, exactly or with one planted fault."""
import cv2
import numpy as np
from dataclasses import dataclass, field
from unswayed.models import Answer, ObjectModel

NAMES = ["apple", "leaf", "ball"]


def regions(image):
    """Each region of a saturated color: its class and mask."""
    pixels = image.astype(int)
    for index in range(3):
        others = [channel for channel in range(3) if channel != index]
        colored = (pixels[..., index] > 120) & (pixels[..., others].max(-1) < 90)
        count, parts = cv2.connectedComponents(colored.astype(np.uint8))
        for part in range(1, count):
            if (parts == part).sum() > 20:
                yield index, parts == part


def box(mask):
    down, across = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return [across[0], down[0], across[-1] + 1, down[-1] + 1]


def detections(image):
    found = list(regions(image))
    scores = [0.5 + 0.4 * mask.mean() for _, mask in found]
    return [box(mask) for _, mask in found], [index for index, _ in found], scores


def finding(change):
    return lambda pictures: [change(*map(np.array, detections(picture))) for picture in pictures]


def unchanged(boxes, classes, scores):
    return boxes, classes, scores


def exact(): return ObjectModel(finding(unchanged), NAMES)
def swapped(): return ObjectModel(finding(lambda b, c, s: (b.reshape(-1, 4)[:, [1, 0, 3, 2]], c, s)), NAMES)
def confused(): return ObjectModel(finding(lambda b, c, s: (b.reshape(-1, 4)[:, [1, 0, 3, 2]], (c + 1) % 3, s)), NAMES)
def shifted(): return ObjectModel(finding(lambda b, c, s: (b, (c + 1) % 3, s)), NAMES)
def doubled(): return ObjectModel(finding(lambda b, c, s: (2 * b, c, s)), NAMES)


def cornered(b, c, s):
    b = b.reshape(-1, 4)
    return np.concatenate([b[:, :2], b[:, 2:] - b[:, :2]], 1), c, s


def xywh(): return ObjectModel(finding(cornered), NAMES)
def of_size(b, c, s):
    b = b.reshape(-1, 4)
    kept = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]) > 4000
    return b[kept], c[kept], s[kept]


def large(): return ObjectModel(finding(of_size), NAMES)
def shares(): return ObjectModel(finding(lambda b, c, s: (b.reshape(-1, 4) / 256, c, s)), NAMES)
def clipped(): return ObjectModel(finding(lambda b, c, s: (b.reshape(-1, 4).clip(0, 30), c, s)), NAMES)
def shaken(b, c, s):
    noise = np.random.default_rng(int(b.sum()))
    b = b.reshape(-1, 4) + noise.normal(0, 6, (len(s), 4))
    c = np.where(noise.random(len(s)) < 0.2, (c + 1) % 3, c)
    scores = np.concatenate([noise.random(len(s)), s / 3 + 0.05 * noise.random(len(s))])
    return np.concatenate([b, b + 3]), np.concatenate([c, c]), scores


def rough(): return ObjectModel(finding(shaken), NAMES)
def blind(): return ObjectModel(finding(lambda b, c, s: (b[:0], c[:0], s[:0])), NAMES)
def unsure(): return ObjectModel(finding(lambda b, c, s: (b, c, s * 0.2)), NAMES)
def broken(): return ObjectModel(finding(lambda b, c, s: (b, c, s[:0])), NAMES)
def outside(): return ObjectModel(finding(lambda b, c, s: (b, c + 7, s)), NAMES)


def masks(pictures):
    for picture in pictures:
        found = list(regions(picture))
        yield np.array([mask for _, mask in found]), [index for index, _ in found], [0.9] * len(found)


def class_map(pictures):
    for picture in pictures:
        answer = np.full(picture.shape[:2], -1)
        for index, mask in regions(picture):
            answer[mask] = index
        yield answer


def instances(): return ObjectModel(lambda pictures: list(masks(pictures)), NAMES, task="segment")
def semantic(): return ObjectModel(lambda pictures: list(class_map(pictures)), NAMES, task="segment")


@dataclass(frozen=True, eq=False)
class Namer:
    """A model that answers in words: the color of the largest region."""

    labels: object
    name: str = "namer"
    task: str = "answer"
    device: str = "cpu"
    precision: str = "fp32"
    origin: dict = field(default_factory=dict)
    adapt: None = None
    nbytes: int = 0
    weights_hash: str = "0" * 64
    answers_hash: str = "0" * 64
    spec = property(lambda self: self.name)
    slug = property(lambda self: self.name.replace(":", "-").replace("/", "-"))

    def card(self):
        return {"model": self.name, "task": "answer", "transform": {"prompt": "What is this?"}, "origin": self.origin,
                "weights_sha256": self.weights_hash, "labels": self.labels.to_json(), "precision": "fp32"}

    def prepare(self, image):
        return image

    def answer(self, prepared):
        answers = []
        for image in prepared:
            found = sorted(regions(image), key=lambda part: -part[1].sum())
            if not found:
                answers.append(Answer(text="nothing that I know", outcome="unmatched", more={"tokens": 4}))
                continue
            said = found[0][0]
            text = "It is an " + NAMES[said]
            answers.append(Answer(np.array([said]), np.array([np.nan]), text=text, outcome="answered"))
        return answers


def namer():
    from unswayed.labels import own
    return Namer(own(NAMES))
'''


def write_objects(folder: Path, count: int = 24, wide: int = WIDE, high: int = HIGH) -> Path:
    """A COCO file of photographs, each with a large object, another one and a crowd; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    images, annotations = [], []
    for number in range(count):
        noise = np.random.default_rng(number)
        image = noise.integers(90, 150, (high // 8, wide // 8, 1)).repeat(3, 2).astype(np.uint8)
        image = cv2.resize(image, (wide, high), interpolation=cv2.INTER_CUBIC)
        label, other = number % 3, (number + 1 + number // 3 % 2) % 3
        center, half = noise.integers((110, 90), (wide - 110, 150)), noise.integers((30, 22), (52, 40))
        crowd_at = wide - 60, high - 40, wide - 10, high - 8
        shapes = [(label, *(center - half), *(center + half)), (other, 8, 10, 52, 40), (other, *crowd_at)]
        for which, (index, left, top, right, bottom) in enumerate(shapes):
            image[top:bottom, left:right] = COLORS[NAMES[index]]
            outline = [float(x) for x in (left, top, right, top, right, bottom, left, bottom)]
            area = float((right - left) * (bottom - top))
            crowd = {"iscrowd": 1} if which == 2 else {}
            annotations.append(
                {
                    "id": 10 * number + which + 1,
                    "image_id": number + 1,
                    "category_id": index + 1,
                    "area": area,
                    "segmentation": [outline],
                    **crowd,
                }  # fmt: skip
            )
        name = f"photo-{number:03}.png"
        Image.fromarray(image).save(folder / name)
        images.append({"id": number + 1, "file_name": name, "height": high, "width": wide})
    categories = [{"id": index + 1, "name": name} for index, name in enumerate(NAMES)]
    file = folder / "instances.json"
    file.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return file
