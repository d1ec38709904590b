"""One photograph: chains in the paper's order, records that replay to the same bytes, errors that say why."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from importlib.metadata import EntryPoint
from pathlib import Path

import cv2
import numpy as np
import pytest

from unswayed.errors import UserError
from unswayed.files.whole import sha256
from unswayed.rendering.photograph import Request, chain_of, edit_photograph, read_scene, replay
from unswayed.sources import SOURCES

SAMPLE = Path(str(resources.files("unswayed.data").joinpath("sample")))
DOG, DOG_MASK = SAMPLE / "dog.jpg", SAMPLE / "dog.png"


def pasted(**edits: str) -> Request:
    return Request(chain_of(edits), renderer="paste")


def made(request: Request, out: Path, image: Path = DOG, mask: Path | None = DOG_MASK) -> tuple[Path, Path, Path]:
    return edit_photograph(request, read_scene(image, mask), image).save(out)


def test_edits_are_chained_in_the_papers_order():
    chain = chain_of({"color": "90", "position": "1,1", "direction": "20", "size": "0.05", "background": "checker"})
    assert [type(edit).__name__ for edit in chain] == ["Background", "Size", "Direction", "Position", "Color"]


def test_the_object_is_where_and_as_large_as_asked(tmp_path):
    picture, mask, record = made(pasted(size="0.05", position="1,1"), tmp_path / "out.png")
    levels = cv2.imread(str(mask), cv2.IMREAD_UNCHANGED)
    rows, columns = np.nonzero(levels > 127)
    assert cv2.imread(str(picture)).shape == (256, 256, 3)
    assert (levels > 127).mean() == pytest.approx(0.05, abs=0.002)
    assert rows.max() >= 252
    assert columns.max() >= 252
    assert json.loads(record.read_text())["pixel_rate"] == (levels > 127).mean()


@pytest.mark.parametrize(
    "edits",
    [
        {"background": "random", "size": "0.1", "direction": "random", "position": "random"},
        {"background": "leopard", "occlusion": "0.3"},
        {"lighting": "-2", "blur": "4", "color": "120"},
        {"background": str(SAMPLE / "pig.jpg")},
    ],
)
def test_a_record_replays_to_the_same_bytes(tmp_path, edits):
    request = replace(pasted(**edits), seed=11)
    first = made(request, tmp_path / "first.png")
    second = replay(first[2]).save(tmp_path / "second.png")
    assert [sha256(path) for path in first] == [sha256(path) for path in second]


def test_a_mask_from_a_box_and_one_from_the_middle_are_replayed_too(tmp_path):
    for name, box in (("box", (60, 40, 300, 300)), ("middle", None)):
        scene = read_scene(DOG, box)
        assert "mask made by grabcut" in scene.notes[0]
        first = edit_photograph(pasted(size="0.1"), scene, DOG).save(tmp_path / f"{name}.png")
        assert sha256(replay(first[2]).save(tmp_path / f"{name}-again.png")[0]) == sha256(first[0])


def test_a_moved_photograph_is_given_anew_and_a_changed_one_refused(tmp_path):
    moved = tmp_path / "here.jpg"
    moved.write_bytes(DOG.read_bytes())
    record = made(pasted(size="0.1"), tmp_path / "first.png", image=moved)[2]
    moved.rename(tmp_path / "there.jpg")
    with pytest.raises(UserError, match="here.jpg does not exist"):
        replay(record)
    again = replay(record, tmp_path / "there.jpg")
    assert again.record["picture_sha256"] == json.loads(record.read_text())["picture_sha256"]
    (tmp_path / "there.jpg").write_bytes((SAMPLE / "cat.jpg").read_bytes())
    with pytest.raises(UserError, match="is not the file that .* was made from"):
        replay(record, tmp_path / "there.jpg")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"files": {"/proc/version": "0"}}, "/proc/version, which .* names, is empty"),
        ({"mask_png": "////"}, "first.json: the field 'mask_png' cannot be used"),
    ],
)
def test_what_a_record_names_is_bounded_and_its_fields_are_named(tmp_path, change, words):
    record = made(pasted(size="0.1"), tmp_path / "first.png")[2]
    record.write_text(json.dumps(json.loads(record.read_text()) | change))
    with pytest.raises(UserError, match=words):
        replay(record)


def test_a_replay_that_comes_out_otherwise_says_so(tmp_path):
    record = made(pasted(size="0.1"), tmp_path / "first.png")[2]
    content = json.loads(record.read_text())
    content["request"]["seed"] = 5
    content["request"]["chain"][0]["rate"] = 0.2
    content["versions"]["numpy"] = "1.0"
    record.write_text(json.dumps(content))
    with pytest.raises(UserError, match='is a different picture; what differs: versions.numpy: "1.0" there'):
        replay(record)
    record.write_text("{}")
    with pytest.raises(UserError, match="is not a record of an edit"):
        replay(record)


def test_what_cannot_be_made_says_why(tmp_path, tmp_path_factory):
    small_mask = tmp_path_factory.mktemp("masks") / "small.png"
    cv2.imwrite(str(small_mask), np.full((50, 60), 255, np.uint8))
    with pytest.raises(UserError, match="needs a diffusion network.*\n.*--renderer diffusion"):
        made(pasted(background="simple"), tmp_path / "out.png")
    with pytest.raises(UserError, match="^words are drawn by a pipeline.*--renderer diffusers:NAME_OR_FOLDER.$"):
        made(pasted(background="a beach at sunset"), tmp_path / "out.png")
    with pytest.raises(UserError, match="the edit is not possible for dog: size 0.9"):
        made(pasted(size="0.9"), tmp_path / "out.png")
    with pytest.raises(UserError, match="ends in .png"):
        made(pasted(size="0.1"), tmp_path / "out.jpg")
    with pytest.raises(UserError, match="the mask is .*, its picture"):
        made(pasted(size="0.1"), tmp_path / "out.png", mask=small_mask)
    with pytest.raises(UserError, match="no edit is given"):
        chain_of({})
    with pytest.raises(UserError, match="there is no background 'simpel'"):
        chain_of({"background": "simpel"})
    with pytest.raises(UserError, match="contains 2 edits"):
        chain_of({}, ["size=0.1,0.2"])
    assert not list(tmp_path.iterdir())


def test_a_record_may_not_open_a_source_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = made(Request(chain_of({"size": "0.05"}), renderer="paste"), tmp_path / "first.png")[2]
    record.write_text(record.read_text().replace('"pool": "sample"', '"pool": "theirs:x"'))
    point = EntryPoint("theirs", "a_module_that_is_never_imported:open_scenes", SOURCES.group)
    monkeypatch.setitem(SOURCES.__dict__, "_outside", {"theirs": point})
    with pytest.raises(UserError, match="theirs:x") as refusal:
        replay(record)
    assert "--trust" in str(refusal.value.run)
    assert "theirs" not in str(refusal.value.allowed)
