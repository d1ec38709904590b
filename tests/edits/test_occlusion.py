from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawn_scenes import ALONE, SAMPLE, attempted, rate_of, sample_scene, scenes
from unswayed.edits import make_edit
from unswayed.edits.composition import Composition, Impossible, Pool
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


def test_what_hides_is_the_cut_out_object_of_another_scene() -> None:
    rng = np.random.default_rng(3)
    composition = make_edit("occlusion", share=0.3).apply(Composition.of(sample_scene("dog")), rng, SAMPLE)
    (cover,) = composition.covers
    assert composition.requested["from"] != "dog"
    other = sample_scene(composition.requested["from"])
    # Its colors are those of the other object, and not those of what lies around it there.
    own = other.image[other.mask > 0.9].astype(float)
    shown = cover.pixels[cover.alpha > 0.99].astype(float)
    assert np.abs(shown.mean(axis=0) - own.mean(axis=0)).max() < 25
    # It has an outline of its own, no square's: much of the box around it stays free.
    inside = cover.alpha > 0.5
    rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    assert inside.sum() < 0.85 * (rows[-1] + 1 - rows[0]) * (columns[-1] + 1 - columns[0])


def test_a_second_object_hides_a_share_of_what_is_left() -> None:
    rng = np.random.default_rng(0)
    composition = Composition.of(sample_scene("dog"))
    for _ in range(2):
        composition = make_edit("occlusion", share=0.5).apply(composition, rng, SAMPLE)
    assert composition.requested["pixel_rate"] / rate_of(sample_scene("dog").mask) == pytest.approx(0.25, abs=0.02)


def test_without_another_scene_it_is_impossible() -> None:
    with pytest.raises(Impossible, match="needs another scene"):
        make_edit("occlusion").apply(Composition.of(sample_scene("dog")), np.random.default_rng(0), ALONE)
