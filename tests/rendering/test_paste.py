from __future__ import annotations

import numpy as np
import pytest

from sample_scenes import SAMPLE, sample_scene
from unswayed.edits.geometry import resized
from unswayed.edits.layers import realize
from unswayed.edits.recipes import open_recipe
from unswayed.rendering.layers import Backgrounds, Layers, Paste, Refusal, Rendering, composite, feathered
from unswayed.rendering.removal import open_removal

BACKGROUNDS = Backgrounds(SAMPLE, open_removal())


def batch(recipe: str, scene_id: str = "pig") -> dict[str, Layers]:
    items = open_recipe(recipe).items
    scene = sample_scene(scene_id)
    return {
        item.name: realize(item.compose(scene, np.random.default_rng(n), SAMPLE), BACKGROUNDS, n)
        for n, item in enumerate(items)
    }


def test_what_needs_a_network_is_refused_with_its_reason_and_the_rest_is_made() -> None:
    layers = batch("imagenet-e")
    answers = dict(zip(layers, Paste().render(list(layers.values())), strict=True))
    refused = {name for name, answer in answers.items() if isinstance(answer, Refusal)}
    assert refused == {"inversion", "background-simple", "background-complex", "background-adversarial"}
    for name in refused:
        answer = answers[name]
        assert isinstance(answer, Refusal)
        assert answer.status == "skipped"
        assert "diffusion network" in answer.reason
    for name in set(layers) - refused:
        answer = answers[name]
        assert isinstance(answer, Rendering)
        assert answer.image.shape == (256, 256, 3)
        assert answer.image.dtype == np.uint8


def test_the_original_comes_back_as_it_was() -> None:
    (answer,) = Paste().render([batch("original")["original"]])
    assert isinstance(answer, Rendering)
    assert np.array_equal(answer.image, resized(sample_scene("pig").image, 256))


def test_a_batch_gives_what_single_pictures_give() -> None:
    layers = list(batch("beyond").values())
    together = Paste().render(layers)
    alone = [Paste().render([one])[0] for one in layers]
    for first, second in zip(together, alone, strict=True):
        assert isinstance(first, Rendering)
        assert isinstance(second, Rendering)
        assert np.array_equal(first.image, second.image)


def test_without_a_feather_solid_pixels_are_the_objects_and_clear_ones_the_backgrounds() -> None:
    layers = batch("size=0.1")["size-0.1"]
    (answer,) = Paste(feather=0).render([layers])
    assert isinstance(answer, Rendering)
    assert np.array_equal(answer.image[layers.alpha == 1], layers.object[layers.alpha == 1])
    assert np.array_equal(answer.image[layers.alpha == 0], layers.background[layers.alpha == 0])


@pytest.mark.parametrize("feather", [1.0, 3.0, 8.0])
def test_a_feather_fades_inwards_over_its_width(feather: float) -> None:
    alpha = np.zeros((128, 128), np.float32)
    alpha[:, 64:] = 1
    soft = feathered(alpha, feather)[64]
    assert (soft[:64] == 0).all()
    assert (np.diff(soft[64:]) >= -1e-6).all()
    width = int((soft[64:] < 0.99).sum())
    assert 0.5 * feather <= width <= 1.5 * feather + 1
    assert feathered(alpha, 0) is alpha


def test_compositing_is_linear_in_alpha() -> None:
    front, back = np.full((4, 4, 3), 200, np.uint8), np.full((4, 4, 3), 100, np.uint8)
    assert (composite(front, np.full((4, 4), 0.25, np.float32), back) == 125).all()


def test_it_says_what_it_is() -> None:
    assert Paste(feather=2.0).describe() == {"renderer": "paste", "feather": 2.0, "device": "cpu"}
