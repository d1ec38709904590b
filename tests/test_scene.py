"""A scene refuses what is no scene; framing keeps the whole object, square and near the center."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import refused
from unswayed.choices import Frame
from unswayed.errors import BadPicture
from unswayed.scene import Scene, frame


@st.composite
def scenes(draw):
    """Scenes whose red and green say where a pixel came from, and whose object is a box with a hole and soft edges."""
    high, wide = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    top, left = draw(st.integers(0, high - 1)), draw(st.integers(0, wide - 1))
    bottom, right = draw(st.integers(top + 1, high)), draw(st.integers(left + 1, wide))
    return made(high, wide, top, bottom, left, right)


def made(high, wide, top, bottom, left, right):
    image = np.zeros((high, wide, 3), np.uint8)
    image[..., 0] = np.arange(high)[:, None]
    image[..., 1] = np.arange(wide)
    mask = np.zeros((high, wide), np.float32)
    mask[top:bottom, left:right] = 1
    mask[max(top - 1, 0), left:right] = max(0.4, mask[max(top - 1, 0), left])
    image[..., 2] = np.where(mask > 0.5, 255, 0)
    return Scene("made", image, mask, 3, ("note",), {"part": mask * 0.5})


@given(scenes())
@settings(max_examples=300, deadline=None)
def test_the_frame_is_square_and_holds_the_whole_object(scene):
    framed = frame(scene)
    high, wide = framed.mask.shape
    assert high == wide
    assert framed.image.shape == (high, wide, 3)
    assert framed.parts["part"].shape == (high, wide)
    assert (framed.mask > 0.5).sum() == (scene.mask > 0.5).sum()
    assert (framed.id, framed.label) == (scene.id, scene.label)


@given(scenes())
@settings(max_examples=300, deadline=None)
def test_mask_and_picture_stay_together_in_the_frame(scene):
    framed = frame(scene)
    inside = framed.mask > 0.5
    assert (framed.image[..., 2][inside] == 255).all()
    rows, columns = framed.image[..., 0][inside], framed.image[..., 1][inside]
    assert (scene.mask[rows, columns] == framed.mask[inside]).all()
    assert (framed.parts["part"] == framed.mask * 0.5).all()


@given(scenes())
@settings(max_examples=300, deadline=None)
def test_the_frame_is_the_largest_window_nearest_to_the_center(scene):
    high, wide = scene.mask.shape
    framed = frame(scene)
    side = len(framed.mask)
    rows, columns = np.nonzero(scene.mask > 0.5)
    along = columns if wide > high else rows
    extent = along.max() - along.min() + 1
    if high != wide and extent > min(high, wide):
        assert side == extent
        assert any("reflected" in note for note in framed.notes)
        return
    assert side == min(high, wide)
    assert framed.notes == scene.notes
    allowed = [
        offset for offset in range(max(high, wide) - side + 1) if offset <= along.min() and along.max() < offset + side
    ]
    offset = int(framed.image[0, 0, 1] if wide > high else framed.image[0, 0, 0])
    centered = (max(high, wide) - side) / 2
    assert offset in allowed
    assert abs(offset - centered) == min(abs(one - centered) for one in allowed)


def test_a_wide_object_is_padded_by_reflection_and_its_reflection_is_no_object():
    scene = made(10, 40, 0, 10, 5, 35)
    framed = frame(scene)
    assert framed.mask.shape == (30, 30)
    assert "framed with 20 reflected pixels" in framed.notes
    assert (framed.mask[:10] == 0).all()
    assert (framed.mask[20:] == 0).all()
    assert (framed.image[9] == framed.image[10]).all()


def test_the_reflection_holds_no_second_object_where_there_is_room_beside_the_first():
    framed = frame(made(20, 50, 8, 14, 5, 45))
    assert framed.mask.shape == (40, 40)
    assert ((framed.image[..., 2] == 255) == (framed.mask > 0.5)).all()
    assert framed.image[:, 0, 0].tolist() == [
        4,
        5,
        6,
        6,
        5,
        4,
        3,
        2,
        1,
        0,
        *range(20),
        19,
        18,
        17,
        16,
        15,
        14,
        14,
        15,
        16,
        17,
    ]


def test_a_square_photograph_is_left_as_it_is():
    scene = made(20, 20, 2, 5, 2, 5)
    assert all(frame(scene, how) is scene for how in get_args(Frame))


def test_the_central_square_may_cut_the_object_but_not_lose_it():
    cut = frame(made(10, 30, 2, 8, 8, 15), "center")
    assert cut.mask.shape == (10, 10)
    assert 0 < (cut.mask > 0.5).sum() < 42
    with pytest.raises(BadPicture, match="no part of the object is in the central square"):
        frame(made(10, 30, 2, 8, 0, 5), "center")


@pytest.mark.parametrize("side", [40, 333])
def test_squash_rounds_no_mask_above_one(side):
    scene = made(side, 2 * side - 10, 10, 30, 5, 38)
    assert frame(scene, "squash").mask.max() == 1


def test_squash_stretches_the_whole_photograph():
    scene = made(20, 40, 5, 15, 10, 30)
    squashed = frame(scene, "squash")
    assert squashed.mask.shape == squashed.parts["part"].shape == (20, 20)
    assert squashed.pixel_rate == pytest.approx(scene.pixel_rate, abs=0.03)


def test_an_unknown_framing_is_refused():
    with refused("did you mean 'center'", given="'centre'"):
        frame(made(10, 20, 1, 2, 1, 2), "centre")


def test_a_mask_of_another_size_is_refused_with_both_sizes():
    with pytest.raises(BadPicture, match="the mask is 4×3, its picture 8×6"):
        Scene("one", np.zeros((6, 8, 3), np.uint8), np.ones((3, 4), np.float32))


def test_an_empty_mask_is_refused():
    with pytest.raises(BadPicture, match="the mask is empty"):
        Scene("one", np.zeros((6, 8, 3), np.uint8), np.full((6, 8), 0.5, np.float32))


@pytest.mark.parametrize("image", [np.zeros((6, 8), np.uint8), np.zeros((6, 8, 4), np.uint8), np.zeros((6, 8, 3))])
def test_an_array_that_is_no_picture_is_refused(image):
    with pytest.raises(BadPicture, match="a picture is"):
        Scene("one", image, np.ones((6, 8), np.float32))


def test_pixel_rate_is_the_share_above_one_half():
    mask = np.zeros((10, 10), np.float32)
    mask[:2] = 0.6
    mask[5] = 0.4
    assert Scene("one", np.zeros((10, 10, 3), np.uint8), mask).pixel_rate == pytest.approx(0.2)
