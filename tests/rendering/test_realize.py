from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sample_scenes import SAMPLE, SAMPLE_IDS, sample_scene
from unswayed.edits.background import checker
from unswayed.edits.composition import Composition, Drawing, Impossible
from unswayed.edits.geometry import resized
from unswayed.edits.layers import own_colors, realize
from unswayed.edits.recipes import open_recipe
from unswayed.rendering.layers import Backgrounds, Layers
from unswayed.rendering.removal import open_removal
from unswayed.scene import Scene

BACKGROUNDS = Backgrounds(SAMPLE, open_removal())


def layers_of(spec: str, scene_id: str = "pig", seed: int = 0) -> Layers:
    """The layers of a recipe's last item."""
    item = open_recipe(spec).items[-1]
    composition = item.compose(sample_scene(scene_id), np.random.default_rng(seed), SAMPLE)
    return realize(composition, BACKGROUNDS, seed)


def test_the_original_is_the_photograph_in_every_layer() -> None:
    layers = layers_of("original")
    photograph = resized(sample_scene("pig").image, 256)
    assert np.array_equal(layers.object, photograph)
    assert np.array_equal(layers.background, photograph)
    assert layers.start == 0
    assert layers.mask is layers.alpha


@pytest.mark.parametrize("name", [item.name for item in open_recipe("imagenet-e").items])
def test_achieved_rates_are_the_promised_ones(name: str) -> None:
    item = next(item for item in open_recipe("imagenet-e").items if item.name == name)
    made = 0
    for position, scene_id in enumerate(SAMPLE_IDS):
        try:
            composition = item.compose(sample_scene(scene_id), np.random.default_rng(position), SAMPLE)
        except Impossible:
            continue
        layers = realize(composition, BACKGROUNDS, seed=position)
        made += 1
        assert layers.seed == position
        assert layers.label == sample_scene(scene_id).label
        assert layers.object.shape == layers.background.shape == (256, 256, 3)
        assert layers.alpha.shape == (256, 256)
        assert layers.alpha.dtype == np.float32
        assert 0 <= layers.alpha.min() <= layers.alpha.max() <= 1
        promised = composition.requested.get("pixel_rate")
        if promised is not None:
            assert abs(float((layers.mask > 0.5).mean()) - promised) <= 0.002
    # Turning needs room: an object as wide as the frame is refused, and so it is for some of the sample.
    assert made == 20 or (name == "direction" and made >= 8)


def test_object_pixels_are_the_photographs_own_where_it_stays() -> None:
    layers = layers_of("reinsertion")
    photograph = resized(sample_scene("pig").image, 256)
    solid = layers.alpha == 1
    assert solid.sum() > 3000
    assert np.array_equal(layers.object[solid], photograph[solid])
    assert not np.array_equal(layers.background[solid], photograph[solid])


def test_the_rim_loses_the_old_background() -> None:
    """A red disc before green, moved onto another ground: no pixel of it may be greenish."""
    y, x = np.mgrid[:400, :400] - 200
    mask = (np.hypot(x, y) < 110).astype(np.float32)
    image = np.where(mask[..., None] > 0.5, (200, 40, 40), (20, 220, 20)).astype(np.uint8)
    scene = Scene("disc", image, mask, 0)
    composition = open_recipe("size=0.1").items[-1].compose(scene, np.random.default_rng(0), SAMPLE)
    layers = realize(replace(composition, background=Drawing(checker, 0)), BACKGROUNDS, 0)
    rim = (layers.alpha > 0.05) & (layers.alpha < 0.95)
    assert rim.sum() > 50
    assert layers.object[rim][:, 1].max() < 75
    assert layers.object[rim][:, 0].min() > 180


def test_cleaning_the_rim_leaves_solid_pixels_and_thin_objects_alone() -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (64, 64, 3)).astype(np.uint8)
    alpha = np.zeros((64, 64), np.float32)
    alpha[20:40, 20:40] = 1
    assert own_colors(pixels, alpha) is pixels
    alpha[40, 20:40] = 0.4
    assert np.array_equal(own_colors(pixels, alpha)[alpha == 1], pixels[alpha == 1])
    thin = np.zeros((64, 64), np.float32)
    thin[30] = 0.6
    assert np.isfinite(own_colors(np.full_like(pixels, 90), thin)).all()
    assert (own_colors(np.full_like(pixels, 90), thin) == 90).all()


def test_a_cover_hides_the_object_and_is_not_part_of_its_mask() -> None:
    layers = layers_of("occlusion=0.4")
    hidden = (layers.alpha > 0.99) & (layers.mask < 0.01)
    whole = resized(sample_scene("pig").mask, 256)
    assert (layers.mask > 0.5).sum() / (whole > 0.5).sum() == pytest.approx(0.6, abs=0.02)
    assert hidden.sum() > 0.3 * (whole > 0.5).sum()
    photograph = resized(sample_scene("pig").image, 256).astype(int)
    assert np.abs(layers.object[hidden] - photograph[hidden]).mean() > 10


def test_a_defocused_background_keeps_the_object_sharp_and_unmixed() -> None:
    mask = np.zeros((256, 256), np.float32)
    mask[96:160, 96:160] = 1
    image = np.where(mask[..., None] > 0.5, (255, 0, 0), (0, 0, 255)).astype(np.uint8)
    scene = Composition.of(Scene("square", image, mask, 0))
    item = open_recipe("blur(where=background)=8").items[-1]
    layers = realize(item.chain[0].apply(scene, np.random.default_rng(0), SAMPLE), BACKGROUNDS, 0)
    assert np.array_equal(layers.object[mask == 1], image[mask == 1])
    assert (layers.background[mask == 0] == (0, 0, 255)).all()


def test_a_blurred_object_shows_the_ground_through_its_rim_not_itself() -> None:
    mask = np.zeros((256, 256), np.float32)
    mask[96:160, 96:160] = 1
    image = np.where(mask[..., None] > 0.5, (255, 0, 0), (0, 0, 255)).astype(np.uint8)
    scene = Composition.of(Scene("square", image, mask, 0))
    item = open_recipe("blur(where=object)=4").items[-1]
    layers = realize(item.chain[0].apply(scene, np.random.default_rng(0), SAMPLE), BACKGROUNDS, 0)
    assert (layers.background == (0, 0, 255)).all()
    assert 0.3 < layers.alpha[128, 97] < 0.9
    assert (layers.object[layers.alpha > 0.05] == (255, 0, 0)).all()


def test_light_on_one_layer_leaves_the_other() -> None:
    plain, lit = layers_of("original"), layers_of("lighting(where=object)=-2")
    assert np.array_equal(plain.background, lit.background)
    assert lit.object.mean() < 0.7 * plain.object.mean()
    dark = layers_of("lighting(where=background)=-2")
    assert np.array_equal(plain.object, dark.object)
    assert dark.background.mean() < 0.7 * plain.background.mean()


def test_another_output_size() -> None:
    small = Backgrounds(replace(SAMPLE, size=128), open_removal(), size=128)
    item = open_recipe("size=0.1").items[-1]
    composition = item.compose(sample_scene("pig"), np.random.default_rng(0), small.pool)
    layers = realize(composition, small, 0)
    assert layers.object.shape == layers.background.shape == (128, 128, 3)
    assert abs(float((layers.mask > 0.5).mean()) - 0.1) <= 0.002
