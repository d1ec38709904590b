"""Operations on pixels have a form for one picture (numpy) and one for a batch (torch): both make the same picture."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from drawn_scenes import SAMPLE_IDS, sample_scene
from unswayed.edits.batch_edit import BatchEdit
from unswayed.edits.blur import blurred, blurred_batch
from unswayed.edits.color import recolored, recolored_batch
from unswayed.edits.composition import Composition, Pool
from unswayed.edits.geometry import placed_mask, resized
from unswayed.edits.lighting import lit, lit_batch
from unswayed.edits.mixture import KINDS, EditMixture, draw
from unswayed.edits.position import Direction, Position
from unswayed.edits.size import Size

SIDE = 192
LEVELS = 2


@functools.cache
def photographs() -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    scenes = [sample_scene(name) for name in SAMPLE_IDS[::4]]
    return tuple((resized(scene.image, SIDE), resized(scene.mask, SIDE)) for scene in scenes)


def as_batch() -> tuple[torch.Tensor, torch.Tensor]:
    images = np.stack([image for image, _ in photographs()])
    masks = np.stack([mask for _, mask in photographs()])
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(masks)[:, None]


def apart(batch: torch.Tensor, pictures: list[np.ndarray]) -> np.ndarray:
    levels = (batch * 255).round().permute(0, 2, 3, 1).numpy()
    return np.abs(levels - np.stack(pictures).astype(np.float32))


@pytest.mark.parametrize("stops", [-5.0, -2.3, -0.4, 0.0, 0.7, 2.0, 5.0])
def test_lighting(stops: float) -> None:
    pictures, _ = as_batch()
    expected = [lit(image, mask, stops)[0] for image, mask in photographs()]
    assert apart(lit_batch(pictures, torch.full((len(pictures),), stops)), expected).max() <= LEVELS


@pytest.mark.parametrize("hue", [-180.0, -60.0, 25.0, 60.0, 140.0])
@pytest.mark.parametrize("saturation", [0.0, 0.5, 1.0, 1.5, 3.0])
def test_color(hue: float, saturation: float) -> None:
    pictures, _ = as_batch()
    expected = [recolored(image, mask, hue, saturation)[0] for image, mask in photographs()]
    count = len(pictures)
    found = apart(recolored_batch(pictures, torch.full((count,), hue), torch.full((count,), saturation)), expected)
    assert found.mean() < 0.1
    # OpenCV rounds CIELAB to 14 bits; at three times the saturation that shows in one value of ten thousand.
    assert (found <= LEVELS).mean() > (0.9998 if saturation > 2 else 0.99999)


@pytest.mark.parametrize("radius", [0.0, 0.3, 1.0, 3.7, 6.0, 24.0])
@pytest.mark.parametrize("layer", ["object", "background", "all"])
def test_blur(radius: float, layer: str) -> None:
    pictures, masks = as_batch()
    weights = {"object": masks, "background": 1 - masks, "all": torch.ones_like(masks)}[layer]
    soft = blurred_batch(torch.cat([pictures * weights, weights], dim=1), torch.full((len(pictures),), radius))
    for (image, _), weight, one in zip(photographs(), weights[:, 0].numpy(), soft, strict=True):
        pixels, alpha = blurred(image, weight, radius)
        assert np.abs(one[3].numpy() - alpha).max() < 1e-4
        found = apart((one[:3] / one[3:].clamp(min=1e-4))[None], [pixels])[0]
        assert found[alpha > 0.02].max() <= LEVELS


@pytest.mark.parametrize("edit", [Size(rate=0.05), Size(rate=0.12), Direction(degrees=40.0), Position(x=0.9, y=0.1)])
def test_places(edit: Size | Direction | Position) -> None:
    """A batch reads outlines off a coarse grid, without specks, so that an object may lie a cell beside its place."""
    pictures, masks = as_batch()
    draws = draw(len(pictures), EditMixture(probability=1.0), np.random.default_rng(0))
    draws.kinds[:] = False
    draws.kinds[:, KINDS.index(edit.name)] = True
    of = {"size": {"size": "rate"}, "direction": {"direction": "degrees"}, "position": {"x": "x", "y": "y"}}[edit.name]
    for name, parameter in of.items():
        draws.of(name)[:] = getattr(edit, parameter)
    _, visible = BatchEdit()(pictures, masks, draws=draws)
    pool = Pool((), sample_scene, SIDE)
    offsets = []
    for (image, mask), found in zip(photographs(), visible[:, 0].numpy(), strict=True):
        composition = edit.apply(Composition("own", image, mask), np.random.default_rng(0), pool)
        expected = placed_mask(mask, composition.placement, SIDE)
        assert found.mean() == pytest.approx(expected.mean(), abs=0.02)
        centers = [np.argwhere(alpha > 0.5).mean(axis=0) / SIDE for alpha in (found, expected)]
        offsets.append(np.abs(centers[0] - centers[1]).max())
    assert np.median(offsets) < 1 / 32
