"""Masks for photographs that have none: `segment(image, box=None) -> mask`, by one of the segmenters in SEGMENTERS."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from unswayed.errors import BadPicture, UserError
from unswayed.files.downloads import quick_hub
from unswayed.scene import MaskOrigin, Scene

from . import Box, Segmenter, open_segmenter
from .confidence import NO_EDGE, edge_contrast, mask_confidence
from .sam2 import PromptedSegmenter, box_of, has_runtime, missing_files, overlap

Choice = Callable[[np.ndarray, np.ndarray], int]
"""(H, W, 3) uint8 picture and (N, H, W) candidate masks -> the place of the best."""

Judged = tuple[np.ndarray, float]

WORKING_SIDE = 480


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
        place = None if box is None else checked_box(box, image.shape)
        mask, agreement = with_agreement(open_segmenter(segmenter), image, place)
        require_object(image, mask, segmenter)
    except BadPicture as error:
        raise BadPicture(f"{scene_id}: {error.given}", allowed=error.allowed) from None
    prompt = "the center prior" if box is None else "the box " + ",".join(map(str, box))
    confidence = mask_confidence(image, mask, agreement).value
    origin = MaskOrigin(f"{segmenter} from {prompt}", round(confidence, 4))
    return Scene(scene_id, image, mask, label, notes=(str(origin),), mask_origin=origin)


def with_agreement(segmenter: Segmenter, image: np.ndarray, box: Box | None, choose: Choice | None = None) -> Judged:
    """The mask and how far a second segmenter agrees with it: (H, W) float32 in [0, 1], IoU in [0, 1].

    Beside a prompted segmenter these are the salient network and its other prompts, beside GrabCut one that starts from
    a wider guess, and else GrabCut in the mask's own box.
    choose: picks one of several candidates, such as the one whose removal hurts the true class most.
    """
    if isinstance(segmenter, PromptedSegmenter):
        found = segmenter.candidates(image, box)
        place = choose(image, found.masks) if choose is not None else 0
        return found.masks[place], float(found.agreement[place])
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


def parse_box(text: str) -> Box:
    """A box from `X,Y,W,H`.

    >>> parse_box("10,20,100,80")
    (10, 20, 100, 80)
    """
    try:
        x, y, wide, high = (int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"the box is '{text}'", allowed="X,Y,W,H in integer pixels, such as 10,20,100,80") from None
    if wide < 1 or high < 1:
        raise UserError(f"the box '{text}' has no area", allowed="X,Y,W,H with W and H of at least 1")
    return x, y, wide, high


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
    import cv2

    high, wide = image.shape[:2]
    factor = min(1.0, WORKING_SIDE / (1 + wider) / max(high, wide))
    size = max(1, round(wide * factor)), max(1, round(high * factor))
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA) if factor < 1 else image
    trimap = _trimap(size, None if box is None else tuple(round(value * factor) for value in box), wider)
    if not (trimap == cv2.GC_BGD).any() or not (trimap == cv2.GC_PR_FGD).any():
        raise BadPicture("the box leaves no background around the object", allowed="a box within the picture")
    # GrabCut starts from k-means, which draws from OpenCV's own generator.
    cv2.setRNGSeed(0)
    behind, front = np.zeros((1, 65)), np.zeros((1, 65))
    pixels = np.ascontiguousarray(small[..., ::-1])
    cv2.grabCut(pixels, trimap, (0, 0, 0, 0), behind, front, 5, cv2.GC_INIT_WITH_MASK)
    found = _main_shape(np.isin(trimap, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.uint8))
    return cv2.resize(found.astype(np.float32), (wide, high), interpolation=cv2.INTER_LINEAR)


def _trimap(size: tuple[int, int], box: tuple[int, ...] | None, wider: bool) -> np.ndarray:
    """(H, W) uint8: sure background, probable background, probable object, sure object."""
    import cv2

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


def _main_shape(found: np.ndarray) -> np.ndarray:
    """The largest connected shape with its holes filled: (H, W) uint8 of zeros and ones."""
    import cv2

    count, numbers, measures, _ = cv2.connectedComponentsWithStats(found)
    if count < 2:
        return found
    largest = 1 + int(measures[1:, cv2.CC_STAT_AREA].argmax())
    shape = (numbers == largest).astype(np.uint8)
    outlines, _ = cv2.findContours(shape, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(shape, outlines, -1, 1, cv2.FILLED)


@functools.cache
def open_checkpoint(name: str) -> Segmenter:
    """The segmenter of a checkpoint whose config says `sam`, `sam2` or a BiRefNet; fetched where that is possible."""
    import transformers

    with quick_hub(name):
        return _opened(name, transformers)


def _opened(name: str, transformers: Any) -> Segmenter:
    try:
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
        kind = str(getattr(config, "model_type", ""))
        if kind in _PROMPTED:
            model = getattr(transformers, _PROMPTED[kind]).from_pretrained(name, trust_remote_code=False).eval()
            processor = transformers.AutoProcessor.from_pretrained(name, trust_remote_code=False)
            return functools.partial(_prompted, model=model, processor=processor)
        if "birefnet" in kind.lower():
            model = transformers.AutoModelForImageSegmentation.from_pretrained(name, trust_remote_code=False).eval()
            return functools.partial(_salient, model=model)
    except Exception as error:
        raise UserError(
            f"the checkpoint {name} cannot be opened: {(str(error) or type(error).__name__).splitlines()[0][:300]}",
            allowed="a folder with config.json and weights, or a name on the hub such as facebook/sam2-hiera-tiny",
        ) from None
    raise UserError(f"{name} is a checkpoint of the kind '{kind}'", allowed=", ".join([*_PROMPTED, "birefnet"]))


_PROMPTED = {"sam": "SamModel", "sam2": "Sam2Model", "sam2_video": "Sam2Model"}


def _prompted(image: np.ndarray, box: Box | None, *, model: Any, processor: Any) -> np.ndarray:
    """The best of the checkpoint's masks for the box; without one for the middle of the picture."""
    import torch

    # Without a box the object is taken to be in the middle, as GrabCut takes it.
    high, wide = image.shape[:2]
    x, y, wide, high = box or (wide // 10, high // 10, wide - 2 * (wide // 10), high - 2 * (high // 10))
    inputs = processor(images=image, input_boxes=[[[x, y, x + wide, y + high]]], return_tensors="pt")
    with torch.inference_mode():
        answer = model(**inputs, multimask_output=True)
    best = int(answer.iou_scores[0, 0].argmax())
    logits = answer.pred_masks[0, 0, best][None, None].float()
    sizes = inputs["reshaped_input_sizes"][0].tolist() if "reshaped_input_sizes" in inputs else None
    if sizes is not None:
        # SAM pads to a square: what lies beyond the picture is cut away before it is stretched.
        side = max(sizes)
        logits = torch.nn.functional.interpolate(logits, (side, side), mode="bilinear", align_corners=False)
        logits = logits[..., : sizes[0], : sizes[1]]
    logits = torch.nn.functional.interpolate(logits, image.shape[:2], mode="bilinear", align_corners=False)
    return logits[0, 0].sigmoid().numpy()


def _salient(image: np.ndarray, box: Box | None, *, model: Any) -> np.ndarray:
    import cv2
    import torch

    x, y, wide, high = box or (0, 0, image.shape[1], image.shape[0])
    pixels = cv2.resize(image[y : y + high, x : x + wide], (1024, 1024)).astype(np.float32) / 255
    batch = torch.from_numpy((pixels - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)).permute(2, 0, 1)[None].float()
    with torch.inference_mode():
        answer = model(batch)
    logits = getattr(answer, "logits", answer)
    logits = logits[-1] if isinstance(logits, (list, tuple)) else logits
    part = logits.sigmoid().squeeze().numpy()
    mask = np.zeros(image.shape[:2], np.float32)
    mask[y : y + high, x : x + wide] = cv2.resize(part, (wide, high))
    return mask
