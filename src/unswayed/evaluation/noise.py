"""RIVAL10's noise and ablation: a picture at the model's input size, changed in a region at a level.

Noise is added before the model's own normalization and the sum is clipped to [0, 1], as in the released code
(Moayeri et al., CVPR 2022), which works at 224×224.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unswayed.choices import Frame
from unswayed.errors import BadPicture, UserError, unknown
from unswayed.files.whole import canonical
from unswayed.scene import Scene, frame

if TYPE_CHECKING:
    import torch

# As published: linf levels are standard deviations in 255ths, l2 levels are norms of the whole noise.
LEVELS: dict[str, tuple[float, ...]] = {
    "linf": tuple(float(level) for level in range(30, 211, 30)),
    "l2": tuple(float(level) for level in range(25, 201, 25)),
}
REGIONS = ("foreground", "background", "everything")
GRAY = 0.5


@dataclass(frozen=True)
class Variant:
    """One changed picture: norm `linf`, `l2`, `grey` or `clean` (no level), the region's name, the seed's number."""

    norm: str
    level: float | None
    region: str
    seed: int = 0


def at_input(scene: Scene, size: int, how: Frame = "object") -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The framed scene at the model's input size, (size, size, 3) uint8, and its regions' masks, (size, size) bool.

    The picture is resized and not cropped, as RIVAL10's 224×224 pictures go into a model: a center crop would cut
    objects. Regions: foreground, background, everything, and each part that still covers a pixel.
    """
    from PIL import Image

    framed = frame(scene, how)
    picture = Image.fromarray(framed.image)
    if picture.size != (size, size):
        picture = picture.resize((size, size), Image.Resampling.BICUBIC)
    masks = object_regions(_shrunk(framed.mask, size), scene.id)
    for name, part in framed.parts.items():
        mask = _shrunk(part, size) > 0.5
        if name not in masks and mask.any():
            masks[name] = mask
    return np.array(picture), masks


def object_regions(mask: np.ndarray, name: str = "the scene") -> dict[str, np.ndarray]:
    """The masks of `REGIONS` from an object's mask (H, W) in [0, 1]; raises BadPicture if it is empty or full."""
    inside = mask > 0.5
    if not inside.any():
        raise BadPicture(f"{name}: the mask is empty at the model's input size, so there is no foreground for noise")
    if inside.all():
        raise BadPicture(f"{name}: the mask covers the whole picture, so there is no background for noise")
    return {"foreground": inside, "background": ~inside, "everything": np.ones_like(inside)}


def draw_noise(scene_id: str, size: int, seed: int) -> np.ndarray:
    """Standard normal noise (3, size, size) float32 of one picture and seed, the same in every batch.

    Every level and region of a picture scales and masks the same draw, so that new noise does not disturb a
    curve over levels.
    """
    key = hashlib.blake2b(canonical([seed, scene_id, size]).encode(), digest_size=8).digest()
    return np.random.Generator(np.random.SFC64(int.from_bytes(key))).standard_normal((3, size, size), dtype=np.float32)


def add_noise(
    picture: torch.Tensor, noise: torch.Tensor, masks: torch.Tensor, norm: str, levels: torch.Tensor
) -> torch.Tensor:
    """The picture under noise in each region: (3, H, W) in [0, 1] -> (V, 3, H, W) in [0, 1].

    noise: (3, H, W) standard normal; masks: (V, H, W), 1 where noise is added; levels: (V,), a standard deviation
    (`linf`: clip(x + ε·n·m)) or a norm (`l2`: clip(x + ε·n·m / ‖n·m‖₂)), in the picture's units.
    """
    import torch

    if norm not in LEVELS:
        raise unknown("norm", norm, LEVELS)
    if not bool((masks != 0).flatten(1).any(1).all()):
        raise BadPicture("a region's mask is empty, so no noise can be added", allowed="at least one pixel")
    placed = noise * masks[:, None].to(noise.dtype)
    if norm == "l2":
        levels = levels / torch.linalg.vector_norm(placed, dim=(1, 2, 3))
    return placed.mul_(levels.view(-1, 1, 1, 1)).add_(picture).clamp_(0, 1)


def ablate(picture: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """The picture with each region set to gray 0.5: (3, H, W) and (V, H, W) -> (V, 3, H, W)."""
    import torch

    return torch.where(masks[:, None] != 0, torch.tensor(GRAY, dtype=picture.dtype, device=picture.device), picture)


def plan_variants(
    regions: Sequence[str], levels: Mapping[str, Sequence[float]], seeds: int, ablation: bool
) -> list[Variant]:
    """Every variant of one picture, norm by norm and seed by seed; gray everywhere is excluded."""
    variants = [
        Variant(norm, level, region, seed)
        for norm, chosen in levels.items()
        for seed in range(seeds)
        for level in chosen
        for region in regions
    ]
    return variants + [Variant("grey", None, region) for region in regions if ablation and region != "everything"]


def changed(
    picture: torch.Tensor,
    masks: Mapping[str, torch.Tensor],
    noise: Callable[[int], torch.Tensor],
    variants: Sequence[Variant],
) -> torch.Tensor:
    """The variants of one picture, (3, S, S) in [0, 1] -> (V, 3, S, S); all of one norm and seed.

    noise: a seed's number -> standard normal noise (3, S, S). Norm `clean` returns the picture unchanged.
    """
    import torch

    norm = variants[0].norm
    if norm == "clean":
        return picture[None]
    stacked = torch.stack([masks[one.region] for one in variants])
    if norm == "grey":
        return ablate(picture, stacked)
    scale = 255.0 if norm == "linf" else 1.0
    levels = torch.tensor([(one.level or 0.0) / scale for one in variants], device=picture.device)
    return add_noise(picture, noise(variants[0].seed), stacked, norm, levels)


def choose_levels(norm: str, text: str | None) -> dict[str, tuple[float, ...]]:
    """Norm -> levels for `linf`, `l2` or `both`: those in `text`, or the published ones if None."""
    if norm not in (*LEVELS, "both"):
        raise unknown("norm", norm, (*LEVELS, "both"))
    if norm == "both":
        if text is not None:
            raise UserError(
                "levels of one norm have no meaning for the other", allowed="--levels with --norm linf or l2"
            )
        return dict(LEVELS)
    return {norm: LEVELS[norm] if text is None else parse_levels(text, norm)}


def parse_levels(text: str, norm: str) -> tuple[float, ...]:
    """`30,60,90` as numbers above 0, in ascending order without repeats."""
    try:
        numbers = sorted({float(part) for part in text.split(",") if part.strip()})
    except ValueError:
        numbers = []
    if not numbers or not all(np.isfinite(number) and number > 0 for number in numbers):
        published = ",".join(f"{level:g}" for level in LEVELS[norm])
        raise UserError(
            f"the levels are '{text}'", allowed=f"numbers above 0, separated by commas; published: {published}"
        )
    return tuple(numbers)


def _shrunk(mask: np.ndarray, size: int) -> np.ndarray:
    import cv2

    if mask.shape == (size, size):
        return mask
    how = cv2.INTER_AREA if min(mask.shape) > size else cv2.INTER_LINEAR
    return cv2.resize(np.asarray(mask, np.float32), (size, size), interpolation=how)
