"""ImageNet-S in its official layout: the mask is the pixels of the picture's own class."""

import numpy as np
import pytest
from PIL import Image

from unswayed.errors import BadPicture, UserError
from unswayed.labels import imagenet
from unswayed.sources import open_source
from unswayed.sources.imagenet_s import class_numbers, subset_classes


def segmentation(path, regions, size=(40, 30)):
    """A segmentation file with (class number, box) regions."""
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    for number, (left, top, right, bottom) in regions:
        pixels[top:bottom, left:right] = (number % 256, number // 256, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.mark.parametrize("subset", ["50", "300", "919"])
def test_subsets_have_their_classes_in_order(subset):
    classes = subset_classes(subset)
    assert len(classes) == int(subset)
    assert list(classes) == sorted(classes)
    assert set(classes) <= set(imagenet().wnids)
    assert set(classes) <= set(subset_classes("919"))


def test_known_class_numbers():
    assert subset_classes("50")[0] == "n01443537"
    assert subset_classes("50")[15] == "n02510455"
    assert subset_classes("300")[0] == subset_classes("919")[0] == "n01440764"
    assert subset_classes("919")[-1] == "n15075141"
    assert "n04356056" not in subset_classes("919")


@pytest.mark.parametrize(("subset", "wnid"), [("50", "n02510455"), ("300", "n02510455"), ("919", "n15075141")])
@pytest.mark.parametrize("split", ["validation", "train-semi"])
def test_the_object_is_the_pixels_of_the_pictures_class(tmp_path, photograph, subset, wnid, split):
    root = tmp_path / f"ImageNetS{subset}"
    pixels = photograph(f"{split}/{wnid}/ILSVRC2012_val_00000007.JPEG", folder=root)
    number = subset_classes(subset).index(wnid) + 1
    other = 300 if number != 300 else 301
    regions = [(number, (10, 5, 20, 15)), (other, (20, 5, 30, 15)), (1000, (0, 20, 40, 25))]
    segmentation(root / f"{split}-segmentation/{wnid}/ILSVRC2012_val_00000007.png", regions)
    source = open_source(f"imagenet-s:{root}?split={split}")
    scene = source[0]
    assert source.labels.name == "imagenet-1k"
    assert scene.label == imagenet().index(wnid)
    assert (scene.image == pixels).all()
    expected = np.zeros((30, 40), np.float32)
    expected[5:15, 10:20] = 1
    assert (scene.mask == expected).all()


def test_numbers_above_255_use_the_green_channel():
    assert class_numbers(np.array([[[151, 3, 0], [0, 0, 0], [232, 3, 9]]], np.uint8)).tolist() == [[919, 0, 1000]]


def test_the_subset_is_known_by_its_name_by_its_classes_or_by_the_option(tmp_path, photograph):
    for root in (tmp_path / "ImageNet-S_50", tmp_path / "mine"):
        photograph("validation/n02510455/1.JPEG", folder=root)
        segmentation(root / "validation-segmentation/n02510455/1.png", [(16, (0, 0, 9, 9))])
    assert open_source(f"imagenet-s:{tmp_path}/ImageNet-S_50")[0].label == 388
    assert open_source(f"imagenet-s:{tmp_path}/mine?subset=50")[0].label == 388
    with pytest.raises(UserError, match="holds 1 classes, so it is unclear which ImageNet-S"):
        open_source(f"imagenet-s:{tmp_path}/mine")


def test_a_merged_class_has_the_number_of_the_class_it_is_merged_into(tmp_path, photograph):
    root = tmp_path / "ImageNetS919"
    photograph("validation/n04356056/1.JPEG", folder=root)
    number = subset_classes("919").index("n04355933") + 1
    segmentation(root / "validation-segmentation/n04356056/1.png", [(number, (0, 0, 9, 9))])
    assert open_source(f"imagenet-s:{root}")[0].label == imagenet().index("n04356056")


def test_a_mask_without_the_class_or_no_mask_is_one_bad_scene(tmp_path, photograph):
    root = tmp_path / "ImageNetS50"
    for number in (1, 2, 3):
        photograph(f"validation/n02510455/{number}.JPEG", folder=root)
    segmentation(root / "validation-segmentation/n02510455/1.png", [(16, (0, 0, 9, 9))])
    segmentation(root / "validation-segmentation/n02510455/2.png", [(3, (0, 0, 9, 9)), (1000, (9, 9, 12, 12))])
    source = open_source(f"imagenet-s:{root}")
    assert source[0].pixel_rate == pytest.approx(81 / 1200)
    with pytest.raises(BadPicture, match=r"no pixel has the picture's class 16, only \[3\]"):
        source[1]
    with pytest.raises(BadPicture, match=r"3\.png: the file does not exist"):
        source[2]


def test_a_folder_of_another_layout_is_refused(tmp_path):
    with pytest.raises(UserError, match="validation does not exist"):
        open_source(f"imagenet-s:{tmp_path}")
    with pytest.raises(UserError, match="did you mean 'validation'"):
        open_source(f"imagenet-s:{tmp_path}?split=valid")


def test_classes_of_another_subset_are_refused(tmp_path, photograph):
    root = tmp_path / "ImageNetS50"
    photograph("validation/n01440764/1.JPEG", folder=root)
    (root / "validation-segmentation").mkdir()
    with pytest.raises(UserError, match="n01440764 are not classes of ImageNet-S 50"):
        open_source(f"imagenet-s:{root}")
