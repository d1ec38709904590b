"""Cut-outs over backgrounds: the object is whole, centered, of the size asked for, and its edges do not bleed."""

import numpy as np
import pytest
from PIL import Image

from command_line import refused
from unswayed.errors import BadPicture, UserError
from unswayed.sources import open_source


def cutout(path, alpha, color=(200, 30, 30), hidden=(0, 255, 0)):
    """A cut-out of one color; what lies under full transparency is of another."""
    pixels = np.empty((*alpha.shape, 4), np.uint8)
    pixels[..., :3] = np.where(alpha[..., None] > 0, color, hidden)
    pixels[..., 3] = alpha
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def disc():
    rows, columns = np.mgrid[:90, :120]
    return np.where((rows - 45) ** 2 + (columns - 60) ** 2 < 40**2, 255, 0).astype(np.uint8)


@pytest.fixture
def folder(tmp_path, disc):
    cutout(tmp_path / "tench/one.png", disc)
    cutout(tmp_path / "koala/two.png", disc[::2, ::2])
    (tmp_path / "backgrounds").mkdir()
    Image.new("RGB", (300, 200), (10, 10, 200)).save(tmp_path / "backgrounds/blue.png")
    return tmp_path


def test_the_object_lies_centered_over_its_background(folder):
    source = open_source(f"cutouts:{folder}?fill=0.5")
    assert source.ids == ("koala--two", "tench--one")
    for scene in source:
        assert scene.image.shape == (200, 300, 3)
        rows, columns = np.nonzero(scene.mask > 0.5)
        assert abs(np.ptp(rows) + 1 - 100) <= 3
        assert abs(np.ptp(columns) + 1 - 100) <= 3
        assert abs(rows.mean() - 99.5) < 1.5
        assert abs(columns.mean() - 149.5) < 1.5
        assert scene.notes == ("cut-out laid over blue.png",)
        assert (scene.image[scene.mask == 0] == (10, 10, 200)).all()
        assert (np.abs(scene.image[scene.mask == 1].astype(int) - (200, 30, 30)) <= 1).all()
    assert source.label_of("tench--one") == 0


def test_what_is_hidden_under_transparency_does_not_bleed_into_the_edge(folder):
    scene = open_source(f"cutouts:{folder}")["tench--one"]
    assert scene.image[..., 1].max() <= 31


def test_backgrounds_may_lie_elsewhere_and_do_not_depend_on_the_selection(folder, tmp_path_factory, photograph):
    backgrounds = tmp_path_factory.mktemp("behind")
    for number in range(8):
        photograph(f"{number}.png", folder=backgrounds)
    text = f"cutouts:{folder}?backgrounds={backgrounds}"
    every, one = open_source(text), open_source(text, classes="tench")
    assert every.ids == ("koala--two", "tench--one")
    assert one[0].notes == every["tench--one"].notes


def test_a_picture_without_alpha_or_without_an_object_is_one_bad_scene(folder, disc):
    Image.new("RGB", (9, 9)).save(folder / "tench/solid.png")
    cutout(folder / "tench/empty.png", disc * 0)
    source = open_source(f"cutouts:{folder}")
    with pytest.raises(BadPicture, match="no transparent parts"):
        source["tench--solid"]
    with pytest.raises(BadPicture, match="the cut-out is empty"):
        source["tench--empty"]
    assert source["tench--one"].label == 0


def test_missing_backgrounds_and_a_wrong_fill_are_refused(folder, tmp_path):
    with refused(given=r"the option fill is 'big'", allowed=r"0\.01 to 1"):
        open_source(f"cutouts:{folder}?fill=big")
    with pytest.raises(UserError, match="the option fill is '2'"):
        open_source(f"cutouts:{folder}?fill=2")
    (folder / "backgrounds/blue.png").unlink()
    with pytest.raises(UserError, match="holds no background pictures"):
        open_source(f"cutouts:{folder}")
    (folder / "backgrounds").rmdir()
    with pytest.raises(UserError, match="backgrounds does not exist"):
        open_source(f"cutouts:{folder}")
