"""A source is lazy, sliceable, picklable, and others can add their own."""

import pickle
import sys

import pytest

from command_line import refused
from outside_package import install
from unswayed.errors import UserError
from unswayed.labels import imagenet_e_classes
from unswayed.sources import open_source


@pytest.fixture(scope="module")
def sample():
    return open_source("sample")


def test_scenes_are_had_by_position_id_and_slice(sample):
    assert len(sample) == len(sample.ids) == 20
    assert sample["dog"].id == sample[sample.ids.index("dog")].id == "dog"
    assert sample[-1].id == "sheep"
    assert sample[2:5].ids == sample.ids[2:5]
    assert sample[2:5].spec == "sample"
    assert [scene.id for scene in sample[:3]] == list(sample.ids[:3])
    assert "dog" in sample
    assert "unicorn" not in sample


def test_a_scene_that_is_not_there_is_answered_with_the_nearest(sample):
    with pytest.raises(UserError, match="did you mean 'koala'"):
        sample["kola"]
    with pytest.raises(IndexError):
        sample[20]


def test_labels_and_file_names_are_known_without_decoding(sample):
    assert sample.label_of("panda") == sample["panda"].label == 388
    assert sample.file_name("panda") == "panda.jpg"
    assert sample.has_masks


def test_a_source_reads_nothing_until_asked(tmp_path, photograph, mask_file):
    photograph("a.jpg")
    mask_file("a.png")
    source = open_source(f"folder:{tmp_path}")
    (tmp_path / "a.jpg").unlink()
    assert source.ids == ("a",)
    with pytest.raises(UserError, match="the file does not exist"):
        source["a"]


def test_a_source_travels_to_another_process(sample):
    again = pickle.loads(pickle.dumps(sample[3:6]))
    assert again.ids == sample.ids[3:6]
    assert (again[0].image == sample[3].image).all()


@pytest.mark.parametrize(
    ("classes", "ids"),
    [
        ("giant panda", ("panda",)),
        ("n02510455,koala", ("koala", "panda")),
        ([388, "105"], ("koala", "panda")),
        ("Giant_panda", ("panda",)),
    ],
)
def test_classes_are_chosen_by_name_wnid_and_index(classes, ids):
    assert open_source("sample", classes=classes).ids == ids


def test_the_classes_of_imagenet_e_are_chosen_by_name(sample):
    chosen = sample.select(classes="imagenet-e")
    assert set(chosen.ids) == {one for one in sample.ids if sample.label_of(one) in imagenet_e_classes()}
    assert len(chosen) == 20


def test_a_limit_is_taken_after_the_classes():
    assert open_source("sample", limit=1, classes="koala,giant panda").ids == ("koala",)
    assert open_source("sample", limit=100).ids == open_source("sample").ids


@pytest.mark.parametrize("limit", [0, -3])
def test_a_limit_below_one_is_refused(limit):
    with refused(given=f"the limit is {limit}", allowed="1 or more"):
        open_source("sample", limit=limit)


def test_an_unknown_class_and_a_class_without_scenes_are_refused():
    with refused("did you mean 'koala'", given="'kola'"):
        open_source("sample", classes="kola")
    with refused(given="no scene of 'sample' has one of the classes tench", allowed=".*koala"):
        open_source("sample", classes="tench")


def test_classes_of_a_source_without_labels_are_refused(tmp_path, photograph, mask_file):
    photograph("a.jpg")
    mask_file("a.png")
    with pytest.raises(UserError, match="have no labels"):
        open_source(f"folder:{tmp_path}", classes="koala")


def test_an_installed_package_can_add_a_source(tmp_path, monkeypatch):
    code = (
        "from dataclasses import replace\n"
        "from unswayed.sources import Source, Spec, open_source\n"
        "def open_scenes(spec: Spec) -> Source:\n"
        "    spec.take()\n"
        "    return replace(open_source('sample')[::-1], spec=spec.text)\n"
    )
    install(tmp_path, {"unswayed.sources": {"reversed": "reversed_sample:open_scenes"}}, reversed_sample=code)
    monkeypatch.syspath_prepend(str(tmp_path))
    source = open_source("reversed", limit=2)
    assert (source.spec, source.ids) == ("reversed", ("sheep", "scarlet_macaw"))
    with pytest.raises(UserError, match="did you mean 'reversed'"):
        open_source("reverse")
    sys.modules.pop("reversed_sample")
