"""Labeled folders without masks: every way in which people label them."""

import pytest

from command_line import refused
from unswayed.errors import UserError
from unswayed.sources import open_source


@pytest.mark.parametrize("folder", ["n02510455", "giant panda", "388"])
def test_class_folders_are_wnids_names_or_indices(tmp_path, photograph, folder):
    pixels = photograph(f"{folder}/ILSVRC2012_val_00000001.JPEG")
    source = open_source(f"images:{tmp_path}")
    assert source.labels.name == "imagenet-1k"
    assert not source.has_masks
    scene = source[0]
    assert scene.label == source.label_of(0) == 388
    assert (scene.image == pixels).all()
    assert (scene.mask == 1).all()
    assert scene.notes == ("no mask: the whole picture counts as the object",)
    assert source.file_name(0) == "ILSVRC2012_val_00000001.JPEG"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.txt", "ILSVRC2012_val_00000001.JPEG\t388\nILSVRC2012_val_00000002.JPEG\t0\n"),
        ("labels.txt", "# a remark\nILSVRC2012_val_00000001.JPEG 388\n\nILSVRC2012_val_00000002.JPEG 0\n"),
        ("labels.txt", "ILSVRC2012_val_00000001,388\nILSVRC2012_val_00000002,0\nILSVRC2012_val_00000003,7\n"),
        ("labels.csv", "file,label\nILSVRC2012_val_00000001.JPEG,n02510455\nILSVRC2012_val_00000002.JPEG,tench\n"),
    ],
)
def test_a_flat_folder_takes_its_labels_from_a_file(tmp_path, photograph, name, text):
    for number in (1, 2):
        photograph(f"ILSVRC2012_val_0000000{number}.JPEG")
    (tmp_path / name).write_text(text)
    source = open_source(f"images:{tmp_path}")
    assert source.ids == ("ILSVRC2012_val_00000001", "ILSVRC2012_val_00000002")
    assert [source.label_of(one) for one in source.ids] == [388, 0]


def test_a_labels_file_elsewhere_is_named_by_the_option(tmp_path, photograph):
    photograph("val/ILSVRC2012_val_00000001.JPEG")
    (tmp_path / "val.txt").write_text("ILSVRC2012_val_00000001.JPEG 65\n")
    assert open_source(f"images:{tmp_path}/val?labels={tmp_path}/val.txt").label_of(0) == 65


def test_pictures_without_a_label_are_left_out(tmp_path, photograph):
    photograph("a.jpg")
    photograph("b.jpg")
    (tmp_path / "labels.txt").write_text("b.jpg 3\n")
    assert open_source(f"images:{tmp_path}").ids == ("b",)


def test_own_classes_stay_own(tmp_path, photograph):
    photograph("dogs/1.jpg")
    photograph("cats/1.jpg")
    source = open_source(f"images:{tmp_path}", classes="dogs")
    assert (source.labels.classes, source.ids) == (("cats", "dogs"), ("dogs--1",))


def test_a_folder_without_labels_is_refused(tmp_path, photograph):
    photograph("ILSVRC2012_val_00000001.JPEG")
    with refused(given="the 1 pictures in .* have no labels", allowed="class folders"):
        open_source(f"images:{tmp_path}")


def test_a_labels_file_of_other_pictures_is_refused(tmp_path, photograph):
    photograph("a.jpg")
    (tmp_path / "labels.txt").write_text("b.jpg 3\n")
    with pytest.raises(UserError, match=r"names none of the 1 pictures in .*, such as a\.jpg"):
        open_source(f"images:{tmp_path}")


def test_a_line_without_a_label_is_named(tmp_path, photograph):
    photograph("a.jpg")
    (tmp_path / "labels.txt").write_text("a.jpg 3\nb.jpg\n")
    with pytest.raises(UserError, match=r"line 2 of .*labels\.txt is 'b\.jpg'"):
        open_source(f"images:{tmp_path}")


def test_labels_that_are_no_text_are_refused(tmp_path, photograph):
    photograph("a.jpg")
    (tmp_path / "labels.txt").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(UserError, match="cannot be read as text"):
        open_source(f"images:{tmp_path}")
