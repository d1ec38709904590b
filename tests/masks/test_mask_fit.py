"""Masks are compared with their photographs: those of other photographs and turned ones are found."""

from collections import Counter

import cv2
import numpy as np
import pytest

from unswayed.masks.checks import FITS, TURNS, mask_fit
from unswayed.sources import open_source


@pytest.fixture(scope="module")
def scenes():
    """The sample's photographs and masks at 256 pixels, square, so that every mask has the size of every photograph."""
    small = [(cv2.resize(one.image, (256, 256)), cv2.resize(one.mask, (256, 256))) for one in open_source("sample")]
    return [(image, (mask > 0.5).astype(np.float32)) for image, mask in small]


def found(scenes, change):
    """How many of the changed masks fit, and how many would fit with each turn."""
    fits = [mask_fit(image, change(mask)) for image, mask in scenes]
    return Counter("fits" if fit is None or fit.deviations >= FITS else fit.turn for fit in fits)


def grown(by):
    disk = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * abs(by) + 1,) * 2)
    return lambda mask: (cv2.dilate if by > 0 else cv2.erode)(mask, disk)


@pytest.mark.parametrize("pixels", [-4, -2, 2, 4])
def test_masks_that_are_right_or_a_little_too_small_or_large_fit(scenes, pixels):
    assert found(scenes, lambda mask: mask) == {"fits": 20}
    assert found(scenes, grown(pixels)) == {"fits": 20}


def test_rough_polygons_fit(scenes):
    def polygon(mask):
        outline = max(cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)[0], key=len)
        corners = outline[np.linspace(0, len(outline), 12, endpoint=False).astype(int)]
        return cv2.fillPoly(np.zeros_like(mask), [corners], 1)

    assert found(scenes, polygon)["fits"] >= 19


@pytest.mark.parametrize(
    ("turn", "back"),
    [
        (lambda mask: mask[:, ::-1], "mirrored"),
        (lambda mask: mask[::-1], "upside down"),
        (lambda mask: mask[::-1, ::-1], "turned by 180 degrees"),
        (lambda mask: mask.T, "transposed"),
        (lambda mask: np.rot90(mask), "turned right by 90 degrees"),
        (lambda mask: np.rot90(mask, -1), "turned left by 90 degrees"),
    ],
    ids=TURNS,
)
def test_a_turned_mask_is_found_with_the_turn_that_makes_it_fit(scenes, turn, back):
    assert found(scenes, lambda mask: np.ascontiguousarray(turn(mask)))[back] >= 16


def test_the_masks_of_other_photographs_and_shifted_ones_are_found(scenes):
    others = [(image, scenes[place - 1][1]) for place, (image, _) in enumerate(scenes)]
    assert found(others, lambda mask: mask)["fits"] <= 8
    assert found(scenes, lambda mask: np.roll(mask, 30, 1))["fits"] <= 4


def test_boxes_plain_photographs_and_small_objects_are_not_judged(scenes):
    image = scenes[0][0]
    box, dot = np.zeros((2, 256, 256), np.float32)
    box[40:90, 60:120] = 1
    dot[100:106, 100:106] = 1
    assert mask_fit(image, box) is None and mask_fit(image, dot) is None and mask_fit(image, 0 * box) is None
    assert mask_fit(np.full_like(image, 99), scenes[0][1]) is None
