"""The embedded sample: whole, credited, and still known to a classifier once it is framed."""

import cv2
import numpy as np
import pytest

from unswayed.labels import imagenet
from unswayed.scene import frame
from unswayed.sources import open_source
from unswayed.sources.sample import credits


def test_every_photograph_has_a_mask_a_credit_and_a_free_license():
    source = open_source("sample")
    assert source.ids == tuple(one.id for one in credits())
    for scene, credit in zip(source, credits(), strict=True):
        assert scene.id == credit.id
        assert scene.label == credit.label
        assert 0.02 < scene.pixel_rate < 0.8
        assert credit.license in ("CC0-1.0", "Public Domain")
        assert credit.source.startswith("https://commons.wikimedia.org/")
        assert credit.author


def test_no_photograph_needs_reflected_borders_and_every_mask_is_in_one_piece_or_two():
    for scene in open_source("sample"):
        assert frame(scene).notes == (), scene.id
        _, _, parts, _ = cv2.connectedComponentsWithStats((scene.mask > 0.5).astype(np.uint8))
        large = [area for *_, area in parts[1:] if area > 0.002 * scene.mask.size]
        assert sum(large) > 0.99 * sum(area for *_, area in parts[1:]) and len(large) <= 3, scene.id


def test_labels_are_the_nearest_imagenet_class():
    assert all(imagenet().index(credit.nearest_class) == credit.label for credit in credits())
    assert open_source("sample").label_of("hedgehog") == imagenet().index("porcupine")


@pytest.fixture(scope="module")
def correct():
    """How many of the 20 sample originals at 256×256 EfficientNet-Lite0 gets right under each framing."""
    import torch

    from unswayed.edits.composition import Composition
    from unswayed.edits.geometry import placed_object
    from unswayed.models import open_model

    model = open_model("lite:0", device="cpu")

    def count(how):
        scenes = [frame(scene, how) for scene in open_source("sample")]
        plain = [Composition.of(scene) for scene in scenes]
        originals = [placed_object(one.image, one.mask, one.placement, 256)[0] for one in plain]
        answers = model.logits(torch.stack([model.prepare(picture) for picture in originals])).argmax(1)
        return sum(int(answer) == scene.label for answer, scene in zip(answers, scenes, strict=True))

    return {how: count(how) for how in ("object", "squash")}


def test_a_classifier_is_right_on_the_framed_originals(correct):
    assert correct["object"] >= 19, correct


def test_careful_framing_costs_less_than_squashing(correct):
    assert correct["object"] > correct["squash"], correct
