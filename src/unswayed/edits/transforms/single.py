"""One picture edited on a CPU, with the same draws and the same places as in a batch, by OpenCV."""

from __future__ import annotations

import cv2
import numpy as np
import torch

from unswayed.rendering.membrane import membrane

from .mixture import BACKGROUND, KINDS, NUMBERS, OBJECT, Draws
from .pixels import DISPLAY_GAMMA, color_matrices
from .placement import GRID, covers, placements

HOLE = np.ones((9, 9), np.uint8)


def edit_one(
    image: np.ndarray, alpha: np.ndarray, draws: Draws, own: np.ndarray | None, other: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The edited picture, (H, W, 3) uint8, and the alpha of what is visible of its object, (H, W) float32.

    image: (H, W, 3) uint8; alpha: (H, W) float32 from `rim`; draws: of one picture; own: the picture without its
    object, filled smoothly if None; other: another picture without its object, which `background` and `occlusion`
    need.
    """
    of = dict(zip(NUMBERS, draws.numbers[0].tolist(), strict=True))
    kinds = dict(zip(KINDS, draws.kinds[0].tolist(), strict=True))
    radius = of["blur"] * max(alpha.shape) / 256
    geometric = kinds["size"] or kinds["position"] or kinds["direction"]
    defocused = kinds["blur"] and draws.blurred[0] == BACKGROUND
    front, back = image, image
    if kinds["background"]:
        assert other is not None
        back = other
    elif geometric or defocused:
        back = without_object(image, alpha) if own is None else own
    if kinds["lighting"]:
        gain = 2 ** (of["lighting"] / DISPLAY_GAMMA)
        back = cv2.convertScaleAbs(back, alpha=gain) if draws.lit[0] != OBJECT else back
        front = cv2.convertScaleAbs(front, alpha=gain) if draws.lit[0] != BACKGROUND else front
    if defocused:
        back = cv2.GaussianBlur(back, (0, 0), max(radius / 2, 1e-3))
    if kinds["color"]:
        matrix = color_matrices(torch.tensor([of["color"]]), torch.tensor([of["saturation"]]))[0].numpy()
        front = cv2.transform(front, matrix)
    if geometric or (kinds["blur"] and not defocused):
        layer, window = _layer(front, alpha, kinds, of, radius if kinds["blur"] and not defocused else 0.0)
        share = np.ascontiguousarray(layer[..., 3])
        behind = cv2.multiply(np.ascontiguousarray(back[window]), cv2.merge([1 - share] * 3), dtype=cv2.CV_32F)
        picture, visible = back.copy(), np.zeros_like(alpha)
        picture[window] = cv2.add(np.ascontiguousarray(layer[..., :3]), behind, dtype=cv2.CV_8U)
        visible[window] = share
    else:
        visible = alpha
        picture = over(front, alpha, back) if front is not back else image
    if kinds["occlusion"]:
        assert other is not None
        numbers = torch.tensor([[of["occlusion"], of["place"], of["tilt"]]])
        patch = covers(torch.from_numpy(visible)[None, None], numbers)[0, 0].numpy()
        picture, visible = over(other, patch, picture), visible * (1 - patch)
    return picture, visible


def rim(mask: np.ndarray) -> np.ndarray:
    """The alpha (H, W) float32 of a mask (H, W) float32 in [0, 1]: the object with a rim that fades inwards."""
    solid = np.clip(mask * 8 - 3, 0, 1, dtype=np.float32)
    return cv2.min(solid, cv2.blur(solid, (3, 3)))


def without_object(image: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """The picture with its object filled smoothly from what surrounds it, from a quarter of the resolution on."""
    hole = cv2.dilate((alpha > 0.05).view(np.uint8), HOLE)
    high, wide = alpha.shape
    size = (wide + 3) // 4, (high + 3) // 4
    known = (cv2.resize(hole * 255, size, interpolation=cv2.INTER_AREA) == 0).astype(np.float32)
    filled = membrane(cv2.resize(image, size, interpolation=cv2.INTER_AREA), known)
    smooth = cv2.resize(filled, (wide, high), interpolation=cv2.INTER_LINEAR)
    return over(smooth, cv2.blur(hole.astype(np.float32), (3, 3)), image)


def over(front: np.ndarray, alpha: np.ndarray, back: np.ndarray) -> np.ndarray:
    """alpha·front + (1 − alpha)·back, (H, W, 3) uint8."""
    return cv2.blendLinear(front, back, alpha, 1 - alpha)


def _layer(
    front: np.ndarray, alpha: np.ndarray, kinds: dict[str, bool], of: dict[str, float], radius: float
) -> tuple[np.ndarray, tuple[slice, slice]]:
    """The object blurred and placed, (h, w, 4) float32 with colors premultiplied by alpha, and the window of the
    picture that it lands on."""
    high, wide = alpha.shape
    margin = 2 + int(radius * 1.5 + 0.999)
    left, top, broad, tall = cv2.boundingRect((alpha > 0).view(np.uint8))
    right, bottom = min(left + broad + margin, wide), min(top + tall + margin, high)
    left, top = max(left - margin, 0), max(top - margin, 0)
    share = alpha[top:bottom, left:right]
    colors = cv2.multiply(front[top:bottom, left:right], cv2.merge([share] * 3), dtype=cv2.CV_32F)
    window = cv2.merge([*cv2.split(colors), share])
    if radius:
        window = cv2.GaussianBlur(window, (0, 0), radius / 2, borderType=cv2.BORDER_REFLECT_101)
    if not (kinds["size"] or kinds["position"] or kinds["direction"]):
        return window, (slice(top, bottom), slice(left, right))
    flags = torch.tensor([[kinds["size"], kinds["position"], kinds["direction"]]], dtype=torch.float32)
    numbers = torch.tensor([[of["size"], of["x"], of["y"], of["direction"]]])
    solid = (alpha > 0.5).view(np.uint8)
    inside = torch.from_numpy(cv2.resize(solid * 255, (GRID, GRID), interpolation=cv2.INTER_AREA) > 0).view(1, -1)
    rate = torch.tensor([cv2.countNonZero(solid) / solid.size])
    maps, factor = placements(inside, rate, (high, wide), flags, numbers)
    # From pixels of the canvas to pixels of the picture; both count from the upper left corner of the first pixel.
    back = maps[0].double().numpy() * np.array([1, 1, max(high, wide)])
    shrink = min(float(factor[0]), 1.0)
    size = max(round(window.shape[1] * shrink), 1), max(round(window.shape[0] * shrink), 1)
    scale = np.array([size[0] / window.shape[1], size[1] / window.shape[0]])
    corners = np.array([[x, y] for x in (left, right) for y in (top, bottom)], dtype=float)
    landed = (corners - back[:, 2]) @ np.linalg.inv(back[:, :2]).T
    first = np.clip(np.floor(landed.min(axis=0)).astype(int) - 1, 0, [wide - 1, high - 1])
    last = np.clip(np.ceil(landed.max(axis=0)).astype(int) + 1, first + 1, [wide, high])
    if size != window.shape[1::-1]:
        window = cv2.resize(window, size, interpolation=cv2.INTER_AREA)
    # OpenCV counts pixels by their middles.
    corner = back[:, :2] @ (first + 0.5) + back[:, 2] - np.array([left, top])
    matrix = np.column_stack([back[:, :2] * scale[:, None], corner * scale - 0.5])
    layer = cv2.warpAffine(
        window, matrix, tuple((last - first).tolist()), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    )
    return layer, (slice(first[1], last[1]), slice(first[0], last[0]))
