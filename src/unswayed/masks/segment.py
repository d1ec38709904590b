"""Masks for photographs that have none: `segment(image, box=None) -> mask`, by one of the segmenters in SEGMENTERS."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np

from unswayed.errors import BadPicture, UserError, first_line
from unswayed.files.downloads import quick_hub
from unswayed.scene import MaskOrigin, Scene

from . import Box, Segmenter, open_segmenter
from .confidence import NO_EDGE, Confidence, edge_contrast, mask_confidence
from .sam2 import PromptedSegmenter, box_of, has_runtime, mask_in_box, missing_files, network_input, overlap

Choice = Callable[[np.ndarray, np.ndarray], int]
"""(H, W, 3) uint8 picture and (N, H, W) candidate masks -> the place of the best."""

WORKING_SIDE = 480
_PROMPTED = {"sam": "SamModel", "sam2": "Sam2Model", "sam2_video": "Sam2Model"}


def segment(image: np.ndarray, box: Box | None = None, segmenter: str = "grabcut") -> np.ndarray:
    """The mask of the object in a photograph: (H, W) float32 in [0, 1].

    box: x, y, width, height around the object; without it the object is assumed to be in the center.
    segmenter: a name of SEGMENTERS, such as `auto` (sam2 where its weights are here, else grabcut) or `onnx:FILE`.
    """
    mask = open_segmenter(segmenter)(image, None if box is None else checked_box(box, image.shape))
    require_object(image, mask, segmenter)
    return mask


def segmented(scene_id: str, image: np.ndarray, label: int | None, segmenter: str, box: Box | None = None) -> Scene:
    """A scene with a mask made by a segmenter, and a note about it with its confidence."""
    try:
        mask, confidence = trusted_mask(image, open_segmenter(segmenter), segmenter, box)
    except BadPicture as error:
        raise BadPicture(f"{scene_id}: {error.given}", allowed=error.allowed) from None
    prompt = "the center prior" if box is None else "the box " + ",".join(map(str, box))
    origin = MaskOrigin(f"{segmenter} from {prompt}", round(confidence.value, 4))
    return Scene(scene_id, image, mask, label, notes=(str(origin),), mask_origin=origin)


def trusted_mask(
    image: np.ndarray, segmenter: Segmenter, name: str, box: Box | None = None, choose: Choice | None = None
) -> tuple[np.ndarray, Confidence]:
    """The mask of the object in a photograph and how far it can be trusted; name: of what found it, for an error."""
    region = None if box is None else checked_box(box, image.shape)
    mask, agreement = with_agreement(segmenter, image, region, choose)
    require_object(image, mask, name)
    return mask, mask_confidence(image, mask, agreement)


def with_agreement(
    segmenter: Segmenter, image: np.ndarray, box: Box | None, choose: Choice | None = None
) -> tuple[np.ndarray, float]:
    """The mask and how far a second segmenter agrees with it: (H, W) float32 in [0, 1], IoU in [0, 1].

    Beside a prompted segmenter these are the salient network and its other prompts, beside GrabCut one that starts from
    a wider guess, and else GrabCut in the mask's own box.
    choose: picks one of several candidates, such as the one whose removal hurts the true class most.
    """
    if isinstance(segmenter, PromptedSegmenter):
        candidates = segmenter.candidates(image, box)
        chosen = choose(image, candidates.masks) if choose is not None else 0
        return candidates.masks[chosen], float(candidates.agreement[chosen])
    mask = segmenter(image, box)
    around = box_of(mask)
    if around is None:
        return mask, 0.0
    try:
        second = grabcut(image, box, wider=True) if segmenter is grabcut else grabcut(image, around)
        return mask, overlap(mask, second)
    except BadPicture:
        return mask, 0.0


def require_object(image: np.ndarray, mask: np.ndarray, segmenter: str) -> None:
    """Refuse a mask without an object, and one whose outline follows nothing in the picture, as on a blank wall."""
    inside = mask > 0.5
    if not inside.any() or (not inside.all() and edge_contrast(image, mask) < NO_EDGE):
        raise BadPicture(f"{segmenter} found no object in the picture", allowed="--box X,Y,W,H around it, or a mask")


def checked_box(box: Box, shape: tuple[int, ...]) -> Box:
    """The box, if it lies in a picture of this shape; raises BadPicture with the allowed range otherwise.

    >>> checked_box((0, 0, 8, 4), (4, 8, 3))
    (0, 0, 8, 4)
    """
    text, (high, wide) = ",".join(map(str, box)), shape[:2]
    if len(box) != 4 or any(value != int(value) for value in box):
        raise BadPicture(f"the box is {text}", allowed="x, y, width, height in whole pixels")
    x, y, width, height = (int(value) for value in box)
    if not (0 <= x < x + width <= wide and 0 <= y < y + height <= high):
        raise BadPicture(
            f"the box {text} reaches beyond the picture of {wide}×{high} pixels",
            allowed=f"x, y, width, height with 0 ≤ x < x + width ≤ {wide} and 0 ≤ y < y + height ≤ {high}",
        )
    return x, y, width, height


def open_auto(argument: str) -> Segmenter:
    return open_segmenter(default_segmenter()[0])


def open_grabcut(argument: str) -> Segmenter:
    return grabcut


def default_segmenter() -> tuple[str, str | None]:
    """`sam2` where its weights are here, else `grabcut` and what to run for better masks."""
    if not has_runtime():
        return "grabcut", "pip install 'unswayed[masks]' and unswayed weights fetch masks"
    return ("grabcut", "unswayed weights fetch masks") if missing_files() else ("sam2", None)


def grabcut(image: np.ndarray, box: Box | None = None, *, wider: bool = False) -> np.ndarray:
    """The object by GrabCut (Rother et al. 2004), the same for the same picture: (H, W) float32 in [0, 1].

    Without a box the outer tenth of the picture is background and the middle is probably object. wider: at half the
    size and from a larger box, as a second opinion: where the colors do not decide, the result depends on the box.
    """
    high, wide = image.shape[:2]
    factor = min(1.0, WORKING_SIDE / (1 + wider) / max(high, wide))
    size = max(1, round(wide * factor)), max(1, round(high * factor))
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA) if factor < 1 else image
    trimap = _trimap(size, None if box is None else tuple(round(value * factor) for value in box), wider)
    if not (trimap == cv2.GC_BGD).any() or not (trimap == cv2.GC_PR_FGD).any():
        raise BadPicture("the box leaves no background around the object", allowed="a box within the picture")
    # GrabCut starts from k-means, which draws from OpenCV's own generator.
    cv2.setRNGSeed(0)
    pixels = np.ascontiguousarray(small[..., ::-1])
    cv2.grabCut(pixels, trimap, (0, 0, 0, 0), np.zeros((1, 65)), np.zeros((1, 65)), 5, cv2.GC_INIT_WITH_MASK)
    shape = np.isin(trimap, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.uint8)
    count, numbers, measures, _ = cv2.connectedComponentsWithStats(shape)
    if count > 1:  # the largest connected shape with its holes filled
        shape = (numbers == 1 + measures[1:, cv2.CC_STAT_AREA].argmax()).astype(np.uint8)
        outlines, _ = cv2.findContours(shape, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
        cv2.drawContours(shape, outlines, -1, 1, cv2.FILLED)
    return cv2.resize(shape.astype(np.float32), (wide, high), interpolation=cv2.INTER_LINEAR)


def _trimap(size: tuple[int, int], box: tuple[int, ...] | None, wider: bool) -> np.ndarray:
    """(H, W) uint8: sure background, probable background, probable object, sure object."""
    wide, high = size
    x, y, box_wide, box_high = box or (wide // 10, high // 10, wide - 2 * (wide // 10), high - 2 * (high // 10))
    if wider:
        right, below = min(x + box_wide + wide // 14, wide - 1), min(y + box_high + high // 14, high - 1)
        x, y = max(x - wide // 14, 1), max(y - high // 14, 1)
        box_wide, box_high = right - x, below - y
    trimap = np.full((high, wide), cv2.GC_BGD, np.uint8)
    trimap[y : y + max(box_high, 1), x : x + max(box_wide, 1)] = cv2.GC_PR_BGD
    # An object rarely fills the corners of its box, and without a box it is smaller than the assumed one.
    share = 0.5 if box is not None else 0.48 if wider else 0.42
    center = x + box_wide // 2, y + box_high // 2
    for kind, part in ((cv2.GC_PR_FGD, share), (cv2.GC_FGD, share / 8)):
        # The small sure core separates the object from a background of similar colors.
        axes = max(1, round(box_wide * part)), max(1, round(box_high * part))
        cv2.ellipse(trimap, center, axes, 0, 0, 360, kind, -1)
    return trimap


@functools.cache
def open_checkpoint(name: str) -> Segmenter:
    """The segmenter of a checkpoint whose config says `sam`, `sam2` or a BiRefNet; fetched where that is possible."""
    import transformers

    def load(kind: Any) -> Any:
        return kind.from_pretrained(name, trust_remote_code=False)

    try:
        with quick_hub(name):
            kind = str(getattr(load(transformers.AutoConfig), "model_type", ""))
            if kind in _PROMPTED:
                model = load(getattr(transformers, _PROMPTED[kind])).eval()
                return functools.partial(_prompted, model=model, processor=load(transformers.AutoProcessor))
            if "birefnet" in kind.lower():
                return functools.partial(_salient, model=load(transformers.AutoModelForImageSegmentation).eval())
    except Exception as error:
        raise UserError(
            f"the checkpoint {name} cannot be opened: {first_line(error)[:300]}",
            allowed="a folder with config.json and weights, or a name on the hub such as facebook/sam2-hiera-tiny",
        ) from None
    raise UserError(f"{name} is a checkpoint of the kind '{kind}'", allowed=", ".join([*_PROMPTED, "birefnet"]))


def _prompted(image: np.ndarray, box: Box | None, *, model: Any, processor: Any) -> np.ndarray:
    """The best of the checkpoint's masks for the box; without one for the picture's middle, as GrabCut takes it."""
    import torch
    from torch.nn.functional import interpolate

    high, wide = image.shape[:2]
    x, y, wide, high = box or (wide // 10, high // 10, wide - 2 * (wide // 10), high - 2 * (high // 10))
    inputs = processor(images=image, input_boxes=[[[x, y, x + wide, y + high]]], return_tensors="pt")
    with torch.inference_mode():
        answer = model(**inputs, multimask_output=True)
    logits = answer.pred_masks[0, 0, int(answer.iou_scores[0, 0].argmax())][None, None].float()
    if "reshaped_input_sizes" in inputs:
        # SAM pads to a square: what lies beyond the picture is cut away before it is stretched.
        down, right = inputs["reshaped_input_sizes"][0].tolist()
        square = (max(down, right),) * 2
        logits = interpolate(logits, square, mode="bilinear", align_corners=False)[..., :down, :right]
    return interpolate(logits, image.shape[:2], mode="bilinear", align_corners=False)[0, 0].sigmoid().numpy()


def _salient(image: np.ndarray, box: Box | None, *, model: Any) -> np.ndarray:
    """The object by a BiRefNet, inside the box if there is one."""
    import torch

    def find(part: np.ndarray) -> np.ndarray:
        batch = network_input(cv2.resize(part, (1024, 1024)).astype(np.float32) / 255)
        with torch.inference_mode():
            answer = model(torch.from_numpy(batch))
        logits = getattr(answer, "logits", answer)
        logits = logits[-1] if isinstance(logits, (list, tuple)) else logits
        return logits.sigmoid().squeeze().numpy()

    return mask_in_box(image, box, find)
