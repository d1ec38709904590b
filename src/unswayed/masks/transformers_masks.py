"""`transformers:CHECKPOINT`: masks by SAM, SAM 2 (prompted by a box) or BiRefNet, from a folder or the hub's cache."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from unswayed.errors import UserError, missing_extra
from unswayed.files.hub import quick_hub

Box = tuple[int, int, int, int]


@functools.cache
def open_checkpoint(name: str) -> Callable[[np.ndarray, Box | None], np.ndarray]:
    """The segmenter of a checkpoint whose config says `sam`, `sam2` or a BiRefNet; fetched where that is possible."""
    try:
        import transformers
    except ImportError:
        raise missing_extra("transformers", "models") from None
    with quick_hub(name):
        return _opened(name, transformers)


def _opened(name: str, transformers: Any) -> Callable[[np.ndarray, Box | None], np.ndarray]:
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
