"""RIVAL10 in its published layout: ten classes, the object's mask, the attributes' masks."""

import base64
import io
import os
import pickle

import numpy as np
import pytest
from PIL import Image

from command_line import refused
from unswayed.errors import BadPicture, UserError
from unswayed.labels import RIVAL10, imagenet
from unswayed.sources import open_source
from unswayed.sources.rival10 import ATTRIBUTES, attribute_labels


def box_mask(left, top, right, bottom):
    levels = np.zeros((224, 224), np.uint8)
    levels[top:bottom, left:right] = 255
    return levels


def as_base64(levels):
    file = io.BytesIO()
    Image.fromarray(levels).save(file, "PNG")
    return base64.b64encode(file.getvalue())


def write_scene(root, name, attributes, split="test", whole=True, text=False, kind="ordinary"):
    """One picture with all that lies beside it; attributes: name -> levels."""
    folder = root / split / kind
    masks = root / split / "entire_object_masks"
    folder.mkdir(parents=True, exist_ok=True)
    masks.mkdir(exist_ok=True)
    pixels = np.random.default_rng(len(name)).integers(0, 256, (224, 224, 3), np.uint8)
    Image.fromarray(pixels).save(folder / f"{name}.JPEG")
    content = {key: as_base64(levels) for key, levels in attributes.items()}
    content["entire-object"] = as_base64(box_mask(40, 40, 180, 200))
    content = {key: value.decode() for key, value in content.items()} if text else content
    (folder / f"{name}_attr_dict.pkl").write_bytes(pickle.dumps(content))
    present = np.array([float(key in attributes) for key in ATTRIBUTES])
    np.save(folder / f"{name}_attr_labels.npy", np.stack([present, present]))
    merged = np.maximum.reduce(list(attributes.values())) if attributes else box_mask(0, 0, 0, 0)
    Image.fromarray(merged).save(folder / f"{name}_merged_mask.JPEG")
    if whole:
        Image.fromarray(box_mask(40, 40, 180, 200)).save(masks / f"{name}.JPEG", quality=50)


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "RIVAL10"
    write_scene(root, "n01531178_12", {"wings": box_mask(60, 60, 100, 120), "beak": box_mask(150, 60, 160, 70)})
    write_scene(root, "n02690373_7", {"wings": box_mask(50, 90, 170, 110), "text": box_mask(0, 0, 0, 0)}, text=True)
    write_scene(root, "n02391049_3", {}, whole=False)
    write_scene(root, "n02391049_9", {}, split="train")
    return root


def test_the_ten_classes_are_made_of_twenty_imagenet_classes():
    names = {kind: [imagenet().classes[imagenet().index(wnid)] for wnid in wnids] for kind, wnids in RIVAL10.items()}
    assert list(names) == ["truck", "car", "plane", "ship", "cat", "dog", "equine", "deer", "frog", "bird"]
    assert names["truck"] == ["moving van", "trailer truck"]
    assert names["car"] == ["beach wagon", "convertible"]
    assert names["plane"] == ["airliner", "warplane"]
    assert names["ship"] == ["liner", "container ship"]
    assert names["cat"] == ["Persian cat", "Egyptian cat"]
    assert names["dog"] == ["Labrador retriever", "golden retriever"]
    assert names["equine"] == ["sorrel", "zebra"]
    assert names["deer"] == ["gazelle", "impala"]
    assert names["frog"] == ["tailed frog", "tree frog"]
    assert names["bird"] == ["goldfinch", "house finch"]
    assert len(ATTRIBUTES) == len(set(ATTRIBUTES)) == 18


def test_a_scene_has_its_object_and_its_attributes(root):
    source = open_source(f"rival10:{root}")
    assert source.ids == ("n01531178_12", "n02391049_3", "n02690373_7")
    assert source.labels.classes == tuple(RIVAL10)
    bird = source["n01531178_12"]
    assert bird.label == 9
    assert (bird.mask == box_mask(40, 40, 180, 200) / 255).mean() > 0.99
    assert set(np.unique(bird.mask)) == {0, 1}
    assert set(bird.parts) == {"wings", "beak"}
    assert (bird.parts["wings"] == box_mask(60, 60, 100, 120) / 255).all()
    assert bird.parts["wings"].dtype == np.float32


def test_masks_as_text_and_attributes_that_are_absent(root):
    assert set(open_source(f"rival10:{root}")["n02690373_7"].parts) == {"wings"}


def test_masks_with_line_breaks_or_as_a_browser_writes_them_and_empty_ones(root):
    wings = as_base64(box_mask(60, 60, 100, 120))
    content = {"wings": b"\n".join((wings[:76], wings[76:])), "tail": b"data:image/png;base64," + wings, "beak": None}
    (root / "test/ordinary/n01531178_12_attr_dict.pkl").write_bytes(pickle.dumps(content))
    parts = open_source(f"rival10:{root}")["n01531178_12"].parts
    assert set(parts) == {"wings", "tail"}
    assert (parts["tail"] == box_mask(60, 60, 100, 120) / 255).all()


def test_the_object_comes_from_the_attributes_file_where_it_has_no_own(root):
    assert (open_source(f"rival10:{root}")["n02391049_3"].mask == box_mask(40, 40, 180, 200) / 255).all()


def test_attribute_labels_are_by_name(root):
    labels = attribute_labels(open_source(f"rival10:{root}"), "n01531178_12")
    assert list(labels) == list(ATTRIBUTES)
    assert {name for name, there in labels.items() if there} == {"wings", "beak"}


def test_the_parent_folder_the_split_and_the_label_space_can_be_chosen(root):
    assert len(open_source(f"rival10:{root.parent}")) == 3
    assert open_source(f"rival10:{root}?split=train").ids == ("n02391049_9",)
    source = open_source(f"rival10:{root}?space=imagenet-1k", classes="zebra")
    assert (source.ids, source.label_of(0)) == (("n02391049_3",), imagenet().index("zebra"))


def test_a_pickle_that_imports_is_refused_by_name_and_the_others_load(root, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/mark",)

    (root / "test/ordinary/n01531178_12_attr_dict.pkl").write_bytes(pickle.dumps({"wings": Evil()}))
    source = open_source(f"rival10:{root}")
    with pytest.raises(BadPicture, match=r"n01531178_12_attr_dict\.pkl: refused, because the pickle would import"):
        source["n01531178_12"]
    assert not (tmp_path / "mark").exists()
    assert source["n02690373_7"].label == 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([1, 2], "it holds a list"),
        ({"wings": 5}, "the mask of 'wings' is not a base64 picture"),
        ({"wings": "&&&&"}, "the mask of 'wings' is not a base64 picture"),
        ({"wings": base64.b64encode(b"words")}, "not a picture but text"),
        ({"antlers": as_base64(box_mask(0, 0, 9, 9))}, "it has the attribute 'antlers'"),
    ],
)
def test_attributes_that_make_no_sense_are_one_bad_scene(root, content, reason):
    (root / "test/ordinary/n01531178_12_attr_dict.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(BadPicture, match=reason):
        open_source(f"rival10:{root}")["n01531178_12"]


def test_one_large_picture_as_the_mask_of_every_attribute_is_refused_before_it_is_decoded(root, monkeypatch):
    shared = as_base64(np.zeros((4000, 4000), np.uint8))
    path = root / "test/ordinary/n01531178_12_attr_dict.pkl"
    path.write_bytes(pickle.dumps(dict.fromkeys(ATTRIBUTES[:12], shared)))
    assert path.stat().st_size < 50_000
    monkeypatch.setattr("unswayed.sources.rival10.read_mask", lambda _: pytest.fail("it was decoded"))
    with pytest.raises(BadPicture, match="the masks of its attributes have 192 megapixels"):
        open_source(f"rival10:{root}")["n01531178_12"]


def test_small_masks_of_a_very_large_picture_are_not_all_enlarged(root):
    Image.new("RGB", (9000, 9000)).save(root / "test/ordinary/n01531178_12.JPEG")
    content = dict.fromkeys(ATTRIBUTES[:3], as_base64(np.full((2, 2), 255, np.uint8)))
    (root / "test/ordinary/n01531178_12_attr_dict.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(BadPicture, match="the masks of its attributes have 243 megapixels"):
        open_source(f"rival10:{root}")["n01531178_12"]


def test_masks_of_another_size_are_resized_to_the_nearest_pixel_with_a_note(root):
    half = np.zeros((112, 112), np.uint8)
    half[30:60, 30:51] = 255
    content = {"wings": as_base64(half), "entire-object": as_base64(half)}
    (root / "test/ordinary/n02391049_3_attr_dict.pkl").write_bytes(pickle.dumps(content))
    scene = open_source(f"rival10:{root}")["n02391049_3"]
    assert (scene.mask == np.kron(half / 255, np.ones((2, 2)))).all()
    assert (scene.parts["wings"] == scene.mask).all()
    assert scene.notes == (
        "the object's mask was resized from 112×112 to 224×224", "the mask of wings was resized from 112×112 to 224×224"
    )  # fmt: skip
    assert open_source(f"rival10:{root}")["n01531178_12"].notes == ()


def test_pictures_with_an_added_or_a_removed_attribute_are_read(root):
    write_scene(root, "n01531178_5", {"wings": box_mask(60, 60, 100, 120)}, split="train", kind="superimposed")
    write_scene(root, "n01531178_6", {}, split="train", kind="removed", whole=False)
    added = open_source(f"rival10:{root}?split=train&kind=superimposed")
    assert (added.ids, set(added[0].parts)) == (("n01531178_5",), {"wings"})
    assert open_source(f"rival10:{root}?split=train&kind=removed")[0].label == 9
    with refused(allowed="test/ordinary, train/ordinary, train/removed, train/superimposed"):
        open_source(f"rival10:{root}?kind=removed")
    with pytest.raises(UserError, match="ordinary, superimposed, removed"):
        open_source(f"rival10:{root}?kind=pasted")


def test_labels_that_are_pickled_or_missing_are_refused(root):
    source = open_source(f"rival10:{root}")
    path = root / "test/ordinary/n01531178_12_attr_labels.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(BadPicture, match="not an array of numbers"):
        attribute_labels(source, "n01531178_12")
    np.save(path, np.zeros((2, 5)))
    with pytest.raises(BadPicture, match=r"it has the shape \(2, 5\)\nallowed: \(18,\)"):
        attribute_labels(source, "n01531178_12")
    path.unlink()
    with pytest.raises(BadPicture, match="does not exist"):
        attribute_labels(source, "n01531178_12")


def test_a_picture_of_another_class_and_one_without_any_mask_are_bad_scenes(root):
    folder = root / "test/ordinary"
    (folder / "n02391049_3_attr_dict.pkl").unlink()
    Image.new("RGB", (224, 224)).save(folder / "n02510455_1.JPEG")
    source = open_source(f"rival10:{root}")
    with pytest.raises(BadPicture, match="there is no mask of its object"):
        source["n02391049_3"]
    with pytest.raises(BadPicture, match="n02510455 is not a class of RIVAL10"):
        source["n02510455_1"]


def test_a_folder_that_cannot_be_listed_is_named(root, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match="ordinary cannot be listed: Permission denied"):
        open_source(f"rival10:{root}")


def test_a_folder_of_another_layout_is_refused(tmp_path):
    with pytest.raises(UserError, match="ordinary does not exist"):
        open_source(f"rival10:{tmp_path}")
