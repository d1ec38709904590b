"""Measures of validity: each finds its own fault, stays quiet without it, and the score follows the worst of them."""

from __future__ import annotations

import numpy as np
import pytest

from unswayed.benchmark.quality import Evidence, judged
from unswayed.benchmark.rows import Row
from unswayed.benchmark.validity import (
    Limits,
    changed_share,
    crop_loss,
    fill_color,
    fill_grain,
    fill_texture,
    gained_noise,
    judge,
    noise_level,
    position_error,
    residue,
    seam,
    sharpness_change,
    straight_edge,
    unsupported_outline,
)
from unswayed.edits.composition import Guidance
from unswayed.edits.geometry import resized
from unswayed.rendering.layers import Layers, Rendering
from unswayed.rendering.removal import hole_of, open_removal
from unswayed.scene import frame
from unswayed.sources import open_source

EVERYWHERE = np.ones((256, 256), bool)


@pytest.fixture(scope="module")
def dog() -> tuple[np.ndarray, np.ndarray]:
    framed = frame(open_source("sample")["dog"], "object")
    return resized(framed.image, 256), resized(framed.mask, 256)


def test_the_score_is_one_without_faults_and_one_half_at_a_limit():
    assert judge({}).score == 1.0
    assert judge({"noise": 0.0, "seam": None}).score == 1.0
    at_limit = judge({"noise": Limits().noise})
    assert at_limit.score == 0.5
    assert at_limit.valid


def test_every_limit_has_words_for_its_reason():
    for name, limit in Limits().__dict__.items():
        verdict = judge({name: 3 * limit})
        assert verdict.score == 0.1
        assert not verdict.valid
        assert f"limit {limit:g}" in verdict.reasons[0]


def test_reasons_are_listed_worst_first():
    verdict = judge({"noise": 2 * Limits().noise, "seam": 5 * Limits().seam, "crop": 0.0})
    assert [reason.split()[1] for reason in verdict.reasons] == ["object's", "background"]


def test_one_changed_pixel_counts(dog):
    picture, mask = dog
    changed = picture.copy()
    changed[128, 128, 0] ^= 1
    assert changed_share(changed, picture, EVERYWHERE) == 1 / 256**2
    assert changed_share(changed, picture, np.zeros_like(EVERYWHERE)) is None


def test_position_error_is_the_distance_from_the_requested_shift():
    mask = np.zeros((256, 256), np.float32)
    mask[100:140, 90:150] = 1
    assert position_error(np.roll(mask, (0, 5), (0, 1)), mask, (5.0, 0.0)) == 0.0
    assert position_error(np.roll(mask, (0, 5), (0, 1)), mask, (2.0, 0.0)) == 3.0


def test_a_central_crop_loses_what_lies_at_the_border():
    mask = np.zeros((256, 256), np.float32)
    mask[:, :16] = 1
    assert crop_loss(mask) == 1.0
    assert crop_loss(np.roll(mask, 120, 1)) == pytest.approx(32 / 256)


def test_noise_is_estimated_and_only_gained_noise_is_a_fault(dog):
    picture, _ = dog
    flat = np.full_like(picture, 128)
    noisy = np.clip(np.rint(flat + np.random.default_rng(0).normal(0, 8, flat.shape)), 0, 255).astype(np.uint8)
    assert noise_level(noisy, EVERYWHERE) == pytest.approx(8, abs=0.8)
    assert gained_noise(flat, noisy, EVERYWHERE) == 0.0
    assert gained_noise(noisy, flat, EVERYWHERE) > 7


def test_a_pasted_rectangle_has_straight_edges_and_the_photograph_itself_none(dog):
    picture, mask = dog
    pasted = picture.copy()
    pasted[10:50, 10:50] = picture[10:50, 10:50].mean(axis=(0, 1)) + 80
    assert straight_edge(picture, picture, EVERYWHERE) == 0.0
    assert straight_edge(pasted, picture, EVERYWHERE) > Limits().edges
    outside = EVERYWHERE.copy()
    outside[:60, :60] = False
    assert straight_edge(pasted, picture, outside) == 0.0


def test_sharpness_changes_with_blur(dog):
    import cv2

    picture, _ = dog
    assert sharpness_change(picture, picture, EVERYWHERE) == 0.0
    assert sharpness_change(cv2.blur(picture, (9, 9)), picture, EVERYWHERE) > 0.5


def test_a_bright_halo_is_a_seam(dog):
    import cv2

    picture, mask = dog
    before = seam(picture, mask)
    inside = (mask > 0.5).astype(np.uint8)
    ring = cv2.dilate(inside, np.ones((3, 3))) != cv2.erode(inside, np.ones((3, 3)))
    halo = picture.copy()
    halo[ring] = (255, 0, 255)
    assert before is not None
    assert (seam(halo, mask) or 0) > before + Limits().seam
    assert seam(picture, np.zeros_like(mask)) is None


def test_a_removed_object_leaves_no_residue_and_a_ghost_does(dog):
    picture, mask = dog
    background = open_removal("patches")(picture, mask, 1, None)
    ghost = (background + 0.4 * mask[..., None] * (picture.astype(np.float32) - background)).astype(np.uint8)
    assert (residue(background, picture, mask) or 0) < Limits().residue
    assert (residue(ghost, picture, mask) or 0) > Limits().residue
    assert residue(background, picture, np.zeros_like(mask)) is None


def test_a_mask_cut_by_half_has_an_outline_without_an_edge(dog):
    picture, mask = dog
    half = mask.copy()
    half[: int(np.median(np.nonzero(mask > 0.5)[0]))] = 0
    assert unsupported_outline(picture, mask) < Limits().outline
    assert unsupported_outline(picture, half) > Limits().outline
    assert unsupported_outline(picture, np.zeros_like(mask)) == 0.0


def test_a_fill_of_a_foreign_color_or_texture_is_a_fault(dog):
    picture, mask = dog
    hole = mask > 0.5
    good = picture.copy()
    good[hole] = picture[~hole][np.random.default_rng(0).integers(0, (~hole).sum(), hole.sum())]
    colored, flat = picture.copy(), picture.copy()
    colored[hole] = (255, 0, 255)
    flat[hole] = np.median(picture[~hole], axis=0)
    assert fill_color(colored, hole) > Limits().fill_color > fill_color(flat, hole)
    assert fill_texture(flat, hole) > Limits().fill_texture > fill_texture(good, hole)
    assert fill_color(picture, np.zeros_like(hole)) is None
    assert not judge({"fill_color": fill_color(colored, hole)}).valid


@pytest.mark.parametrize(("scene", "caught"), [("panda", True), ("koala", True), ("sheep", False), ("dog", False)])
def test_patches_that_drew_combs_and_tunnels_are_a_fault(scene, caught):
    framed = frame(open_source("sample")[scene])
    picture, mask = resized(framed.image, 256), resized(framed.mask, 256)
    hole = hole_of(mask)
    measured = fill_grain(open_removal("patches")(picture, mask, 0, None), hole)
    assert judge({"fill_grain": measured}).valid is not caught
    assert fill_grain(picture, np.zeros_like(hole)) is None


@pytest.mark.parametrize(
    ("strength", "factor", "valid"), [(20, 1.5, True), (20, 0.7, False), (-20, 0.7, True), (-20, 1.5, False)]
)
def test_a_background_that_is_not_as_complex_as_asked_is_invalid(dog, strength, factor, valid):
    picture, mask = dog
    changed = np.clip((picture.astype(float) - picture.mean()) * factor / 2 + picture.mean(), 0, 255).astype(np.uint8)
    softened = np.clip((picture.astype(float) - picture.mean()) / 2 + picture.mean(), 0, 255).astype(np.uint8)
    layers = Layers(softened, mask, softened, 0.5, Guidance("complexity", strength), None, 0)
    evidence = Evidence(softened, mask, (np.zeros(2), np.ones(2)), 0.0, 0.0)
    row = judged(Row("dog", "background", seed=0), layers, Rendering(changed, generated=True), evidence)
    reached = row.validity_measures["complexity"]
    assert (reached < 1) == valid and any(
        "simpler or more complex" in reason for reason in row.validity_reasons
    ) != valid
