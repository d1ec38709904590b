"""A folder of photographs and masks: where masks may lie, where labels come from, what is said of what is missing."""

import re

import numpy as np
import pytest
from PIL import Image

from command_line import refused
from unswayed.errors import BadPicture, UserError
from unswayed.sources import open_source


def check(source, scene_id, pixels, mask):
    scene = source[scene_id]
    assert (scene.image == pixels).all()
    assert np.allclose(scene.mask, mask)
    return scene


@pytest.mark.parametrize("name", ["dog.png", "dog_mask.png", "dog-mask.jpg", "dog.mask.PNG"])
def test_a_mask_may_lie_beside_its_picture(tmp_path, photograph, mask_file, name):
    pixels, mask = photograph("dog.jpg"), mask_file(name)
    source = open_source(f"folder:{tmp_path}")
    assert source.ids == ("dog",)
    assert ((source["dog"].mask > 0.5) == (mask > 0.5)).all()
    assert (source["dog"].image == pixels).all()


def test_a_png_picture_has_a_mask_named_as_one(tmp_path, photograph, mask_file):
    pixels, mask = photograph("dog.png"), mask_file("dog_mask.png")
    check(open_source(f"folder:{tmp_path}"), "dog", pixels, mask)


def test_masks_may_lie_in_their_own_folder(tmp_path, photograph, mask_file):
    pixels, mask = photograph("dog/1.jpg"), mask_file("masks/dog/1.png")
    source = open_source(f"folder:{tmp_path}")
    assert source.ids == ("dog--1",)
    check(source, "dog--1", pixels, mask)


def test_pictures_and_masks_may_lie_side_by_side(tmp_path, photograph, mask_file):
    pixels, mask = photograph("images/dog/1.png"), mask_file("masks/dog/1.png")
    source = open_source(f"folder:{tmp_path}")
    assert (source.ids, source.labels.classes) == (("dog--1",), ("dog",))
    check(source, "dog--1", pixels, mask)


def test_masks_may_lie_anywhere_when_the_option_says_where(tmp_path, photograph, mask_file):
    pixels, mask = photograph("photos/1.png"), mask_file("elsewhere/1.png")
    check(open_source(f"folder:{tmp_path}/photos?masks={tmp_path}/elsewhere"), "1", pixels, mask)
    with pytest.raises(UserError, match="gone does not exist"):
        open_source(f"folder:{tmp_path}/photos?masks={tmp_path}/gone")


def test_a_table_may_name_labels_and_masks(tmp_path, photograph, mask_file):
    first, second = photograph("a.jpg"), photograph("b.jpg")
    mask_a, mask_b = mask_file("m/x.png"), mask_file("b.png", box=(0, 0, 5, 5))
    (tmp_path / "labels.csv").write_text("file,label,mask\na.jpg,zebra crossing,m/x.png\nb.jpg,apple,\n")
    source = open_source(f"folder:{tmp_path}")
    assert source.labels.classes == ("apple", "zebra crossing")
    assert check(source, "a", first, mask_a).label == 1
    assert check(source, "b", second, mask_b).label == 0


def test_a_table_elsewhere_is_named_by_the_option(tmp_path, photograph, mask_file):
    photograph("p/a.jpg")
    mask_file("p/a.png")
    (tmp_path / "table.csv").write_text("file,label\na.jpg,n02510455\n")
    assert open_source(f"folder:{tmp_path}/p?labels={tmp_path}/table.csv").label_of("a") == 388


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name,class\na.jpg,x\n", "has the columns name, class\nallowed: file, label, mask"),
        ("file,label\na.jpg,x\na.jpg,y\n", "names a.jpg more than once"),
        ("file,label\nz.jpg,x\n", "none of the 1 pictures"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(tmp_path, photograph, text, reason):
    photograph("a.jpg")
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(UserError, match=reason):
        open_source(f"folder:{tmp_path}")


def test_a_table_that_is_not_there_is_named(tmp_path, photograph):
    photograph("a.jpg")
    with pytest.raises(UserError, match=r"gone\.csv does not exist"):
        open_source(f"folder:{tmp_path}?labels=gone.csv")


def test_a_picture_that_the_table_names_but_is_not_there_is_one_bad_scene(tmp_path, photograph, mask_file):
    photograph("a.jpg")
    mask_file("a.png")
    (tmp_path / "labels.csv").write_text("file,label,mask\na.jpg,x,a.png\ngone.jpg,x,a.png\n")
    source = open_source(f"folder:{tmp_path}")
    assert source["a"].label == 0
    with pytest.raises(BadPicture, match=r"gone\.jpg: line 3 of .*labels.csv names it"):
        source["gone"]


@pytest.mark.parametrize(
    ("folders", "space", "labels"),
    [
        (("n02510455", "n01440764"), "imagenet-1k", [0, 388]),
        (("giant_panda", "tench"), "imagenet-1k", [388, 0]),
        (("388", "0"), "imagenet-1k", [0, 388]),
        (("panda", "fish"), "own", [0, 1]),
    ],
)
def test_class_folders_give_labels_in_imagenet_or_an_own_space(tmp_path, photograph, mask_file, folders, space, labels):
    for folder in folders:
        photograph(f"{folder}/1.jpg")
        mask_file(f"{folder}/1.png")
    source = open_source(f"folder:{tmp_path}")
    assert source.labels.name == space
    assert [source.label_of(one) for one in source.ids] == labels


def test_the_space_can_be_demanded(tmp_path, photograph, mask_file):
    for folder in ("10", "9", "388"):
        photograph(f"{folder}/1.jpg")
        mask_file(f"{folder}/1.png")
    assert open_source(f"folder:{tmp_path}?space=own").labels.classes == ("9", "10", "388")
    photograph("unicorn/1.jpg")
    with pytest.raises(UserError, match="1 of 4 classes are not in ImageNet-1k: unicorn"):
        open_source(f"folder:{tmp_path}?space=imagenet-1k")


def test_wnids_outside_imagenet_1k_are_an_error_not_an_own_space(tmp_path, photograph):
    photograph("n02510455/1.jpg")
    photograph("n99999999/1.jpg")
    with pytest.raises(UserError, match="not in ImageNet-1k: n99999999"):
        open_source(f"folder:{tmp_path}")


def test_scenes_without_a_class_have_no_label(tmp_path, photograph, mask_file):
    photograph("a.jpg")
    mask_file("a.png")
    source = open_source(f"folder:{tmp_path}")
    assert source.labels.classes == ()
    assert source["a"].label is None


def test_bad_scenes_say_why_and_the_others_load(tmp_path, photograph, mask_file):
    photograph("good.jpg")
    mask_file("good.png")
    photograph("alone.jpg")
    photograph("twice.jpg")
    mask_file("twice.png")
    mask_file("twice_mask.png")
    (tmp_path / "words.jpg").write_text("words")
    mask_file("words.png")
    photograph("black.jpg")
    mask_file("black.png", box=(0, 0, 0, 0))
    photograph("size.jpg")
    mask_file("size.png", size=(41, 30))
    photograph("cut.jpg")
    mask_file("cut.png")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "cut.jpg").read_bytes()[:300])
    source = open_source(f"folder:{tmp_path}")
    assert len(source) == 7
    assert source["good"].pixel_rate == pytest.approx(400 / 1200)
    reasons = {
        "alone": "there is no mask for it",
        "twice": r"more than one candidate mask: twice\.png, twice_mask\.png",
        "words": "not a picture but text",
        "black": "the mask is empty",
        "size": "the mask is 41×30, its picture 40×30",
        "cut": "cut off",
    }
    for scene_id, reason in reasons.items():
        with pytest.raises(BadPicture, match=reason):
            source[scene_id]


def test_a_mask_beside_and_one_in_the_masks_folder_are_two_candidates(tmp_path, photograph, mask_file):
    photograph("a.jpg")
    mask_file("a_mask.png")
    mask_file("masks/a.png")
    with pytest.raises(BadPicture, match="more than one candidate mask"):
        open_source(f"folder:{tmp_path}")["a"]


def test_a_picture_turned_by_exif_fits_the_mask_of_what_people_see(tmp_path, mask_file):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 30)).save(tmp_path / "a.jpg", exif=exif)
    mask_file("a.png", size=(30, 40))
    assert open_source(f"folder:{tmp_path}")["a"].image.shape == (40, 30, 3)


def test_hidden_files_and_other_files_are_left_out(tmp_path, photograph, mask_file):
    photograph("a.jpg")
    mask_file("a.png")
    photograph(".trash/b.jpg")
    photograph(".c.jpg")
    (tmp_path / "readme.txt").write_text("x")
    assert open_source(f"folder:{tmp_path}").ids == ("a",)


def test_a_picture_without_a_mask_can_have_one_made(tmp_path):
    sample = open_source("sample")["panda"]
    Image.fromarray(sample.image).save(tmp_path / "panda.png")
    scene = open_source(f"folder:{tmp_path}?segment=grabcut")["panda"]
    both = (scene.mask > 0.5) & (sample.mask > 0.5)
    assert both.sum() / ((scene.mask > 0.5) | (sample.mask > 0.5)).sum() > 0.8
    assert re.fullmatch(r"mask made by grabcut from the center prior with confidence 0\.\d{4}", *scene.notes)
    with refused("did you mean 'grabcut'", given="'grabcutt'"):
        open_source(f"folder:{tmp_path}?segment=grabcutt")
