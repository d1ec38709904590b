"""A mask that is all white or inverted spoils no result: its pictures are invalid, and it lends no background."""

from dataclasses import replace

import numpy as np
import pytest

from unswayed.benchmark import Benchmark, BuildSettings, build
from unswayed.masks.checks import is_unusable
from unswayed.sources import open_source
from unswayed.sources.pictures import load_scene

BAD = {"cat": "inverted", "pig": "all white"}


def load_with_bad_masks(entry):
    scene = load_scene(entry)
    if BAD.get(entry.id) == "inverted":
        return replace(scene, mask=1 - scene.mask)
    if BAD.get(entry.id) == "all white":
        mask = np.ones_like(scene.mask)
        mask[:1, :20] = 0  # a little less than all: the picture could still be edited
        return replace(scene, mask=mask)
    return scene


@pytest.fixture
def source():
    sample = open_source("sample")
    wanted = [sample.entry(name) for name in ("cat", "pig", "dog", "bison", "sheep")]
    return replace(sample, entries=tuple(wanted), load=load_with_bad_masks)


def test_masks_that_are_all_white_or_inverted_are_unusable(source):
    assert {scene.id for scene in source if is_unusable(scene.mask)} == set(BAD)


@pytest.mark.parametrize("quality", ["report", "strict"])
def test_their_pictures_are_invalid_and_their_backgrounds_are_not_lent(tmp_path, source, quality):
    settings = BuildSettings(recipe="original,background-random", renderer="paste", quality=quality, runs=2)
    build(source, tmp_path / "bench", settings)
    rows = [row for row in Benchmark(tmp_path / "bench").manifest.to_pylist() if row["edit"] == "background-random"]
    of_bad = [row for row in rows if row["source_id"] in BAD]
    made = [row for row in rows if row["source_id"] not in BAD]
    if quality == "strict":
        assert all(row["status"] == "skipped" for row in of_bad)
    else:
        assert all(row["status"] == "skipped" or row["validity"] < 0.5 for row in of_bad)
    assert made and all(row["status"] == "ok" and row["validity"] >= 0.5 for row in made)
    assert not any(name in row["values"] for row in made for name in BAD)
