"""The default of `[masks]`: a salient-object network finds the object, its box and points prompt SAM 2 (Hiera-tiny)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import cv2
import numpy as np

from unswayed.errors import BadPicture, UserError
from unswayed.files.downloads import place_of
from unswayed.jobs import device_at
from unswayed.models.opening import open_model
from unswayed.models.runtime import open_session
from unswayed.models.transforms import IMAGENET_MEAN, IMAGENET_STD
from unswayed.sources.labeled import class_folder
from unswayed.sources.pictures import distance_to

from . import Box, MaskSettings, Segmenter

if TYPE_CHECKING:
    from unswayed.models.classifier import Classifier

Points = Sequence[tuple[int, int]]
FILES = ("silueta", "sam2-tiny-encoder", "sam2-tiny-decoder")
_EMBEDDINGS = ("image_embed", "high_res_feats_0", "high_res_feats_1")  # from SAM 2's encoder to its decoder
_SIDE, _LOW = 1024, 256
# The networks of the segmenters and the classifiers that choose between candidates, each opened once in a process.
_network = functools.cache(functools.partial(open_session, extra="masks"))
_classifier = functools.cache(open_model)


class Candidates(NamedTuple):
    """The masks that the promptable network found in one picture, best first.

    masks: (N, H, W) float32 in [0, 1]; scores: (N,) the network's own estimate of each IoU; agreement: (N,) in [0, 1],
    that estimate times the least IoU with the salient mask and with the best masks of the other prompts.
    """

    masks: np.ndarray
    scores: np.ndarray
    agreement: np.ndarray


def missing_files() -> list[str]:
    """The names of the weights that are not in the cache."""
    return [name for name in FILES if not place_of(name).is_file()]


def has_runtime() -> bool:
    """Whether onnxruntime is installed."""
    return find_spec("onnxruntime") is not None


def file_of(name: str) -> Path:
    """The weights in the cache; the error has the command that gets them."""
    path = place_of(name)
    if not path.is_file():
        raise UserError(
            f"the weights of {name} are not in {path.parent}",
            allowed="--segmenter grabcut, which needs nothing; or onnx:FILE with a network of your own",
            run="unswayed weights fetch masks",
        )
    return path


def open_sam2(argument: str) -> PromptedSegmenter:
    encoder, decoder = (str(file_of(name)) for name in FILES[1:])
    return PromptedSegmenter(open_silueta(""), encoder, decoder)


def open_silueta(argument: str) -> Segmenter:
    return open_onnx(str(file_of("silueta")))


def open_onnx(file: str) -> Segmenter:
    return functools.partial(salient, network=_network(str(Path(file).expanduser())))


@dataclass(frozen=True)
class PromptedSegmenter:
    """A segmenter: picture and box or None in, the mask of the best candidate out.

    salient: finds the object where there is no box; encoder, decoder: paths of SAM 2's two networks.
    """

    salient: Segmenter
    encoder: str
    decoder: str

    def __call__(self, image: np.ndarray, box: Box | None = None) -> np.ndarray:
        return self.candidates(image, box).masks[0]

    def candidates(self, image: np.ndarray, box: Box | None = None) -> Candidates:
        """Every candidate for three prompts: the object's box, points inside the object, and both.

        The best of each prompt is the one with the highest score times agreement with the salient map. These come
        first, in the order of their scores: points find the parts that the salient map missed, and a box excludes what
        lies outside it. A box that the user gave is part of every prompt.
        """
        map_ = self.salient(image, box)
        around = box or box_of(map_)
        if around is None:
            raise BadPicture("no object stands out in the picture", allowed="--box X,Y,W,H around it, or a mask")
        x, y, wide, high = around
        corners, inner = [(x, y), (x + wide, y + high)], inner_points(map_)
        prompts: list[tuple[Points, Points]] = [(corners, ())]
        if inner:
            prompts += [(corners, inner)] if box else [(corners, inner), ((), inner)]
        pixels = cv2.resize(image, (_SIDE, _SIDE), interpolation=cv2.INTER_LINEAR).astype(np.float32) / 255
        encoder = _network(self.encoder)
        answers = encoder.run(list(_EMBEDDINGS), {encoder.get_inputs()[0].name: network_input(pixels)})
        embedded = dict(zip(_EMBEDDINGS, answers, strict=True))
        decoded = [self._decode(embedded, image.shape, *prompt) for prompt in prompts]
        masks, scores = (np.concatenate(parts) for parts in zip(*decoded, strict=True))
        fit = scores * [overlap(mask, map_) for mask in masks]
        each = len(masks) // len(prompts)
        best = [start + int(fit[start : start + each].argmax()) for start in range(0, len(masks), each)]
        rank = scores + 2 * np.isin(np.arange(len(masks)), best)
        order = np.argsort(-np.where(rank >= 2, rank, fit), kind="stable")
        judges = [map_, *masks[best]]
        agreement = [min(overlap(mask, judge) for judge in judges) for mask in masks[order]]
        return Candidates(masks[order], scores[order], scores[order] * np.array(agreement))

    def _decode(
        self, embedded: dict[str, np.ndarray], shape: tuple[int, ...], corners: Points, inner: Points
    ) -> tuple[np.ndarray, np.ndarray]:
        """The masks (N, H, W) and their scores (N,) for the two corners of a box, or none, and points in the object."""
        high, wide = shape[:2]
        points = np.array([[*corners, *inner]], np.float32) * (_SIDE / wide, _SIDE / high)
        prompt = {
            "point_coords": points.astype(np.float32),
            "point_labels": np.array([[2, 3][: len(corners)] + [1] * len(inner)], np.float32),
            "mask_input": np.zeros((1, 1, _LOW, _LOW), np.float32),
            "has_mask_input": np.zeros(1, np.float32),
        }
        logits, scores, *_ = _network(self.decoder).run(None, embedded | prompt)
        masks = [cv2.resize(logit, (wide, high), interpolation=cv2.INTER_LINEAR) for logit in logits[0]]
        return np.stack([1 / (1 + np.exp(-np.clip(mask, -30, 30))) for mask in masks]).astype(np.float32), scores[0]


def network_input(pixels: np.ndarray) -> np.ndarray:
    """(H, W, 3) float32 in [0, 1] -> (1, 3, H, W) float32, by ImageNet's mean and standard deviation."""
    return ((pixels - IMAGENET_MEAN) / IMAGENET_STD).transpose(2, 0, 1)[None].astype(np.float32)


def mask_in_box(image: np.ndarray, box: Box | None, find: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """(H, W) float32: the map that `find` makes of the part of the picture in the box, or of all of it; 0 elsewhere."""
    x, y, wide, high = box or (0, 0, image.shape[1], image.shape[0])
    mask = np.zeros(image.shape[:2], np.float32)
    part = find(image[y : y + high, x : x + wide])
    mask[y : y + high, x : x + wide] = cv2.resize(part, (wide, high), interpolation=cv2.INTER_LINEAR)
    return mask


def salient(image: np.ndarray, box: Box | None = None, *, network: Any) -> np.ndarray:
    """The object by a salient-object network, inside the box if there is one: (H, W) float32 in [0, 1].

    As U²-Net was trained: 320×320 (or the network's own size), divided by the largest value, ImageNet's mean and
    deviation; the output is rescaled to [0, 1].
    """
    entry = network.get_inputs()[0]
    side = entry.shape[-1] if isinstance(entry.shape[-1], int) else 320

    def find(part: np.ndarray) -> np.ndarray:
        pixels = cv2.resize(part, (side, side), interpolation=cv2.INTER_AREA).astype(np.float32)
        batch = network_input(pixels / max(float(pixels.max()), 1.0))
        answer = np.squeeze(network.run(None, {entry.name: batch})[0]).astype(np.float32)
        if answer.ndim != 2:
            given = f"the network returns the shape {answer.shape}"
            raise UserError(given, allowed="one map per picture, such as U²-Net")
        low, top = float(answer.min()), float(answer.max())
        return (answer - low) / (top - low) if top > low else np.zeros_like(answer)

    return mask_in_box(image, box, find)


def box_of(mask: np.ndarray, least: float = 0.005) -> Box | None:
    """The box around every large part of a mask (a tenth of the largest and more), or None where there is nothing."""
    shape = (mask > 0.5).astype(np.uint8)
    count, numbers, measures, _ = cv2.connectedComponentsWithStats(shape)
    if count < 2 or shape.mean() < least:
        return None
    areas = measures[1:, cv2.CC_STAT_AREA]
    large = np.isin(numbers, 1 + np.flatnonzero(areas >= areas.max() / 10))
    left, top, wide, high = cv2.boundingRect(large.astype(np.uint8))
    return left, top, wide, high


def inner_points(mask: np.ndarray, most: int = 3) -> list[tuple[int, int]]:
    """Up to `most` points (x, y) deep inside a mask and far from each other, the deepest first."""
    depth = distance_to(np.pad(mask <= 0.5, 1, constant_values=True))
    depth = np.ascontiguousarray(depth[1:-1, 1:-1], np.float32)
    least = max(0.3 * float(depth.max()), 1.0)  # thin parts may belong to something else
    points: list[tuple[int, int]] = []
    while len(points) < most and float(depth.max()) >= least:
        y, x = (int(index) for index in np.unravel_index(depth.argmax(), depth.shape))
        points.append((x, y))
        cv2.circle(depth, (x, y), round(1.5 * float(depth[y, x])), 0, cv2.FILLED)
    return points


def overlap(first: np.ndarray, second: np.ndarray) -> float:
    """Intersection over union of two masks at 0.5, 1 where both are empty.

    >>> overlap(np.array([1.0, 1, 0]), np.array([1.0, 0, 0]))
    0.5
    """
    first, second = first > 0.5, second > 0.5
    union = (first | second).sum()
    return float((first & second).sum() / union) if union else 1.0


def most_needed(model: Classifier, label: int) -> Callable[[np.ndarray, np.ndarray], int]:
    """A function from a picture and candidate masks to the place of the one whose removal hurts the class most.

    label: an index of the model's own classes. What is removed is filled from around it. Among candidates that hurt
    about equally (within a tenth of the largest loss) the smallest is taken: a larger one removes background too.
    """

    def choose(image: np.ndarray, masks: np.ndarray) -> int:
        import torch

        without = []
        for mask in masks:
            hole = cv2.dilate((mask > 0.5).astype(np.uint8), np.ones((5, 5), np.uint8))
            without.append(cv2.inpaint(image, hole, 5, cv2.INPAINT_TELEA))
        batch = torch.stack([model.prepare(picture) for picture in (image, *without)])
        chances = torch.softmax(model.logits(batch), 1)[:, label].cpu().numpy()
        losses = chances[0] - chances[1:]
        sizes = np.array([(mask > 0.5).mean() for mask in masks])
        best = losses.max()
        if best <= 0:
            return 0
        near = np.flatnonzero(losses >= 0.9 * best)
        return int(near[sizes[near].argmin()])

    return choose


def chosen_by_class(
    picture: str, device: str | None = None, *, settings: MaskSettings
) -> Callable[[np.ndarray, np.ndarray], int]:
    """How a picture's candidates are chosen between: by the class that is given, or else that it is filed under."""
    label = settings.label or class_folder(picture)
    if label is None:
        raise UserError(f"{picture} lies in no class folder, so its class is not known", allowed="--label CLASS")
    model = _classifier(str(settings.model), device=device_at(device, settings.device))
    return most_needed(model, model.labels.index(label))
