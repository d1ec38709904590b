from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawn_scenes import scenes, striped
from unswayed.edits.geometry import (
    after,
    border_contact,
    box,
    center,
    moved,
    outline,
    placed_mask,
    placed_object,
    rotation,
    scaling,
    shift,
)
from unswayed.scene import Scene


@settings(max_examples=60, deadline=None)
@given(scenes())
def test_the_outlines_box_is_the_masks(scene: Scene) -> None:
    rows, columns = np.nonzero(scene.mask > 0.5)
    low, high = box(outline(scene.mask))
    assert np.allclose(low * len(scene.mask), [columns.min(), rows.min()])
    assert np.allclose(high * len(scene.mask), [columns.max() + 1, rows.max() + 1])


@settings(max_examples=60, deadline=None)
@given(scenes(thin=False), st.floats(0.3, 1.3), st.floats(-180, 180), st.floats(-0.2, 0.2))
def test_the_warp_lands_where_the_map_says(scene: Scene, factor: float, degrees: float, step: float) -> None:
    middle = np.array([0.5, 0.5])
    placement = after(shift(step, -step), after(rotation(degrees, middle), scaling(factor, middle)))
    alpha = placed_mask(scene.mask, placement, 256)
    low, high = box(moved(outline(scene.mask), placement) * 256)
    low, high = np.clip(low, 0, 256), np.clip(high, 0, 256)
    rows, columns = np.nonzero(alpha > 0.5)
    if len(rows):
        assert rows.min() >= low[1] - 1
        assert columns.min() >= low[0] - 1
        assert rows.max() + 1 <= high[1] + 1
        assert columns.max() + 1 <= high[0] + 1


@settings(max_examples=50, deadline=None)
@given(scenes(thin=False), st.floats(0.3, 1.2), st.floats(-90, 90))
def test_mask_and_picture_agree(scene: Scene, factor: float, degrees: float) -> None:
    """Every colour of the picture tells its own place: after a warp it must be found where the map sends it."""
    middle = center(outline(scene.mask))
    placement = after(rotation(degrees, middle), scaling(factor, middle))
    pixels, alpha = placed_object(scene.image, scene.mask, placement, 256)
    assert np.array_equal(alpha, placed_mask(scene.mask, placement, 256))
    rows, columns = np.nonzero(alpha > 0.98)
    if not len(rows):
        return
    here = np.stack([(columns + 0.5) / 256, (rows + 0.5) / 256], axis=1)
    came_from = (here - placement[:, 2]) @ np.linalg.inv(placement[:, :2]).T
    side = len(scene.mask)
    expected = (came_from * side - 0.5) / side * 255
    assert np.abs(pixels[rows, columns, :2] - expected).max() < 3 + 2 * 255 / side


def test_shrinking_is_anti_aliased() -> None:
    fine = np.zeros((512, 512, 3), np.uint8)
    fine[:, ::2] = 255
    pixels, alpha = placed_object(fine, np.ones((512, 512), np.float32), scaling(0.4, np.array([0.5, 0.5])), 256)
    inside = pixels[alpha > 0.999]
    # Every second column is white: picking pixels would give 0 or 255, averaging their area gives grey.
    assert np.abs(inside.astype(int) - 127).max() < 40


def test_the_identity_is_the_plain_resized_picture() -> None:
    picture = striped(300)
    pixels, alpha = placed_object(picture, np.ones((300, 300), np.float32), shift(0, 0), 300)
    assert np.array_equal(pixels, picture)
    assert (alpha == 1).all()


@pytest.mark.parametrize(
    ("cut", "share"),
    [(np.s_[2:6, 2:6], 0.0), (np.s_[:, :], 1.0), (np.s_[:4, 2:6], 0.25), (np.s_[:, 2:6], 8 / 24)],
)
def test_border_contact_is_the_share_of_the_outline_on_the_border(cut: object, share: float) -> None:
    mask = np.zeros((8, 8), np.float32)
    mask[cut] = 1  # type: ignore[index]
    assert border_contact(mask) == pytest.approx(share)
