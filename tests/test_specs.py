"""One grammar names every source and model, and a wrong name is answered with what is allowed."""

import pytest

from command_line import refused
from unswayed.errors import UserError
from unswayed.sources import SOURCES, open_source
from unswayed.specs import Spec


def test_a_spec_has_a_kind_a_path_and_options():
    spec = Spec.parse("coco:a/b c.json?images=my%26photos&objects=all")
    assert (spec.kind, spec.name) == ("coco", "a/b c.json")
    assert spec.options == {"images": "my&photos", "objects": "all"}
    assert Spec.parse("sample").name == ""
    assert Spec.parse(r"folder:C:\photos").name == r"C:\photos"


def test_a_path_that_exists_keeps_its_question_mark(tmp_path):
    odd = tmp_path / "what?a=b"
    odd.mkdir()
    spec = Spec.parse(f"folder:{odd}")
    assert (spec.name, spec.options) == (str(odd), {})


@pytest.mark.parametrize("text", ["folder:x?masks=", "folder:x?masks=a&labels"])
def test_an_option_without_a_value_is_refused(text):
    with pytest.raises(UserError, match="is not an option"):
        Spec.parse(text)


def test_a_value_may_hold_any_character():
    spec = Spec.parse("open_clip:a/b?prompt=is this a {}?&layer=x%2By", wrappers=["tencrop"])
    assert spec.options == {"prompt": "is this a {}?", "layer": "x+y"}
    assert Spec.parse("folder:a+b").name == "a+b"


def test_what_the_wrappers_wrap_has_their_names_removed():
    spec = Spec.parse("lite:0?crop=64+tencrop+bn-adapt", wrappers=["tencrop", "bn-adapt"])
    assert spec.wrappers == ("tencrop", "bn-adapt")
    assert spec.without_wrappers() == Spec.parse("lite:0?crop=64")


def test_an_option_given_twice_is_refused():
    with pytest.raises(UserError, match="given twice"):
        Spec.parse("folder:x?space=own&space=auto")


def test_an_unknown_source_is_answered_with_all_of_them():
    with pytest.raises(UserError, match="did you mean 'folder'") as caught:
        open_source("foldr:x")
    assert all(kind in str(caught.value) for kind in SOURCES)


def test_an_unknown_option_is_answered_with_those_there_are(tmp_path):
    with pytest.raises(UserError, match="did you mean 'masks'") as caught:
        open_source(f"folder:{tmp_path}?mask=here")
    assert "labels, masks, segment, space" in str(caught.value)


def test_an_unknown_value_is_answered_with_those_there_are(tmp_path):
    with refused(allowed="auto, imagenet-1k, own"):
        open_source(f"folder:{tmp_path}?space=imagenet")


def test_a_bare_path_is_answered_with_the_source_it_could_be(tmp_path):
    with refused(allowed=f"folder:{tmp_path}"):
        open_source(str(tmp_path))


@pytest.mark.parametrize("kind", ["folder", "images", "imagenet-s", "cutouts", "rival10"])
def test_a_folder_that_is_not_there_is_named(kind, tmp_path):
    with pytest.raises(UserError, match="gone does not exist"):
        open_source(f"{kind}:{tmp_path}/gone")
    with refused(given="has no path", allowed=f"{kind}:PATH"):
        open_source(kind)


def test_a_file_where_a_folder_is_needed_and_the_other_way_round(tmp_path):
    (tmp_path / "file").write_text("x")
    with refused(given="is a file", allowed="a folder, which 'folder:.*' needs"):
        open_source(f"folder:{tmp_path}/file")
    with refused(given="is a folder", allowed="a file, which 'coco:.*' needs"):
        open_source(f"coco:{tmp_path}")


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no pictures"):
        open_source(f"folder:{tmp_path}")


def test_the_sample_takes_no_path():
    with pytest.raises(UserError, match="takes no path"):
        open_source("sample:here")
