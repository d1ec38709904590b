"""What enters is checked: masks are not photographs, photographs are not masks, labels are what was meant."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from unswayed.errors import BadPicture, UserError
from unswayed.labels import own
from unswayed.masks.checks import doubted_masks, exchanged_masks, mask_warnings, warning_summary
from unswayed.scene import MaskOrigin, Scene
from unswayed.sources import open_source
from unswayed.sources.folder import without_masks
from unswayed.sources.labeled import name_remarks
from unswayed.sources.pictures import mask_of, read_mask, read_picture


def test_masks_beside_pictures_are_not_classified(tmp_path, photograph, mask_file):
    for name in ("dog/1", "dog/2", "cat/1"):
        photograph(f"{name}.jpg")
    mask_file("dog/1.png")
    mask_file("dog/2_mask.png")
    mask_file("masks/cat/1.png")
    source = open_source(f"images:{tmp_path}")
    assert source.ids == ("cat--1", "dog--1", "dog--2")
    assert source.labels.classes == ("cat", "dog")
    assert "3 files are masks of other pictures and are not counted as photographs" in source.remarks[0]


def test_masks_named_in_a_table_by_their_stem_are_not_classified(tmp_path, photograph, mask_file):
    photograph("a.jpg")
    photograph("b.jpg")
    mask_file("masks/a.png")
    (tmp_path / "labels.csv").write_text("file,label\na.jpg,3\nb.jpg,4\n")
    assert len(open_source(f"images:{tmp_path}")) == 2


def test_a_class_of_real_masks_stays_a_class(tmp_path, photograph):
    photograph("masks/carnival.jpg")
    photograph("hats/bowler.jpg")
    assert open_source(f"images:{tmp_path}").labels.classes == ("hats", "masks")


def test_a_masks_folder_beside_the_one_that_is_named_is_no_class(tmp_path, photograph, mask_file):
    photograph("photos/dog/1.jpg")
    mask_file("photos/masks/dog/1.png", box=(0, 0, 5, 5))
    true = mask_file("truemasks/dog/1.png")
    source = open_source(f"folder:{tmp_path}/photos?masks={tmp_path}/truemasks")
    assert source.labels.classes == ("dog",)
    assert (source[0].mask == true).all()
    assert "masks/dog/1.png" in source.remarks[0]


@pytest.mark.parametrize("white", [1, 255])
def test_a_scene_takes_masks_of_whole_numbers(white):
    mask = np.zeros((8, 8), np.uint8)
    mask[2:5, 2:5] = white
    scene = Scene("a", np.zeros((8, 8, 3), np.uint8), mask, parts={"tail": mask > 0})
    assert scene.mask.dtype == np.float32 and scene.mask.max() == 1 and scene.pixel_rate == 9 / 64
    assert scene.parts["tail"].dtype == np.float32


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.full((8, 8), 255.0), "the mask has values from 255 to 255"),
        (np.full((8, 8), -1.0), "the mask has values from -1"),
        (np.full((8, 8), np.nan), "the mask has values from nan"),
        (np.ones((8, 8, 3), np.uint8), r"the mask is \(8, 8, 3\) uint8"),
        (np.ones((8, 8), np.int64), r"the mask is \(8, 8\) int64"),
    ],
)
def test_a_scene_refuses_masks_by_name(mask, message):
    with pytest.raises(BadPicture, match=f"dog: {message}"):
        Scene("dog", np.zeros((8, 8, 3), np.uint8), mask)


def test_masks_that_look_wrong_are_pointed_out():
    good = np.zeros((60, 90), np.float32)
    good[20:50, 30:70] = 1
    assert mask_warnings(good) == ()
    low = good.copy()
    low[40:, :] = 1  # an object that the picture's lower border cuts
    assert mask_warnings(low) == ()
    assert "looks inverted" in mask_warnings(1 - good)[0]
    assert "is all white" in mask_warnings(np.ones_like(good))[0]
    assert "is nearly empty" in mask_warnings(np.eye(60, 90, dtype=np.float32) * (np.arange(60) < 1)[:, None])[0]
    gray = np.asarray(Image.fromarray(open_source("sample")["dog"].image).convert("L"), np.float32) / 255
    assert "looks like a photograph" in mask_warnings(gray)[0]


def test_the_masks_of_the_sample_are_in_order():
    assert {scene.id: mask_warnings(scene.mask) for scene in open_source("sample")[:6]} == dict.fromkeys(
        open_source("sample").ids[:6], ()
    )


def test_warnings_are_summed_up_by_kind():
    notes = {"a": ["warning: the mask looks inverted: 90 %"], "b": ["warning: the mask looks inverted: 80 %"], "c": []}
    assert warning_summary(notes) == ["the mask looks inverted in 2 of 3 scenes: a, b"]


def test_masks_that_a_segmenter_made_are_counted():
    origin = MaskOrigin("grabcut from the center prior", 0.5)
    (line,) = warning_summary({"a": [str(origin)], "b": []}, {"a": origin})
    assert line.startswith("1 of 2 masks were made automatically (grabcut, confidence 0.50 to 0.50, median 0.50)")


def test_a_color_photograph_is_no_mask(tmp_path):
    image = open_source("sample")["dog"].image
    Image.fromarray(image).save(tmp_path / "dog.jpg")
    with pytest.raises(BadPicture, match="dog.jpg: this is a color photograph, not a mask"):
        read_mask(tmp_path / "dog.jpg")
    with pytest.raises(BadPicture, match="this is a color photograph"):
        mask_of(Image.fromarray(image))
    red = np.zeros((40, 40, 3), np.uint8)
    red[10:30, 10:30] = (255, 60, 60)
    Image.fromarray(red).save(tmp_path / "red.png")
    assert read_mask(tmp_path / "red.png").max() > 0.4


def test_a_misspelled_column_is_refused_with_the_right_one(tmp_path, photograph):
    photograph("a.jpg")
    (tmp_path / "labels.csv").write_text("file,lable\na.jpg,3\n")
    for kind in ("images", "folder"):
        with pytest.raises(UserError, match="'lable'; did you mean 'label'"):
            open_source(f"{kind}:{tmp_path}")


def test_class_names_that_are_nearly_equal_are_pointed_out(tmp_path, photograph):
    for name in ("labrador/1.jpg", "labrador/2.jpg", "labradro/3.jpg", "my cat/4.jpg"):
        photograph(name)
    source = open_source(f"images:{tmp_path}")
    assert source.remarks == (
        "the classes 'labrador' and 'labradro' have nearly the same name: is one of them misspelled?",
    )
    assert source.class_counts == {"labrador": 2, "labradro": 1, "my cat": 1}


def test_a_few_classes_outside_imagenet_are_pointed_out():
    names = ["tench", "goldfish", "hammerhead", "stingray", "hen", "ostritch"]
    (remark,) = name_remarks(own(names))
    assert "5 of 6 classes are ImageNet's and 1 not, such as 'ostritch' (did you mean 'ostrich'?)" in remark


@pytest.mark.parametrize(
    ("name", "text"), [("labels.csv", "file,label\na.jpg,3\nb.jpg, \n"), ("l.txt", "a.jpg,3\nb.jpg,\n")]
)
def test_an_empty_label_is_refused_with_its_line(tmp_path, photograph, name, text):
    photograph("a.jpg")
    photograph("b.jpg")
    (tmp_path / name).write_text(text)
    for kind in ("images", "folder"):
        with pytest.raises(UserError, match=rf"line {text.count(chr(10))} of .*{name} has no label: b.jpg"):
            open_source(f"{kind}:{tmp_path}?labels={name}")


def test_a_table_without_the_column_label_has_no_labels(tmp_path, photograph, mask_file):
    photograph("a.jpg")
    mask_file("a.png")
    (tmp_path / "labels.csv").write_text("file,mask\na.jpg,a.png\n")
    assert open_source(f"folder:{tmp_path}")[0].label is None


def test_a_picture_that_a_table_names_and_that_is_missing_is_told_with_its_line(tmp_path, photograph, mask_file):
    photograph("a.jpg")
    mask_file("a.png")
    (tmp_path / "labels.csv").write_text("file,label\na.jpg,3\ngone.jpg,4\n")
    source = open_source(f"folder:{tmp_path}")
    assert source["a"].label == 3
    with pytest.raises(BadPicture, match=r"line 3 of .*labels.csv names it, but there is no such file"):
        source["gone"]


def test_pictures_beside_the_class_folders_are_pointed_out(tmp_path, photograph, mask_file):
    for name in ("dog/1", "dog/2", "stray"):
        photograph(f"{name}.jpg")
        mask_file(f"{name}.png")
    (remark,) = open_source(f"folder:{tmp_path}").remarks
    assert remark.startswith("1 of 3 pictures are in no class folder and have no label, such as stray.jpg")


def test_nearly_equal_names_in_a_table_are_pointed_out(tmp_path, photograph, mask_file):
    labels = {"1": "my labrador", "2": "my labradro", "3": "owl", "4": "owls", "5": "cat of mine"}
    for name in labels:
        photograph(f"{name}.jpg")
        mask_file(f"{name}.png")
    (tmp_path / "labels.csv").write_text("file,label\n" + "".join(f"{n}.jpg,{label}\n" for n, label in labels.items()))
    for kind in ("images", "folder"):
        remarks = " ".join(open_source(f"{kind}:{tmp_path}").remarks)
        assert "'my labrador' and 'my labradro' have nearly the same name" in remarks
        assert "'owl' and 'owls' have nearly the same name" in remarks


def test_heic_pictures_are_read_where_the_package_is_installed(tmp_path):
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    image = open_source("sample")["dog"].image
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(image).save(tmp_path / "dog.heic", quality=90)
    Image.fromarray(image).save(tmp_path / "turned.heic", quality=90, exif=exif.tobytes())
    found = read_picture(tmp_path / "dog.heic")
    assert found.shape == image.shape
    assert np.abs(found.astype(int) - image).mean() < 4
    turned = read_picture(tmp_path / "turned.heic")
    assert turned.shape == np.rot90(image, -1).shape
    assert np.abs(turned.astype(int) - np.rot90(image, -1)).mean() < 4


def test_heic_pictures_are_named_and_not_passed_over(tmp_path, photograph, mask_file):
    photograph("dog/1.jpg")
    mask_file("dog/1.png")
    (tmp_path / "dog/2.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    mask_file("dog/2_mask.png")
    source = open_source(f"folder:{tmp_path}")
    assert source.ids == ("dog--1", "dog--2")
    with pytest.raises(BadPicture, match=r"2\.heic: (this is a HEIC picture|the file is)"):
        source["dog--2"]


def test_the_confidence_of_an_automatic_mask_is_in_its_notes(tmp_path, photograph, mask_file):
    for name in ("1", "2"):
        photograph(f"dog/{name}.jpg")
        mask_file(f"masks/dog/{name}.png")
    (tmp_path / "masks/confidence.csv").write_text("picture,confidence,agreement,edge,size\ndog/1.jpg,0.6251,1,1,1\n")
    source = open_source(f"folder:{tmp_path}")
    notes = {scene.id: scene.notes for scene in source}
    assert notes == {"dog--1": ("mask made by `unswayed masks` with confidence 0.6251",), "dog--2": ()}
    origins = {scene.id: scene.mask_origin for scene in source if scene.mask_origin is not None}
    assert warning_summary(notes, origins)[0].startswith(
        "1 of 2 masks were made automatically (`unswayed masks`, confidence 0.63 to 0.63, median 0.63)"
    )


@pytest.mark.parametrize("folder", ["cat/masks", "cat/Masks", "Masks/cat"])
def test_a_folder_of_masks_at_any_depth_holds_no_photographs(folder):
    names = ["cat/1.jpg", "cat/2.jpg", f"{folder}/1.png", f"{folder}/2.png"]
    assert without_masks(names) == (names[:2], names[2:])


def test_a_mask_of_half_values_is_pointed_out():
    mask = np.zeros((40, 40), np.float32)
    mask[10:30, 10:30] = 128 / 255
    (warning,) = mask_warnings(mask)
    assert "half transparent" in warning
    mask[12:28, 12:28] = 1
    assert "half transparent" in mask_warnings(mask)[0]
    mask[11:29, 11:29] = 1
    assert mask_warnings(mask) == ()


def test_masks_of_other_photographs_are_doubted_and_their_photographs_named():
    scenes = [scene for scene in open_source("sample") if scene.image.shape == (480, 640, 3)]
    moved = {one.id: replace(one, mask=scenes[place - 1].mask) for place, one in enumerate(scenes)}
    notes = {name: mask_warnings(one.mask, one.image) for name, one in moved.items()}
    assert "may not fit the photograph" in str(doubted_masks(notes)) and "another photograph" in str(
        doubted_masks(notes)
    )
    (words,) = exchanged_masks(moved, notes)
    assert "that of pig fits the photograph kangaroo" in words
    right = {one.id: mask_warnings(one.mask, one.image) for one in scenes}
    assert doubted_masks(right) is None and exchanged_masks({one.id: one for one in scenes}, right) == []


@pytest.mark.parametrize(("confidences", "doubted"), [((0.6, 0.3, 0.9, 0.9), True), ((0.6, 0.75, 0.9, 0.9), False)])
def test_automatic_masks_are_doubted_if_half_of_them_should_be_looked_at(confidences, doubted):
    origins = {str(number): MaskOrigin("sam2", one) for number, one in enumerate(confidences)}
    notes = {number: [str(origin)] for number, origin in origins.items()}
    words = "the masks may be wrong: 2 of 4 were made automatically with a confidence below 0.7"
    assert doubted_masks(notes, origins) == (words if doubted else None)
    checked = dict.fromkeys("abcde", ())
    assert doubted_masks({**notes, **checked}, origins) is None, "masks of one's own are not automatic"


def test_a_mask_of_small_codes_is_refused_with_its_largest_value() -> None:
    with pytest.raises(BadPicture, match="its largest value is 3 of 255, perhaps a code"):
        Scene("a", np.zeros((4, 4, 3), np.uint8), np.full((4, 4), 3 / 255, np.float32))
