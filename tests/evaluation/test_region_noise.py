import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unswayed.errors import BadPicture, UserError
from unswayed.evaluation.noise import (
    LEVELS,
    Variant,
    ablate,
    add_noise,
    at_input,
    changed,
    draw_noise,
    object_regions,
    parse_levels,
    plan_variants,
)
from unswayed.scene import Scene

PUBLISHED = json.loads((Path(__file__).parent.parent / "data" / "rival10_measures.json").read_text())["noise"]


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("region", ["fg", "bg"])
def test_equals_the_published_noise(norm, region):
    expected_pictures = PUBLISHED[f"{norm}_{region}"]
    for x, noise, masks, expected in zip(
        PUBLISHED["x"], PUBLISHED["noise"], PUBLISHED["mask"], expected_pictures, strict=True
    ):
        mask = torch.tensor(masks[0])
        mask = mask if region == "fg" else 1 - mask
        level = torch.tensor([PUBLISHED[f"{norm}_eps"]], dtype=torch.double)
        made = add_noise(*(torch.tensor(v, dtype=torch.double) for v in (x, noise)), mask[None], norm, level)
        assert made[0].numpy() == pytest.approx(np.array(expected), abs=1e-9)


@pytest.mark.parametrize("region", ["fg", "bg"])
def test_equals_the_published_ablation(region):
    expected_pictures = PUBLISHED[f"ablate_{region}_gray"]
    for x, masks, expected in zip(PUBLISHED["x"], PUBLISHED["mask"], expected_pictures, strict=True):
        mask = torch.tensor(masks[0])
        mask = mask if region == "fg" else 1 - mask
        assert ablate(torch.tensor(x), mask[None])[0].numpy() == pytest.approx(np.array(expected))


def test_published_levels():
    assert LEVELS["linf"] == (30, 60, 90, 120, 150, 180, 210)
    assert LEVELS["l2"] == (25, 50, 75, 100, 125, 150, 175, 200)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.002, 0.998), st.sampled_from(["linf", "l2"]))
def test_statistics_on_masks_of_all_sizes(seed, share, norm):
    rng = np.random.default_rng(seed)
    mask = torch.from_numpy(rng.random((64, 64)) < share)
    mask[0, 0], mask[0, 1] = True, False
    noise = torch.from_numpy(draw_noise(f"picture {seed}", 64, 0))
    gray = torch.full((3, 64, 64), 0.5)
    level = 0.02 if norm == "linf" else 0.5
    change = (add_noise(gray, noise, mask[None], norm, torch.tensor([level]))[0] - gray)[:, mask]
    outside = (add_noise(gray, noise, mask[None], norm, torch.tensor([level]))[0] - gray)[:, ~mask]
    assert outside.abs().max() == 0
    if norm == "l2":
        assert change.norm().item() == pytest.approx(level, rel=1e-3)
    elif change.numel() > 1000:
        assert change.std().item() == pytest.approx(level, rel=0.12)
        assert abs(change.mean().item()) < 5 * level / change.numel() ** 0.5


def test_noise_is_clipped_to_the_range_of_pictures():
    noise = torch.from_numpy(draw_noise("a", 32, 0))
    made = add_noise(torch.rand(3, 32, 32), noise, torch.ones(1, 32, 32), "linf", torch.tensor([210 / 255]))
    assert made.min() == 0
    assert made.max() == 1


def test_noise_depends_on_picture_seed_and_size_alone():
    assert np.array_equal(draw_noise("dog", 32, 0), draw_noise("dog", 32, 0))
    for other in (("cat", 32, 0), ("dog", 32, 1)):
        assert not np.array_equal(draw_noise("dog", 32, 0), draw_noise(*other))
    big = draw_noise("dog", 224, 3)
    assert big.dtype == np.float32
    assert abs(big.mean()) < 0.01
    assert big.std() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(("mask", "reason"), [(np.zeros((8, 8)), "empty"), (np.ones((8, 8)), "whole picture")])
def test_empty_and_full_masks_are_refused_with_a_reason(mask, reason):
    with pytest.raises(BadPicture, match=f"dog: the mask .*{reason}"):
        object_regions(mask, "dog")


def test_a_region_without_a_pixel_takes_no_noise():
    with pytest.raises(BadPicture, match="empty"):
        add_noise(torch.rand(3, 4, 4), torch.rand(3, 4, 4), torch.zeros(1, 4, 4), "l2", torch.tensor([1.0]))


def test_an_object_that_vanishes_at_the_input_size_is_refused():
    mask = np.zeros((512, 512), np.float32)
    mask[0, 0] = 1
    with pytest.raises(BadPicture, match="model's input size"):
        at_input(Scene("speck", np.zeros((512, 512, 3), np.uint8), mask), 32)


def test_the_whole_framed_picture_reaches_the_model_with_its_regions():
    image = np.zeros((60, 60, 3), np.uint8)
    image[10:40, 20:50] = 255
    mask = (image[..., 0] > 0).astype(np.float32)
    ear, gone = np.zeros_like(mask), np.zeros_like(mask)
    ear[10:16, 20:26] = 1
    picture, masks = at_input(Scene("dog", image, mask, 0, parts={"ears": ear, "tail": gone}), 30)
    assert picture.shape == (30, 30, 3)
    assert list(masks) == ["foreground", "background", "everything", "ears"]
    assert masks["foreground"].sum() == 15 * 15
    assert masks["ears"].sum() == 9
    assert (masks["foreground"] ^ masks["background"]).all()


def test_variants_of_one_picture_share_their_noise_across_levels():
    picture = torch.full((3, 16, 16), 0.5)
    masks = {"foreground": torch.arange(256).view(16, 16) < 100}
    variants = [Variant("linf", level, "foreground") for level in (1.0, 2.0)]
    low, high = changed(picture, masks, lambda seed: torch.from_numpy(draw_noise("x", 16, seed)), variants) - picture
    assert (2 * low).numpy() == pytest.approx(high.numpy(), abs=1e-6)


def test_the_plan_counts_every_level_region_and_seed_once():
    variants = plan_variants(["foreground", "background", "everything"], LEVELS, 2, True)
    assert len(variants) == len(set(variants)) == 15 * 3 * 2 + 2
    assert {one.region for one in variants if one.norm == "grey"} == {"foreground", "background"}


@pytest.mark.parametrize("text", ["", "a,b", "0,30", "-5", "nan"])
def test_bad_levels_are_refused(text):
    with pytest.raises(UserError, match="published: 30,60"):
        parse_levels(text, "linf")


def test_levels_are_sorted_and_single():
    assert parse_levels("60, 30,60", "linf") == (30.0, 60.0)
    with pytest.raises(UserError, match="did you mean 'linf'"):
        add_noise(torch.rand(3, 4, 4), torch.rand(3, 4, 4), torch.ones(1, 4, 4), "linff", torch.tensor([1.0]))
