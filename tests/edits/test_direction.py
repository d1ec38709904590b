from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawn_scenes import ALONE, SAMPLE_IDS, attempted, rate_of, sample_scene, scenes
from unswayed.edits import make_edit
from unswayed.edits.composition import Composition, Impossible
from unswayed.edits.geometry import box, center, moved, outline, placed_mask
from unswayed.errors import UserError
from unswayed.scene import Scene


@settings(max_examples=100, deadline=None)
@given(scenes(), st.floats(-180, 180))
def test_turned_at_its_own_size_and_kept_whole(scene: Scene, degrees: float) -> None:
    placed = attempted(make_edit("direction", degrees=degrees), scene, ALONE)
    if isinstance(placed, str):
        assert "times as" in placed
        return
    linear = placed.placement[:, :2]
    assert np.linalg.det(linear) == pytest.approx(1)
    assert np.degrees(np.arctan2(linear[0, 1], linear[0, 0])) == pytest.approx(degrees, abs=1e-6)
    low, high = box(moved(outline(scene.mask), placed.placement))
    assert (low >= -1e-5).all()
    assert (high <= 1 + 1e-5).all()


@settings(max_examples=60, deadline=None)
@given(scenes(thin=False), st.floats(-45, 45))
def test_a_promised_rate_holds_after_turning(scene: Scene, degrees: float) -> None:
    rng = np.random.default_rng(0)
    try:
        sized = make_edit("size", rate=0.05).apply(Composition.of(scene), rng, ALONE)
        placed = make_edit("direction", degrees=degrees).apply(sized, rng, ALONE)
    except Impossible:
        return
    assert abs(rate_of(placed_mask(scene.mask, placed.placement, 256)) - 0.05) <= 0.002


def test_turning_is_counter_clockwise_about_the_objects_own_centre() -> None:
    mask = np.zeros((256, 256), np.float32)
    mask[100:110, 40:80] = 1
    scene = Scene("bar", np.zeros((256, 256, 3), np.uint8), mask, 0)
    placed = make_edit("direction", degrees=90).apply(Composition.of(scene), np.random.default_rng(0), ALONE)
    assert np.allclose(center(moved(outline(mask), placed.placement)), center(outline(mask)))
    right_end = moved(np.array([[80 / 256, 105 / 256]]), placed.placement)[0] * 256
    assert np.allclose(right_end, [60, 85])
    upright = placed_mask(mask, placed.placement, 256) > 0.5
    assert np.array_equal(np.argwhere(upright).min(axis=0), [85, 55])
    assert upright.sum() == 400


def test_an_object_as_wide_as_the_frame_cannot_turn() -> None:
    mask = np.zeros((100, 100), np.float32)
    mask[10:90] = 1
    scene = Scene("band", np.zeros((100, 100, 3), np.uint8), mask, 0)
    with pytest.raises(Impossible, match=r"direction 30.0: the object would be 1\.\d\d times as wide as the frame"):
        make_edit("direction", degrees=30).apply(Composition.of(scene), np.random.default_rng(0), ALONE)


def test_random_angles_lie_within_45_degrees() -> None:
    rng = np.random.default_rng(3)
    small = make_edit("size", rate=0.05).apply(Composition.of(sample_scene("pig")), rng, ALONE)
    angles = [make_edit("direction").apply(small, rng, ALONE).requested["direction"] for _ in range(100)]
    assert -45 <= min(angles) < -35
    assert 35 < max(angles) <= 45


@pytest.mark.parametrize("scene_id", SAMPLE_IDS)
def test_every_small_sample_object_can_be_turned(scene_id: str) -> None:
    rng = np.random.default_rng(4)
    small = make_edit("size", rate=0.05).apply(Composition.of(sample_scene(scene_id)), rng, ALONE)
    for degrees in (-45, -20, 20, 45):
        placed = make_edit("direction", degrees=degrees).apply(small, rng, ALONE)
        assert abs(rate_of(placed_mask(placed.mask, placed.placement, 256)) - 0.05) <= 0.002


def test_an_angle_outside_its_range_names_what_is_allowed() -> None:
    with pytest.raises(UserError, match="-180 to 180 degrees, or random"):
        make_edit("direction", degrees=200)


@settings(max_examples=60, deadline=None)
@given(scenes(), st.floats(-180, 180))
def test_fit_turns_every_object_at_its_own_size_or_the_largest_that_fits(scene: Scene, degrees: float) -> None:
    placed = attempted(make_edit("direction", degrees=degrees, size="fit"), scene, ALONE)
    assert not isinstance(placed, str)
    low, high = box(moved(outline(scene.mask), placed.placement))
    assert (low >= -1e-5).all() and (high <= 1 + 1e-5).all()
    factor = float(np.sqrt(np.linalg.det(placed.placement[:, :2])))
    assert factor == pytest.approx(1) or (high - low).max() == pytest.approx(1)
    own = attempted(make_edit("direction", degrees=degrees), scene, ALONE)
    if isinstance(own, str):
        assert "direction-fit turns it at a smaller size" in own and factor < 1
    else:
        assert np.allclose(placed.placement, own.placement, atol=1e-5)


def test_the_demo_turns_every_scene_and_direction_keeps_its_seeds() -> None:
    from unswayed.edits.recipes import named_item, named_recipe

    item = named_item("direction-fit")
    assert item is not None and item in named_recipe("demo").items
    for name in SAMPLE_IDS:
        item.compose(sample_scene(name), np.random.default_rng(7), ALONE)
    plain = named_item("direction")
    assert plain is not None and plain.parameters == {
        "chain": [{"edit": "direction", "degrees": "random", "start": 0.25}]
    }
