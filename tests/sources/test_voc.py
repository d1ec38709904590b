"""PASCAL VOC in torchvision's layout: the object of a number is the scene's object."""

import io
import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from unswayed.errors import BadPicture, UserError
from unswayed.sources import open_source

OBJECT = "<object><name>{}</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox></object>"


@pytest.fixture
def voc(tmp_path, photograph):
    """A small VOC2012: a picture with a dog (1) and a larger sofa (2), one with a cat, one without an annotation."""
    root = tmp_path / "VOCdevkit" / "VOC2012"
    for folder in ("Annotations", "SegmentationObject", "ImageSets/Segmentation"):
        (root / folder).mkdir(parents=True)
    objects = {
        "2007_000001": [("dog", 2, 2, 10, 10), ("sofa", 12, 5, 38, 28)],
        "2007_000002": [("cat", 5, 5, 25, 25)],
        "2007_000003": [],
    }
    palette = list(np.random.default_rng(0).integers(0, 256, 768))
    for name, found in objects.items():
        photograph(f"JPEGImages/{name}.jpg", folder=root)
        numbers = np.zeros((30, 40), np.uint8)
        for number, (_, left, top, right, bottom) in enumerate(found, 1):
            numbers[top - 1 : bottom + 1, left - 1 : right + 1] = 255
            numbers[top:bottom, left:right] = number
        picture = Image.fromarray(numbers, "P")
        picture.putpalette(palette)
        picture.save(root / "SegmentationObject" / f"{name}.png")
        if found:
            text = "".join(OBJECT.format(*one) for one in found)
            (root / "Annotations" / f"{name}.xml").write_text(f"<annotation>{text}</annotation>")
    (root / "ImageSets/Segmentation/val.txt").write_text("\n".join(objects) + "\n")
    return root


def test_the_largest_object_of_each_picture(voc):
    source = open_source(f"voc:{voc.parents[1]}")
    assert source.ids == ("2007_000001", "2007_000002", "2007_000003")
    scene = source[0]
    assert source.labels.classes[scene.label] == "sofa"
    expected = np.zeros((30, 40))
    expected[5:28, 12:38] = 1
    assert (scene.mask == expected).all(), "neither the other object nor the void outline"


def test_every_object_is_a_scene_if_asked_for(voc):
    source = open_source(f"voc:{voc}?objects=all")
    assert source.ids[:3] == ("2007_000001-1", "2007_000001-2", "2007_000002-1")
    assert [source.labels.classes[source.label_of(place)] for place in range(3)] == ["dog", "sofa", "cat"]
    assert source[0].mask.sum() == 64


def test_a_bad_annotation_costs_its_own_scene_only(voc):
    source = open_source(f"voc:{voc}")
    with pytest.raises(BadPicture, match=r"its annotation .*2007_000003\.xml does not exist"):
        source[2]
    (voc / "Annotations" / "2007_000002.xml").write_text("<annotation>")
    with pytest.raises(BadPicture, match="cannot be read"):
        open_source(f"voc:{voc}")["2007_000002"]
    assert source[0].mask.any()


def test_a_number_that_the_mask_does_not_hold(voc):
    Image.fromarray(np.zeros((30, 40), np.uint8)).save(voc / "SegmentationObject" / "2007_000002.png")
    with pytest.raises(BadPicture, match="no pixel belongs to object 1"):
        open_source(f"voc:{voc}")["2007_000002"]


def test_hostile_files_cost_their_own_scene_only(voc):
    listing = voc / "ImageSets/Segmentation/val.txt"
    listing.write_text("\n".join(["2007_000001", "pipe", "folder", "encoding", "a" * 300, "2007_000002"]))
    os.mkfifo(voc / "Annotations/pipe.xml")
    (voc / "Annotations/folder.xml").mkdir()
    (voc / "Annotations/encoding.xml").write_text('<?xml version="1.0" encoding="martian"?><annotation/>')
    source = open_source(f"voc:{voc}")
    reasons = [r"pipe\.xml is no file", r"folder\.xml is a folder", "unknown encoding", "File name too long"]
    for place, reason in enumerate(reasons, 1):
        with pytest.raises(BadPicture, match=reason):
            source[place]
    assert source[0].mask.any()
    mask = voc / "SegmentationObject/2007_000002.png"
    mask.unlink()
    os.mkfifo(mask)
    with pytest.raises(BadPicture, match="a pipe or a device"):
        source[5]
    mask.unlink()
    mask.write_bytes(png_header(60_000, 60_000))
    with pytest.raises(BadPicture, match="the picture is too large"):
        source[5]
    Image.new("RGB", (40, 30)).save(mask)
    with pytest.raises(BadPicture, match="stored as colors"):
        source[5]


def test_a_list_that_is_no_text_is_refused(voc):
    (voc / "ImageSets/Segmentation/val.txt").write_bytes(b"2007_000001\n\xff\xfe")
    with pytest.raises(UserError, match=r"the list .*val\.txt cannot be read as text"):
        open_source(f"voc:{voc}")


def png_header(wide, high):
    """A PNG file of 90 bytes that says it is as large as this."""
    file = io.BytesIO()
    Image.new("L", (1, 1)).save(file, "PNG")
    data = bytearray(file.getvalue())
    data[16:24] = struct.pack(">II", wide, high)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return bytes(data)


def test_refusals_say_what_is_allowed(tmp_path, voc):
    with pytest.raises(UserError, match="has no published masks"):
        open_source(f"voc:{voc}?split=test")
    with pytest.raises(UserError, match=r"year=2010&download=yes"):
        open_source(f"voc:{tmp_path / 'elsewhere'}?year=2010")
    with pytest.raises(UserError, match=r"train\.txt does not exist"):
        open_source(f"voc:{voc}?split=train")
