"""COCO annotation files: one scene an object or the largest of each picture."""

import json

import numpy as np
import pytest

from command_line import refused
from unswayed.errors import BadPicture, UserError
from unswayed.sources import open_source


def square(left, top, side):
    return [[left, top, left + side, top, left + side, top + side, left, top + side]]


CONTENT = {
    "images": [
        {"id": 7, "file_name": "000000000007.jpg", "height": 30, "width": 40},
        {"id": 3, "file_name": "000000000003.jpg", "height": 30, "width": 40},
    ],
    "categories": [{"id": 18, "name": "dog"}, {"id": 1, "name": "person"}],
    "annotations": [
        {"id": 30, "image_id": 7, "category_id": 18, "segmentation": square(5, 5, 10), "area": 100, "iscrowd": 0},
        {"id": 20, "image_id": 7, "category_id": 1, "segmentation": square(20, 5, 15), "area": 225, "iscrowd": 0},
        {
            "id": 21,
            "image_id": 7,
            "category_id": 1,
            "segmentation": {"counts": [0, 1200], "size": [30, 40]},
            "area": 1200,
            "iscrowd": 1,
        },
        {
            "id": 40,
            "image_id": 3,
            "category_id": 18,
            "segmentation": {"counts": [600, 300, 300], "size": [30, 40]},
            "area": 300,
            "iscrowd": 0,
        },
    ],
}


@pytest.fixture
def annotations(tmp_path, photograph):
    """The annotation file in COCO's own layout: annotations/instances_val.json beside val/."""
    for picture in CONTENT["images"]:
        photograph(f"val/{picture['file_name']}")
    (tmp_path / "annotations").mkdir()
    path = tmp_path / "annotations/instances_val.json"
    path.write_text(json.dumps(CONTENT))
    return path


def test_the_largest_object_of_each_picture(annotations):
    source = open_source(f"coco:{annotations}")
    assert source.ids == ("000000000003", "000000000007")
    assert source.labels.classes == ("person", "dog")
    largest = source["000000000007"]
    assert largest.label == 0
    assert largest.mask.sum() == pytest.approx(225, rel=0.02)
    expected = np.zeros((30, 40), np.float32)
    expected[:, 20:30] = 1
    assert (source["000000000003"].mask == expected).all()
    assert source["000000000003"].label == 1


def test_an_object_without_an_area_is_as_large_as_its_box(annotations):
    content = json.loads(annotations.read_text())
    for annotation, box in zip(
        content["annotations"], ([5, 5, 10, 10], [20, 5, 15, 15], None, [15, 0, 10, 30]), strict=True
    ):
        del annotation["area"]
        annotation["bbox"] = box
    annotations.write_text(json.dumps(content))
    assert open_source(f"coco:{annotations}")["000000000007"].label == 0
    assert open_source(f"coco:{annotations}?objects=all&least=0.1").ids == ("000000000003-40", "000000000007-20")


def test_every_object_but_crowds(annotations):
    source = open_source(f"coco:{annotations}?objects=all")
    assert source.ids == ("000000000003-40", "000000000007-20", "000000000007-30")
    assert source["000000000007-30"].mask.sum() == pytest.approx(100, rel=0.03)
    assert open_source(f"coco:{annotations}?objects=all", classes="dog").ids == ("000000000003-40", "000000000007-30")
    assert source.file_name("000000000007-30") == "000000000007.jpg"


def test_pictures_elsewhere_are_named_by_the_option(annotations, tmp_path):
    (tmp_path / "val").rename(tmp_path / "elsewhere")
    with refused(given=r"such as .*, were not found near it", allowed=r"coco:.*\?images=DIR"):
        open_source(f"coco:{annotations}")
    assert len(open_source(f"coco:{annotations}?images={tmp_path}/elsewhere")) == 2


def test_a_broken_annotation_and_a_missing_picture_are_one_bad_scene_each(annotations, tmp_path):
    content = json.loads(annotations.read_text())
    content["annotations"][0]["segmentation"] = [[1, 2]]
    annotations.write_text(json.dumps(content))
    (tmp_path / "val/000000000003.jpg").unlink()
    source = open_source(f"coco:{annotations}?objects=all")
    with pytest.raises(BadPicture, match="annotation 30 cannot be used: it has no polygon"):
        source["000000000007-30"]
    with pytest.raises(BadPicture, match="the file does not exist"):
        source["000000000003-40"]
    assert source["000000000007-20"].label == 0


@pytest.mark.parametrize("objects", ["all", "largest"])
@pytest.mark.parametrize("name", ["", ".", "/"])
def test_a_picture_without_a_name_is_refused(annotations, objects, name):
    content = json.loads(annotations.read_text())
    content["images"][0]["file_name"] = name
    annotations.write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"has the file_name '{name}'"):
        open_source(f"coco:{annotations}?objects={objects}")


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "captions.json"
    path.write_text('{"images": [], "annotations": [{"caption": "a dog"}]}')
    with pytest.raises(UserError, match="is not a COCO annotation file with objects"):
        open_source(f"coco:{path}")
    content = {**CONTENT, "images": [{"id": 7, "file_name": "a.jpg"}]}
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match="is not a COCO annotation file with objects"):
        open_source(f"coco:{path}")
    path.write_text("[")
    with pytest.raises(UserError, match="is not readable JSON"):
        open_source(f"coco:{path}")
    with pytest.raises(UserError, match=r"gone\.json does not exist"):
        open_source(f"coco:{tmp_path}/gone.json")


def test_an_unknown_choice_of_objects_is_refused(annotations):
    with refused(allowed="largest, all"):
        open_source(f"coco:{annotations}?objects=some")
