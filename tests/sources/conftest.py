"""Small real picture files for the tests of sources."""

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def photograph(tmp_path):
    """A function that writes a photograph of random pixels: `photograph("dog/1.jpg")`; the array that it holds."""

    def write(name, size=(40, 30), folder=tmp_path):
        wide, high = size
        seed = sum(map(ord, name))
        pixels = np.random.default_rng(seed).integers(0, 256, (high, wide, 3), np.uint8)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / name)
        return np.asarray(Image.open(folder / name).convert("RGB"))

    return write


@pytest.fixture
def mask_file(tmp_path):
    """A function that writes a mask, white in the box (left, top, right, bottom); the array that it holds."""

    def write(name, size=(40, 30), box=(10, 5, 30, 25), folder=tmp_path):
        wide, high = size
        levels = np.zeros((high, wide), np.uint8)
        left, top, right, bottom = box
        levels[top:bottom, left:right] = 255
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(levels).save(folder / name)
        return levels / 255

    return write
