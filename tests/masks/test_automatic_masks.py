"""A finished build records how many of its masks are automatic, how sure they are, and shows the worst."""

import json

import numpy as np
import pytest
from PIL import Image

from unswayed.benchmark import BuildSettings, build, verify
from unswayed.masks.make_masks import make_masks
from unswayed.sources import open_source

SETTINGS = BuildSettings(renderer="paste", size=64, recipe="original")


def masks_of(root):
    return json.loads((root / "benchmark.json").read_text())["masks"]


@pytest.fixture
def photographs(tmp_path):
    """Two photographs of the sample; the panda has its checked mask, the koala has none."""
    folder = tmp_path / "photos"
    (folder / "masks").mkdir(parents=True)
    for name in ("panda", "koala"):
        scene = open_source("sample")[name]
        Image.fromarray(scene.image).reduce(4).save(folder / f"{name}.jpg")
        if name == "panda":
            Image.fromarray((255 * scene.mask).astype("uint8")).reduce(4).save(folder / "masks/panda.png")
    return folder


def test_masks_made_while_building_are_counted_with_their_confidence(photographs, tmp_path):
    root, source = tmp_path / "bench", f"folder:{photographs}?segment=grabcut"
    built = build(source, root, SETTINGS)
    origins = {scene.id: scene.mask_origin for scene in open_source(source)}
    sure = {name: origin.confidence for name, origin in origins.items() if origin is not None}
    assert list(sure) == ["koala"] and 0 < sure["koala"] <= 1
    record = {"automatic": 1, "of": 2, "median_confidence": sure["koala"], "below_limit": int(sure["koala"] < 0.7)}
    assert masks_of(root) == record
    assert built.warnings[-1].startswith("1 of 2 masks were made automatically (grabcut, confidence 0.")
    with Image.open(root / "masks-worst.jpg") as sheet:
        assert sheet.format == "JPEG" and sheet.width == 200
    assert verify(root).passed
    card = (root / "benchmark.json").read_bytes()
    assert build(source, root, SETTINGS).made == 0
    assert (root / "benchmark.json").read_bytes() == card


def test_doubtful_masks_of_a_table_are_counted(photographs, tmp_path):
    (photographs / "koala.jpg").unlink()
    table = "picture,confidence,agreement,edge,size\npanda.jpg,0.5962,1,1,1\n"
    (photographs / "masks/confidence.csv").write_text(table)
    build(f"folder:{photographs}", tmp_path / "bench", SETTINGS)
    assert masks_of(tmp_path / "bench") == {"automatic": 1, "of": 1, "median_confidence": 0.5962, "below_limit": 1}


def test_checked_masks_give_no_sheet_and_photographs_without_a_mask_are_not_counted(photographs, tmp_path):
    built = build(f"folder:{photographs}", tmp_path / "bench", SETTINGS)
    assert list(built.failures) == ["koala"]
    assert masks_of(tmp_path / "bench") == {"automatic": 0, "of": 1, "median_confidence": None, "below_limit": 0}
    assert not (tmp_path / "bench/masks-worst.jpg").exists()


def test_a_blank_wall_gets_no_mask(tmp_path):
    rng = np.random.default_rng(0)
    for name, picture in {"blank": np.full((90, 120, 3), 200), "noise": rng.integers(0, 256, (90, 120, 3))}.items():
        (tmp_path / "wall").mkdir(exist_ok=True)
        Image.fromarray(picture.astype("uint8")).save(tmp_path / f"wall/{name}.png")
    built = build(f"folder:{tmp_path / 'wall'}?segment=grabcut", tmp_path / "bench", SETTINGS)
    assert "grabcut found no object" in built.failures["blank"]
    (made,) = make_masks(tmp_path / "wall/blank.png", tmp_path / "masks")
    assert made.status == "failed" and "found no object" in made.reason
