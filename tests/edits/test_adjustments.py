from __future__ import annotations

import cv2
import numpy as np
import pytest

from drawn_scenes import SAMPLE, sample_scene
from unswayed.edits import make_edit
from unswayed.edits.blur import blurred as blur
from unswayed.edits.color import recolored
from unswayed.edits.composition import Composition
from unswayed.edits.lighting import lit as lighting


def linear(values: np.ndarray) -> np.ndarray:
    share = values / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


ALL = np.ones((64, 64), np.float32)


def test_one_stop_doubles_linear_light() -> None:
    grey = np.full((64, 64, 3), 100, np.uint8)
    brighter, weight = lighting(grey, ALL, 1.0)
    assert linear(brighter).mean() / linear(grey).mean() == pytest.approx(2, rel=0.02)
    assert weight is ALL
    assert np.abs(lighting(brighter, ALL, -1.0)[0].astype(int) - grey).max() <= 1
    assert lighting(grey, ALL, 5.0)[0].max() == 255


def test_turning_the_hue_keeps_lightness_and_greys() -> None:
    picture = sample_scene("koala").image
    turned, _ = recolored(picture, ALL, 120.0, 0.7)
    before, after = (cv2.cvtColor(p.astype(np.float32) / 255, cv2.COLOR_RGB2Lab) for p in (picture, turned))
    muted = np.hypot(before[..., 1], before[..., 2]) < 30
    assert np.abs(before[..., 0] - after[..., 0])[muted].mean() < 1
    assert recolored(picture, ALL, 0.0, 0.0)[0].std(axis=2).max() < 2
    grey = np.full((8, 8, 3), 77, np.uint8)
    assert np.abs(recolored(grey, ALL[:8, :8], 90.0, 2.0)[0].astype(int) - 77).max() <= 1


def test_a_full_turn_of_the_hue_changes_nothing() -> None:
    picture = sample_scene("scarlet_macaw").image
    half, _ = recolored(picture, ALL, 0.0, 1.0)
    assert np.abs(half.astype(int) - picture).max() <= 1


def test_blur_spreads_a_point_over_a_disc_of_its_radius() -> None:
    point = np.zeros((64, 64, 3), np.uint8)
    point[32, 32] = 255
    spread = blur(point, ALL, 4.0)[0][..., 0]
    rows, columns = np.nonzero(spread)
    assert np.hypot(rows - 32, columns - 32).max() <= 4.5
    assert float(spread.sum()) == pytest.approx(255, rel=0.15)


def test_blur_mixes_only_the_layers_own_pixels() -> None:
    picture = np.zeros((64, 64, 3), np.uint8)
    picture[:, 32:] = 200
    weight = np.zeros((64, 64), np.float32)
    weight[:, 32:] = 1
    blurred, soft = blur(picture, weight, 6.0)
    assert (blurred[soft > 0.01] >= 199).all()
    assert soft[10, 31] == pytest.approx(0.5, abs=0.1)
    same, untouched = blur(picture, weight, 0.0)
    assert same is picture
    assert untouched is weight


@pytest.mark.parametrize("name", ["lighting", "blur"])
@pytest.mark.parametrize(("where", "layers"), [("object", (0, 1)), ("background", (1, 0)), ("both", (1, 1))])
def test_edits_reach_the_layer_that_they_name(name: str, where: str, layers: tuple[int, int]) -> None:
    composition = make_edit(name, where=where).apply(
        Composition.of(sample_scene("dog")), np.random.default_rng(0), SAMPLE
    )
    assert (len(composition.adjustments), len(composition.object_adjustments)) == layers
    assert composition.start == 0
    assert composition.needs_network is None


def test_blur_is_in_pixels_of_a_256_pixel_picture() -> None:
    from dataclasses import replace

    scene = Composition.of(sample_scene("dog"))
    double = make_edit("blur", pixels=3).apply(scene, np.random.default_rng(0), replace(SAMPLE, size=512))
    assert dict(double.adjustments[0].parameters) == {"pixels": 6.0}
