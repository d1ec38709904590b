from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from command_line import refused
from sample_scenes import SAMPLE_IDS, sample_scene
from unswayed.edits.composition import Impossible
from unswayed.edits.geometry import resized
from unswayed.errors import BadPicture, UserError
from unswayed.rendering.removal import REMOVALS, generous, hole_of, lendable, open_removal
from unswayed.rendering.removal.patches import fill_hole
from unswayed.scene import Scene


@pytest.mark.parametrize("scene_id", SAMPLE_IDS)
def test_nothing_outside_a_generous_hole_changes_and_the_object_is_gone(scene_id: str) -> None:
    scene = sample_scene(scene_id)
    image, mask = resized(scene.image, 256), resized(scene.mask, 256)
    hole = generous(mask)
    removed = open_removal("patches")(image, mask, 0)
    assert np.array_equal(removed[~hole], image[~hole])
    assert (hole | (mask <= 0.02)).all()
    # Gone: the colors in its place are the rest of the picture's (a jaguar's coat has the rocks' colors already).
    rest, inside = image[~hole].astype(float), mask > 0.9
    bins = [
        np.histogramdd(part, bins=6, range=[(0, 256)] * 3)[0].ravel() for part in (rest, image[inside], removed[inside])
    ]
    shares = [counts / counts.sum() for counts in bins]
    overlap = [np.minimum(shares[0], other).sum() for other in shares[1:]]
    assert overlap[1] > max(0.45, overlap[0] - 0.05)


def test_an_object_on_an_even_ground_vanishes_without_a_trace() -> None:
    image = np.full((256, 256, 3), (90, 140, 60), np.uint8)
    mask = np.zeros((256, 256), np.float32)
    mask[80:170, 60:200] = 1
    image[80:170, 60:200] = 250
    assert np.abs(open_removal()(image, mask, 0).astype(int) - (90, 140, 60)).max() <= 1


def test_ground_and_sky_continue_behind_the_object() -> None:
    image = np.zeros((256, 256, 3), np.uint8)
    image[:128], image[128:] = (120, 170, 240), (60, 120, 40)
    mask = np.zeros((256, 256), np.float32)
    cv2.circle(mask, (128, 128), 50, 1.0, -1)
    image[mask > 0.5] = (200, 30, 30)
    removed = open_removal()(image, mask, 0).astype(int)
    assert np.abs(removed[90:112, 110:146].mean(axis=(0, 1)) - (120, 170, 240)).max() < 12
    assert np.abs(removed[144:166, 110:146].mean(axis=(0, 1)) - (60, 120, 40)).max() < 12


def test_texture_continues_behind_the_object() -> None:
    rng = np.random.default_rng(0)
    image = rng.integers(40, 200, (256, 256, 3)).astype(np.uint8)
    mask = np.zeros((256, 256), np.float32)
    mask[90:160, 90:160] = 1
    inside = open_removal()(image, mask, 0)[100:150, 100:150]
    assert inside.std() == pytest.approx(image.std(), rel=0.3)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([64, 128, 200, 256]))
def test_any_hole_is_filled_the_same_each_time(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    image = cv2.resize(rng.integers(0, 256, (9, 9, 3)).astype(np.uint8), (size, size), interpolation=cv2.INTER_CUBIC)
    hole = cv2.resize(rng.random((5, 5)).astype(np.float32), (size, size)) > rng.uniform(0.1, 0.9)
    assume(not hole.all())
    first, second = fill_hole(image, hole, seed), fill_hole(image, hole, seed)
    assert np.array_equal(first, second)
    assert np.array_equal(first[~hole], image[~hole])


def test_a_hole_that_is_nothing_or_everything() -> None:
    image = np.full((256, 256, 3), 77, np.uint8)
    assert np.array_equal(fill_hole(image, np.zeros((256, 256), bool), 0), image)
    with pytest.raises(Impossible, match="the hole covers the whole picture"):
        fill_hole(image, np.ones((256, 256), bool), 0)


def bordered(margin: int) -> np.ndarray:
    """The mask of an object with that many pixels of background on every side."""
    mask = np.zeros((256, 256), np.float32)
    mask[margin : 256 - margin, margin : 256 - margin] = 1
    return mask


def test_an_object_is_removed_only_where_something_is_left_to_fill_its_place_from() -> None:
    image = np.full((256, 256, 3), (90, 140, 60), np.uint8)
    for margin in (0, 8):
        with pytest.raises(Impossible, match=r"cannot be removed: around it 0.0% of the picture is left"):
            open_removal()(image, bordered(margin), 0, None)
    assert np.abs(open_removal()(image, bordered(12), 0, None).astype(int) - (90, 140, 60)).max() <= 1
    corner = np.ones((256, 256), np.float32)
    corner[:40, :40] = 0  # most of which the generous hole leaves
    with pytest.raises(Impossible, match=r"1\.\d% of the picture is left, at least 2% is needed"):
        hole_of(corner)


def test_a_scene_without_a_background_lends_none() -> None:
    scenes = {
        margin: Scene(f"margin{margin}", np.zeros((256, 256, 3), np.uint8), bordered(margin)) for margin in (0, 12)
    }
    assert lendable(scenes[12], 256) is scenes[12]
    with pytest.raises(BadPicture, match="margin0: the object cannot be removed"):
        lendable(scenes[0], 256)


def test_generous_holes_reach_further_below_than_above() -> None:
    mask = np.zeros((256, 256), np.float32)
    mask[100:140, 100:140] = 1
    rows, columns = np.nonzero(generous(mask))
    assert 4 <= 100 - rows.min() < rows.max() - 139
    assert 100 - columns.min() == columns.max() - 139 >= 4


def test_pieces_that_the_mask_missed_go_with_the_object() -> None:
    mask = np.zeros((256, 256), np.float32)
    cv2.circle(mask, (128, 128), 60, 1.0, -1)
    mask[120:136, 120:136] = 0
    assert generous(mask)[128, 128]


def test_an_unknown_removal_names_those_that_there_are() -> None:
    assert set(REMOVALS) >= {"patches", "diffusion", "onnx"}
    with pytest.raises(UserError, match="did you mean 'patches'"):
        open_removal("patchs")
    with refused(given=r"the object removal is 'patches:foo'", allowed=r"patches, diffusion:"):
        open_removal("patches:foo")
