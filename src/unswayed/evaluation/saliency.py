"""Heat maps of a classifier's predictions, by the grad-cam library.

    maps = heat_maps(open_model("lite:0"), pictures, targets=None, method="layercam")

The layer and its reshaping come from the model (`Classifier.heat_layer`), so that convolutional networks and
vision transformers are handled in the same way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unswayed.errors import UserError, unknown
from unswayed.models.transforms import Geometry

if TYPE_CHECKING:
    import torch

    from unswayed.models import Classifier

# our name -> (the class in pytorch_grad_cam, maximum batch size: scorecam makes one pass per channel)
METHODS: dict[str, tuple[str, int | None]] = {
    "gradcam": ("GradCAM", None),
    "layercam": ("LayerCAM", None),
    "hirescam": ("HiResCAM", None),
    "gradcam++": ("GradCAMPlusPlus", None),
    "xgradcam": ("XGradCAM", None),
    "elementwise": ("GradCAMElementWise", None),
    "eigencam": ("EigenCAM", None),
    "eigengradcam": ("EigenGradCAM", None),
    "scorecam": ("ScoreCAM", 1),
}


def heat_maps(
    model: Classifier,
    images: Sequence[np.ndarray],
    targets: Sequence[int] | None = None,
    method: str = "layercam",
    batch_size: int = 16,
) -> np.ndarray:
    """Heat maps of pictures of one shape, by the model's own transform: (N, H, W) float32 in [0, 1].

    images: (H, W, 3) uint8 each, or one (N, H, W, 3) array; targets: the explained class of each picture, the
    predicted one if None; method: a name of `METHODS`. Pixels outside the model's crop are 0. A map without any
    positive evidence is 0 everywhere; any other has the maximum 1.
    """
    import torch

    if len({image.shape for image in images}) > 1:
        raise UserError("the pictures have different shapes", run="heat_maps once for each shape")
    if targets is not None and len(targets) != len(images):
        raise UserError(
            f"there are {len(targets)} targets for {len(images)} pictures", allowed="one per picture, or None"
        )
    shape = images[0].shape[:2] if len(images) else (0, 0)
    maps = np.zeros((len(images), *shape), np.float32)
    with explainer(model, method, batch_size) as explain:
        for start in range(0, len(images), batch_size):
            chunk = slice(start, start + batch_size)
            inputs = torch.stack([model.prepare(image) for image in images[chunk]])
            of_inputs = explain(inputs, None if targets is None else targets[chunk])
            for index, heat in enumerate(of_inputs, start):
                maps[index] = on_picture(heat, model.transform.geometry, *shape)
    return maps


@contextlib.contextmanager
def explainer(
    model: Classifier, method: str = "layercam", batch_size: int = 16
) -> Iterator[Callable[[torch.Tensor, Sequence[int] | None], np.ndarray]]:
    """A function from transformed inputs (N, 3, crop, crop) and classes to maps (N, crop, crop) in [0, 1].

    Its hooks are removed from the model at the end of the block.
    """
    if method not in METHODS:
        raise unknown("saliency method", method, METHODS)
    import pytorch_grad_cam
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    from unswayed.models.runtime import evaluating

    name, most = METHODS[method]
    layer = model.heat_layer
    frozen = contextlib.ExitStack()
    frozen.enter_context(evaluating(model.module))
    cam: Any = getattr(pytorch_grad_cam, name)(
        model=model.module, target_layers=[layer.module(model.module)], reshape_transform=layer.reshape_transform
    )
    if hasattr(cam, "batch_size"):
        cam.batch_size = batch_size

    def explain(inputs: torch.Tensor, targets: Sequence[int] | None = None) -> np.ndarray:
        wanted = None if targets is None else [ClassifierOutputTarget(int(target)) for target in targets]
        step = most or max(1, len(inputs))
        maps = []
        for start in range(0, len(inputs), step):
            chunk = slice(start, start + step)
            # The model's weights are frozen: gradients flow only if the input requires them.
            part = inputs[chunk].to(model.device).detach().requires_grad_(True)
            maps.append(cam(input_tensor=part, targets=None if wanted is None else wanted[chunk]))
        return unit_peak(np.concatenate(maps)) if maps else np.zeros((0, *inputs.shape[-2:]), np.float32)

    try:
        yield explain
    finally:
        # The library's own context manager swallows an IndexError; this one lets every error through.
        cam.activations_and_grads.release()
        frozen.close()


def unit_peak(maps: np.ndarray) -> np.ndarray:
    """Maps (N, H, W) with nan as 0, nothing below 0 and a maximum of 1 each; an empty map stays 0."""
    maps = np.maximum(np.nan_to_num(np.asarray(maps, np.float32)), 0)
    peak = maps.max(axis=(1, 2), keepdims=True)
    return np.divide(maps, peak, out=np.zeros_like(maps), where=peak > 1e-6)


def on_picture(heat: np.ndarray, geometry: Geometry, high: int, wide: int) -> np.ndarray:
    """A map of the crop at its position in the picture: (crop, crop) -> (high, wide), 0 outside the crop."""
    import cv2

    tall, broad = geometry.size(high, wide)
    above, before, _, _ = geometry.window(high, wide)
    # Where the crop starts in the resized picture; a crop larger than the picture starts outside it.
    top = above * tall / high if tall >= len(heat) else -((len(heat) - tall) // 2)
    left = before * broad / wide if broad >= len(heat) else -((len(heat) - broad) // 2)
    across, down = broad / wide, tall / high
    matrix = np.array([[across, 0, (across - 1) / 2 - left], [0, down, (down - 1) / 2 - top]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    placed = cv2.warpAffine(heat, matrix, (wide, high), flags=flags, borderMode=cv2.BORDER_REPLICATE)
    rows, columns = np.arange(high) * down + (down - 1) / 2 - top, np.arange(wide) * across + (across - 1) / 2 - left
    seen = _inside(rows, len(heat))[:, None] & _inside(columns, len(heat))
    return np.where(seen, placed, 0).astype(np.float32)


def _inside(positions: np.ndarray, side: int) -> np.ndarray:
    return (positions > -0.5 - 1e-6) & (positions < side - 0.5 + 1e-6)
