from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sample_scenes import SAMPLE, sample_scene
from unswayed.edits.background import stripes
from unswayed.edits.composition import Composition, Drawing, Original, Picture, WithoutObject
from unswayed.edits.geometry import resized
from unswayed.errors import BadPicture
from unswayed.rendering.layers import Backgrounds
from unswayed.rendering.removal import open_removal


class Counting:
    """A real removal that remembers how often it was asked."""

    name = "counting"

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.labels: list[int | None] = []
        self.removal = open_removal("patches")

    def __call__(self, image: np.ndarray, mask: np.ndarray, seed: int, label: int | None) -> np.ndarray:
        self.calls.append(seed)
        self.labels.append(label)
        return self.removal(image, mask, seed, label)


DOG = Composition.of(sample_scene("dog"))
CAT = Composition.of(sample_scene("cat"))


def test_the_original_is_the_framed_photograph() -> None:
    backgrounds = Backgrounds(SAMPLE, open_removal())
    assert np.array_equal(backgrounds.resolve(Original(), DOG), resized(DOG.image, 256))


def test_one_scene_is_removed_once_whoever_asks_and_in_any_order() -> None:
    remove, other = Counting(), Counting()
    first, second = Backgrounds(SAMPLE, remove), Backgrounds(SAMPLE, other)
    seen = [first.resolve(WithoutObject("dog"), one) for one in (DOG, CAT, DOG)]
    second.resolve(WithoutObject("cat"), DOG)
    again = second.resolve(WithoutObject("dog"), CAT)
    assert len(remove.calls) == 1
    assert all(np.array_equal(picture, again) for picture in seen)
    assert remove.calls[0] == other.calls[1] != other.calls[0]


def test_a_removal_is_told_the_class_of_the_scene_that_it_works_on() -> None:
    remove = Counting()
    backgrounds = Backgrounds(SAMPLE, remove)
    backgrounds.resolve(WithoutObject("dog"), DOG)
    backgrounds.resolve(WithoutObject("cat"), DOG)
    assert remove.labels == [DOG.label, CAT.label]


def test_a_folder_is_shared_and_says_nothing_of_another_removal(tmp_path: Path) -> None:
    first, second, third = Counting(), Counting(), Counting()
    third.name = "another"
    made = Backgrounds(SAMPLE, first, cache=tmp_path).resolve(WithoutObject("dog"), DOG)
    kept = Backgrounds(SAMPLE, second, cache=tmp_path).resolve(WithoutObject("dog"), CAT)
    assert np.array_equal(made, kept)
    assert second.calls == []
    Backgrounds(SAMPLE, third, cache=tmp_path).resolve(WithoutObject("dog"), DOG)
    assert len(third.calls) == 1
    assert len(list(tmp_path.glob("*.png"))) == 2


def test_a_damaged_cache_file_is_made_again(tmp_path: Path) -> None:
    made = Backgrounds(SAMPLE, Counting(), cache=tmp_path).resolve(WithoutObject("dog"), DOG)
    (file,) = tmp_path.glob("*.png")
    file.write_bytes(b"not a picture")
    assert np.array_equal(Backgrounds(SAMPLE, Counting(), cache=tmp_path).resolve(WithoutObject("dog"), DOG), made)


def test_only_so_many_pictures_stay_in_memory() -> None:
    remove = Counting()
    backgrounds = Backgrounds(SAMPLE, remove, held=2)
    for scene_id in ("dog", "cat", "cow", "dog"):
        backgrounds.resolve(WithoutObject(scene_id), DOG)
    assert len(remove.calls) == 4
    backgrounds.resolve(WithoutObject("cow"), DOG)
    assert len(remove.calls) == 4


def test_a_picture_is_cropped_to_its_central_square(tmp_path: Path) -> None:
    wide = np.zeros((100, 300, 3), np.uint8)
    wide[:, 100:200] = (10, 200, 30)
    file = tmp_path / "wide.png"
    Image.fromarray(wide).save(file)
    picture = Backgrounds(SAMPLE, open_removal(), size=64).resolve(Picture(str(file)), DOG)
    assert picture.shape == (64, 64, 3)
    assert (picture == (10, 200, 30)).all()


def test_a_file_that_is_no_picture_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "note.png"
    file.write_text("hello")
    with pytest.raises(BadPicture):
        Backgrounds(SAMPLE, open_removal()).resolve(Picture(str(file)), DOG)


def test_a_texture_is_drawn_at_the_output_size() -> None:
    picture = Backgrounds(SAMPLE, open_removal(), size=128).resolve(Drawing(stripes, 3), DOG)
    assert np.array_equal(picture, stripes(128, np.random.default_rng(3)))
