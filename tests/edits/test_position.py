from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from drawn_scenes import ALONE, sample_scene, scenes
from unswayed.edits import make_edit, parse_edit
from unswayed.edits.composition import Composition
from unswayed.edits.geometry import box, moved, outline, placed_mask
from unswayed.errors import UserError
from unswayed.scene import Scene

PIXEL = 1 / 256


@settings(max_examples=80, deadline=None)
@given(scenes(), st.floats(0, 1), st.floats(0, 1))
def test_the_object_lands_at_its_share_of_the_free_room(scene: Scene, x: float, y: float) -> None:
    placed = make_edit("position", x=x, y=y).apply(Composition.of(scene), np.random.default_rng(0), ALONE)
    low, high = box(moved(outline(scene.mask), placed.placement))
    assert (low >= -1e-5).all()
    assert (high <= 1 + 1e-5).all()
    assert np.abs(low - (1 - (high - low)) * (x, y)).max() <= PIXEL + 1e-5


@settings(max_examples=60, deadline=None)
@given(scenes(thin=False), st.integers(0, 2**32 - 1))
def test_moving_a_sized_object_leaves_every_pixel_of_its_mask(scene: Scene, seed: int) -> None:
    # Specks that lie far apart fill the frame before they have any size.
    assume(scene.pixel_rate >= 0.012)
    rng = np.random.default_rng(seed)
    sized = make_edit("size", rate=scene.pixel_rate / 3).apply(Composition.of(scene), rng, ALONE)
    placed = make_edit("position").apply(sized, rng, ALONE)
    before, after = (placed_mask(scene.mask, one.placement, 256) for one in (sized, placed))
    steps = np.round((placed.placement - sized.placement)[:, 2] * 256).astype(int)
    shifted = np.roll(before, (steps[1], steps[0]), axis=(0, 1))
    assert np.abs(shifted - after)[shifted > 0.5].max() < 2 / 255
    assert abs(int((before > 0.5).sum()) - int((after > 0.5).sum())) <= 2


def test_random_places_are_uniform_over_the_free_room() -> None:
    sized = make_edit("size", rate=0.05).apply(Composition.of(sample_scene("dog")), np.random.default_rng(0), ALONE)
    rng = np.random.default_rng(1)
    lows = []
    for _ in range(400):
        placed = make_edit("position").apply(sized, rng, ALONE)
        low, high = box(moved(outline(placed.mask), placed.placement))
        lows.append(low / (1 - (high - low)))
    places = np.array(lows)
    assert np.abs(places.mean(axis=0) - 0.5).max() < 0.06
    assert np.abs(np.percentile(places, [10, 90], axis=0) - [[0.1] * 2, [0.9] * 2]).max() < 0.06
    assert abs(np.corrcoef(places.T)[0, 1]) < 0.15


def test_the_same_generator_state_gives_the_same_place() -> None:
    scene = Composition.of(sample_scene("dog"))
    first, second = (make_edit("position").apply(scene, np.random.default_rng(5), ALONE) for _ in range(2))
    assert np.array_equal(first.placement, second.placement)
    assert first.requested["position"] == second.requested["position"]


def test_text_forms() -> None:
    assert parse_edit("position", "0.2,0.8") == parse_edit("position", "0.2/0.8")
    assert parse_edit("position", "random").x == "random"
    with pytest.raises(UserError, match="0 to 1, or random"):
        parse_edit("position", "0.2,3")
