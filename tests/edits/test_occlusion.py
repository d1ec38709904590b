from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawn_scenes import ALONE, SAMPLE, attempted, rate_of, sample_scene, scenes
from unswayed.edits import make_edit
from unswayed.edits.composition import Composition, Impossible, Pool, Removed
from unswayed.edits.geometry import placed_mask
from unswayed.scene import Scene

OTHERS = Pool(("cat", "cow"), sample_scene)


@settings(max_examples=80, deadline=None)
@given(scenes(), st.floats(0.05, 0.95), st.integers(0, 2**32 - 1))
def test_the_share_that_is_hidden_is_the_share_asked_for(scene: Scene, share: float, seed: int) -> None:
    whole = placed_mask(scene.mask, Composition.of(scene).placement, 256)
    composition = attempted(make_edit("occlusion", share=share), scene, OTHERS, seed)
    if isinstance(composition, str):
        assert "pixels" in composition
        return
    (cover,) = composition.covers
    visible = whole * (1 - cover.alpha)
    slack = 2 / (whole > 0.5).sum() + 0.002
    assert rate_of(visible) / rate_of(whole) == pytest.approx(1 - share, abs=slack)
    assert composition.requested["pixel_rate"] == rate_of(visible)
    assert composition.start == 0


def test_the_patch_comes_from_another_scene() -> None:
    rng = np.random.default_rng(0)
    composition = make_edit("occlusion").apply(Composition.of(sample_scene("dog")), rng, SAMPLE)
    fill = composition.covers[0].fill
    assert isinstance(fill, Removed)
    assert fill.scene_id != "dog"


def test_a_second_patch_hides_a_share_of_what_is_left() -> None:
    rng = np.random.default_rng(0)
    composition = Composition.of(sample_scene("dog"))
    for _ in range(2):
        composition = make_edit("occlusion", share=0.5).apply(composition, rng, SAMPLE)
    assert composition.requested["pixel_rate"] / rate_of(sample_scene("dog").mask) == pytest.approx(0.25, abs=0.02)


def test_without_another_scene_it_is_impossible() -> None:
    with pytest.raises(Impossible, match="needs another scene"):
        make_edit("occlusion").apply(Composition.of(sample_scene("dog")), np.random.default_rng(0), ALONE)
