from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from drawn_scenes import ALONE, SAMPLE, SAMPLE_IDS, attempted, rate_of, sample_scene, scenes
from unswayed.edits import make_edit
from unswayed.edits.composition import Composition, Impossible, Picture, WithoutObject
from unswayed.edits.geometry import box, moved, outline, placed_mask
from unswayed.edits.size import tolerance
from unswayed.errors import UserError
from unswayed.scene import Scene

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("rate", [0.1, 0.08, 0.05])
@pytest.mark.parametrize("scene_id", SAMPLE_IDS)
def test_every_sample_scene_reaches_the_paper_s_rates(scene_id: str, rate: float) -> None:
    placed = make_edit("size", rate=rate).apply(Composition.of(sample_scene(scene_id)), RNG, SAMPLE)
    assert abs(rate_of(placed_mask(placed.mask, placed.placement, 256)) - rate) <= 0.002
    assert placed.requested == {"size": rate, "pixel_rate": rate}
    assert placed.background == WithoutObject(scene_id)
    assert placed.start == 0.25


@settings(max_examples=120, deadline=None)
@given(scenes(), st.floats(0.004, 0.6))
def test_rate_and_containment_hold_or_the_edit_says_why_not(scene: Scene, rate: float) -> None:
    placed = attempted(make_edit("size", rate=rate), scene, ALONE)
    if isinstance(placed, str):
        assert f"size {rate:g}" in placed
        return
    assert abs(rate_of(placed_mask(placed.mask, placed.placement, 256)) - rate) <= 0.002
    low, high = box(moved(outline(scene.mask), placed.placement))
    assert (low >= -1e-5).all()
    assert (high <= 1 + 1e-5).all()


@settings(max_examples=60, deadline=None)
@given(scenes(thin=False), st.floats(0.3, 0.95))
def test_shrinking_keeps_the_centre_and_the_shape(scene: Scene, share: float) -> None:
    rate = scene.pixel_rate * share**2
    assume(rate > 0.01)
    placed = make_edit("size", rate=rate).apply(Composition.of(scene), RNG, ALONE)
    before = box(outline(scene.mask))
    after = box(moved(outline(scene.mask), placed.placement))
    # Half a pixel at most, where no scale about the very center has the rate.
    assert np.abs(sum(before) - sum(after)).max() <= 1 / 256 + 1e-9
    ratio = (after[1] - after[0]) / (before[1] - before[0])
    assert ratio[0] == pytest.approx(ratio[1])
    assert ratio[0] == pytest.approx(share, abs=0.06)


@settings(max_examples=40, deadline=None)
@given(scenes())
def test_largest_touches_the_frame_and_stays_inside(scene: Scene) -> None:
    placed = make_edit("size", rate="largest").apply(Composition.of(scene), RNG, ALONE)
    low, high = box(moved(outline(scene.mask), placed.placement))
    assert (high - low).max() == pytest.approx(1)
    assert (low >= -1e-5).all()
    assert (high <= 1 + 1e-5).all()
    assert "pixel_rate" not in placed.requested


def test_a_rate_that_the_frame_cannot_hold_is_impossible() -> None:
    mask = np.zeros((200, 200), np.float32)
    mask[:, 90:110] = 1
    with pytest.raises(Impossible, match=r"size 0.5: the largest size that fits the frame is 0\.1"):
        make_edit("size", rate=0.5).apply(Composition.of(_scene(mask)), RNG, ALONE)


def test_a_line_too_thin_to_shrink_is_impossible() -> None:
    mask = np.zeros((600, 600), np.float32)
    mask[300, 50:550] = 1
    with pytest.raises(Impossible, match=r"size 0.05|nearest rate"):
        make_edit("size", rate=0.05).apply(Composition.of(_scene(mask)), RNG, ALONE)


@pytest.mark.parametrize("rate", [0.05, 0.08, 0.1, 0.15])
@pytest.mark.parametrize("size", [64, 128, 256])
@pytest.mark.parametrize("margin", [10, 40, 70])
def test_a_solid_square_has_every_rate(rate: float, size: int, margin: int) -> None:
    mask = np.zeros((256, 256), np.float32)
    mask[margin : 256 - margin, margin : 256 - margin] = 1
    placed = make_edit("size", rate=rate).apply(Composition.of(_scene(mask)), RNG, replace(ALONE, size=size))
    alpha = placed_mask(mask, placed.placement, size)
    assert abs(rate_of(alpha) - rate) <= tolerance(rate, size)
    low, high = box(moved(outline(mask), placed.placement))
    assert np.abs((low + high) / 2 - 0.5).max() <= 0.51 / size


def test_a_background_chosen_before_is_kept() -> None:
    composition = make_edit("background", kind="picture", picture="sky.png").apply(
        Composition.of(sample_scene("dog")), RNG, SAMPLE
    )
    assert make_edit("size", rate=0.05).apply(composition, RNG, SAMPLE).background == Picture("sky.png")


@pytest.mark.parametrize("rate", [0, 1.5, "tiny", float("nan"), None, True])
def test_a_rate_outside_its_range_names_what_is_allowed(rate: object) -> None:
    with pytest.raises(UserError, match=r"0\.001 to 1 of the picture, or largest, or full"):
        make_edit("size", rate=rate)


def _scene(mask: np.ndarray) -> Scene:
    return Scene("drawn", np.zeros((*mask.shape, 3), np.uint8), mask, 0)


def test_full_crops_the_photograph_around_its_object_and_renders_nothing() -> None:
    mask = np.zeros((200, 200), np.float32)
    mask[40:160, 60:100] = 1
    scene = _scene(mask)
    edit = make_edit("size", rate="full")
    made = edit.apply(Composition.of(scene), RNG, ALONE)
    assert (edit.needs, edit.compared_with, edit.blends_from) == ((), None, 0.0)
    assert made.requested["window"] == [60, 40, 100, 160]
    assert (made.start, made.image.shape) == (0.0, scene.image.shape)
    expected = cv2.resize(np.ascontiguousarray(scene.image[40:160, 60:100]), (200, 200))
    assert np.array_equal(made.image, expected)
    assert made.mask.min() == 1


@pytest.mark.parametrize(
    ("rows", "columns", "window"),
    [
        # A tall object far to the right: the released rule reaches further to the left than the box.
        ((0, 200), (150, 190), [136, 0, 190, 200]),
        # A wide one at the top, whose rule reaches further down.
        ((0, 40), (0, 200), [0, 0, 200, 56]),
    ],
)
def test_the_window_of_full_is_that_of_the_released_code(rows, columns, window) -> None:
    mask = np.zeros((200, 200), np.float32)
    mask[slice(*rows), slice(*columns)] = 1
    assert make_edit("size", rate="full").apply(Composition.of(_scene(mask)), RNG, ALONE).requested["window"] == window


def test_of_several_parts_full_shows_the_one_with_the_largest_box() -> None:
    mask = np.zeros((200, 200), np.float32)
    mask[10:20, 10:20] = mask[90:180, 100:180] = 1
    made = make_edit("size", rate="full").apply(Composition.of(_scene(mask)), RNG, ALONE)
    assert made.requested["window"] == [100, 90, 180, 180]


def test_after_the_crop_the_object_cannot_be_moved() -> None:
    mask = np.zeros((200, 200), np.float32)
    mask[50:150, 50:150] = 1
    made = make_edit("size", rate="full").apply(Composition.of(_scene(mask)), RNG, ALONE)
    with pytest.raises(Impossible, match="already cropped"):
        make_edit("size", rate=0.05).apply(made, RNG, ALONE)
    small = make_edit("size", rate=0.05).apply(Composition.of(_scene(mask)), RNG, ALONE)
    with pytest.raises(Impossible, match="must come before"):
        make_edit("size", rate="full").apply(small, RNG, ALONE)
