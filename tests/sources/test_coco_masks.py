"""COCO's ways to write a mask, against values of the reference implementation (pycocotools 2.0.11)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unswayed.sources.coco import annotated_mask, polygon_mask, run_length_mask

# What pycocotools writes for an ellipse of half axes 130 and 90 around (210, 140) in a picture of 400 by 300.
ELLIPSE = (
    "]kg0g0a88H8I6K4K6K4L4M2M4L4M2M4M2N2M4M2N2N2N2M4M2N2N2N2O0O2N2N2N2N2N2O0O2N2N2O0O2N2O0O2N2O0O2N2O0O2O"
    "0O2O0O2O0O2N2O000O2O0O2O0O2O0O2O000O2O0O2O000O2O000O2O000O2O000O2O00000O2O00000O2O00000O2O0000000O2O"
    "000000000O2O0000000000000O2O000000000000000000000000000000000000000000000000000000000000000000000000"
    "0001N100000000000001N10000000001N100000001N1000001N1000001N1000001N10001N10001N10001N10001N101N10001"
    "N101N101N101N10001N2N101N101N101N101N2N101N2N101N2N101N2N2N101N2N2N2N2N2N101N2N2N2N3L3N2N2N2N3L3N2N3"
    "L3N3L4L3N3L4L5J5L5J7H8Hc^a0"
)


def runs(mask):
    """Run lengths down the columns, background first."""
    flat = mask.T.ravel()
    edges = np.flatnonzero(np.diff(flat)) + 1
    lengths = np.diff([0, *edges, flat.size]).tolist()
    return [0, *lengths] if flat[0] else lengths


def compressed(counts):
    """COCO's compressed string, written from its description."""
    text = ""
    for position, count in enumerate(counts):
        value = count - counts[position - 2] if position > 2 else count
        while True:
            bits, value = value & 31, value >> 5
            done = value == (-1 if bits & 16 else 0)
            text += chr(48 + (bits if done else bits | 32))
            if done:
                break
    return text


def test_the_references_string_is_the_ellipse_it_was_made_of():
    rows, columns = np.mgrid[:300, :400]
    ellipse = ((rows - 140) / 90) ** 2 + ((columns - 210) / 130) ** 2 < 1
    assert (annotated_mask({"counts": ELLIPSE, "size": [300, 400]}, 300, 400) == ellipse).all()


def test_the_references_string_of_a_small_mask():
    mask = np.zeros((9, 13))
    mask[2:7, 3:11] = 1
    mask[4, 5:8] = 0
    mask[8, 12] = 1
    assert (annotated_mask({"counts": b"m05400MM030M030M0330000?L", "size": [9, 13]}, 9, 13) == mask).all()


@given(arrays(np.uint8, st.tuples(st.integers(1, 40), st.integers(1, 40)), elements=st.integers(0, 1)))
def test_every_mask_comes_back_from_both_kinds_of_run_lengths(mask):
    counts = runs(mask)
    size = list(mask.shape)
    assert (annotated_mask({"counts": counts, "size": size}, *size) == mask).all()
    assert (annotated_mask({"counts": compressed(counts), "size": size}, *size) == mask).all()


def test_a_polygon_covers_its_area():
    polygon = [10.5, 20.25, 60.0, 15.0, 75.5, 50.0, 40.0, 80.0, 12.0, 60.0]
    mask = polygon_mask([polygon], 100, 120)
    assert mask.sum() == pytest.approx(2951.5, rel=0.005)
    assert (mask[30:50, 25:55] == 1).all()
    assert (mask[:14] == 0).all()
    assert mask.dtype == np.float32


def test_polygons_are_joined_and_overlaps_stay():
    first, second = [2, 2, 22, 2, 22, 22, 2, 22], [12, 12, 32, 12, 32, 32, 12, 32]
    mask = polygon_mask([first, second], 40, 40)
    assert mask.sum() == pytest.approx(700, rel=0.01)
    assert mask[17, 17] == 1


def test_a_polygon_is_where_its_coordinates_say():
    mask = polygon_mask([[10, 5, 30, 5, 30, 20, 10, 20]], 25, 50)
    rows, columns = np.nonzero(mask > 0.5)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (5, 19, 10, 29)


@pytest.mark.parametrize(
    ("segmentation", "reason"),
    [
        ([], "no polygon of three points"),
        ([[1, 2, 3, 4]], "no polygon of three points"),
        ({"counts": [3, 4], "size": [3, 3]}, "cover 7 pixels, the picture has 9"),
        ({"counts": [12, -3], "size": [3, 3]}, "cover 9 pixels"),
        ({"counts": [9], "size": [9, 1]}, "are for"),
        ({"counts": "o", "size": [3, 3]}, "Invalid RLE"),
        ({"counts": "\x01", "size": [3, 3]}, "Invalid RLE"),
        ({"counts": "é", "size": [3, 3]}, "ascii"),
        ({"counts": "", "size": [3, 3]}, "do not cover exactly the 9 pixels"),
        ({"counts": "35", "size": [3, 3]}, "do not cover exactly the 9 pixels"),
        ({"counts": "o" * 50 + "0", "size": [3, 3]}, "Invalid RLE"),
        ({"counts": [2**62] * 3 + [2**62 + 9], "size": [3, 3]}, "run lengths cover 1844674407370955"),
        ({"counts": [2**32, 9], "size": [3, 3]}, "run lengths cover"),
        ([[0, 0, 1e12, 0, 1e12, 1e12]], "far outside the picture"),
        ([[0, 0, float("nan"), 0, 1, 1]], "not numbers"),
        ([[0, 0, float("inf"), 0, 1, 1]], "not numbers"),
        ({"rle": 1}, "neither polygons nor run lengths"),
        (None, "neither polygons nor run lengths"),
    ],
)
def test_what_makes_no_sense_is_refused(segmentation, reason):
    with pytest.raises(ValueError, match=reason):
        annotated_mask(segmentation, 3, 3)


def test_very_many_large_polygons_are_refused():
    square = [0, 0, 2000, 0, 2000, 2000, 0, 2000]
    with pytest.raises(ValueError, match="overlap each other"):
        annotated_mask([square] * 1000, 2000, 2000)


@pytest.mark.parametrize("rows", [5, 2000])
def test_a_polygon_that_crosses_itself_very_often_is_refused(rows):
    points = np.random.default_rng(0).uniform(0, (2000, rows), (100_000, 2))
    with pytest.raises(ValueError, match="cross themselves too often"):
        annotated_mask([points.ravel().tolist()], 2000, 2000)


def test_an_outline_of_very_many_points_is_drawn():
    angles = np.linspace(0, 2 * np.pi, 50_000)
    radius = 180 + 10 * np.sin(1000 * angles)
    outline = np.stack([200 + radius * np.cos(angles), 200 + radius * np.sin(angles)], 1)
    assert annotated_mask([outline.ravel().tolist()], 400, 400).sum() == pytest.approx(np.pi * 180**2, rel=0.01)


def test_a_polygon_partly_or_fully_outside_the_picture():
    inside, outside = [-10, 5, 10, 5, 10, 15, -10, 15], [25, 25, 35, 25, 35, 35]
    mask = polygon_mask([inside, outside], 20, 20)
    assert mask.sum() == pytest.approx(100, rel=0.02)
    assert (mask[7:13, :8] == 1).all()


def test_huge_run_lengths_for_a_whole_photograph_are_refused():
    counts = [2**62] * 3 + [2**62 + 640 * 480]  # as 64-bit numbers, these add up to the right total
    with pytest.raises(ValueError, match="run lengths cover"):
        annotated_mask({"counts": counts, "size": [480, 640]}, 480, 640)


def test_run_lengths_that_are_no_whole_numbers_are_refused():
    with pytest.raises(TypeError):
        annotated_mask({"counts": [4.5, 4.5], "size": [3, 3]}, 3, 3)


def test_an_empty_and_a_full_mask():
    assert run_length_mask([12], 3, 4).sum() == 0
    assert run_length_mask([0, 12], 3, 4).sum() == 12
