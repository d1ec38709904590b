"""The page's core without a page: controls, photographs and masks, previews, renders, records."""

from __future__ import annotations

import base64
import json
import re
import shutil
from dataclasses import replace
from importlib import resources
from pathlib import Path

import cv2
import numpy as np
import pytest

from unswayed.edits import EDITS
from unswayed.edits.edit import Choice, Text, allowed
from unswayed.errors import BadPicture, UserError
from unswayed.files.whole import sha256
from unswayed.rendering.photograph import replay
from unswayed.views.app.controls import PRESETS, chain_from, groups, preset_flat, values_from
from unswayed.views.app.figures import marker
from unswayed.views.app.photographs import box_of, found_by, marked, open_sample, open_upload, read_once
from unswayed.views.app.stage import FOLDER, framed, preview, render, write_files
from unswayed.views.app.studio import Studio

SAMPLE = Path(str(resources.files("unswayed.data").joinpath("sample")))


@pytest.fixture(scope="module")
def studio():
    return Studio(["lite:0"])


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return tmp_path


def painted(rows: slice, columns: slice, side: int = 100) -> str:
    picture = np.zeros((side, side, 4), np.uint8)
    picture[rows, columns] = 255
    return "data:image/png;base64," + base64.b64encode(cv2.imencode(".png", picture)[1].tobytes()).decode()


def test_every_declared_parameter_has_a_control_in_its_declared_range():
    shown = {control.key: control for group in groups() for control in group.controls}
    assert {group.edit for group in groups()} == set(EDITS) - {"reinsertion"}, "a control changes nothing"
    for (edit, parameter), control in shown.items():
        declared = allowed(EDITS.load(edit), parameter)
        if isinstance(declared, Choice):
            assert control.choices == declared.names
            assert control.first in control.choices
        elif isinstance(declared, Text):
            assert control.text and declared.words and control.first == ""
        else:
            assert control.high == declared.high
            assert control.low == (1.0 if parameter == "strength" else declared.low)
            assert control.low <= control.first <= control.high


def test_values_become_the_chain_that_is_switched_on():
    flat = []
    for group in groups():
        flat.append(group.edit in ("size", "position", "background"))
        for control in group.controls:
            flat.append("simple" if control.key == ("background", "kind") else control.on_page(control.first))
            if control.word is not None:
                flat.append(control.edit == "size")
    chain = chain_from(values_from(groups(), flat))
    assert [edit.name for edit in chain] == ["background", "size", "position"]
    assert chain[0].strength == -20
    assert chain[1].rate == "largest"
    assert (chain[2].x, chain[2].y) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("shares", "expected"), [([0.25, 0.5, 0.5, 0.25], (160, 240, 320, 120)), ([0, 0, 1, 1], (0, 0, 640, 480))]
)
def test_a_box_in_shares_is_a_box_in_pixels(shares, expected):
    assert box_of(shares, 640, 480) == expected


@pytest.mark.parametrize("shares", [None, [0.1, 0.2], ["a", 0, 1, 1], [0, 0, 0.001, 1], [0, 0, float("inf"), 1]])
def test_a_box_that_is_none_is_refused(shares):
    with pytest.raises(UserError, match="box"):
        box_of(shares, 640, 480)


def test_a_mask_is_found_boxed_painted_and_given_back():
    photograph = open_sample("koala")
    boxed = marked(photograph, {"box": [0.2, 0.2, 0.7, 0.7]}, "grabcut")
    assert "the box" in boxed.notes[0]
    assert boxed.mask != photograph.mask
    corner = marked(photograph, {"paint": painted(slice(0, 20), slice(0, 20)), "add": True}, "grabcut")
    assert corner.scene.mask[0, 0] == 1
    assert photograph.scene.mask[0, 0] == 0
    written = re.search(r'href="data:image/png;base64,([^"]+)" download="koala.png"', marker(corner))
    assert written is not None and base64.b64decode(written[1]) == corner.mask
    again = marked(corner, {"paint": painted(slice(0, 21), slice(0, 21)), "add": False}, "grabcut")
    assert again.scene.mask[0, 0] == 0
    assert "center prior" in found_by(photograph, "grabcut").notes[0]


@pytest.mark.parametrize(
    ("mark", "reason"),
    [
        ({"paint": "no base64!"}, "not a PNG"),
        ({"paint": painted(slice(0, 2), slice(0, 2))}, "too little is painted"),
        ({"paint": painted(slice(0, 100), slice(0, 100)), "add": False}, "the mask is empty"),
        ({}, "empty"),
    ],
)
def test_a_painting_that_leaves_no_mask_is_refused(mark, reason):
    with pytest.raises(UserError, match=reason):
        marked(open_sample("koala"), mark, "grabcut")


def test_an_upload_is_called_by_its_name_and_bad_ones_are_refused(tmp_path):
    good = tmp_path / "my photo.jpg"
    shutil.copy(SAMPLE / "koala.jpg", good)
    photograph = open_upload(str(good))
    assert (photograph.name, photograph.id, photograph.own) == ("my photo.jpg", "my_photo", True)
    bad = tmp_path / "archive.jpg"
    bad.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(BadPicture, match=r"^archive\.jpg: this is not a picture but a ZIP archive"):
        open_upload(str(bad))


def test_pictures_in_memory_are_few():
    for name in ("koala", "dog", "cat", "cow", "pig", "duck", "crab", "sheep", "panda"):
        framed(open_sample(name))
    assert read_once.cache_info().currsize <= read_once.cache_info().maxsize == 6
    assert framed.cache_info().maxsize == 64


def test_nothing_switched_on_shows_the_photograph(studio):
    shown = preview(studio, open_sample("koala"), ())
    assert shown.note == ""
    assert shown.edited is None
    np.testing.assert_array_equal(shown.before.image, shown.after.image)


def test_a_preview_changes_the_answer_and_its_files_replay_to_the_same_bytes(studio, files):
    photograph = open_sample("koala")
    shown = preview(studio, photograph, chain_from({"size": {"rate": 0.03}, "position": {"x": 0.1, "y": 0.1}}))
    before, after = studio.answers("lite:0", [shown.before, shown.after])
    assert before.names[0] == "koala"
    assert after.best != before.best
    warm = studio.heat("lite:0", [shown.before.image, shown.after.image], [before.best, after.best])
    assert [one.shape for one in warm] == [(256, 256, 3)] * 2
    made = write_files(shown.edited, photograph)
    again = replay(Path(made[2])).save(files / "again.png")
    assert [sha256(path) for path in made] == [sha256(path) for path in again]


def test_an_uploads_record_names_no_folder_of_the_server_and_replays_beside_its_files(studio, files, monkeypatch):
    hidden, home = files / "server", files / "home"
    for folder in (hidden, home):
        folder.mkdir()
        shutil.copy(SAMPLE / "koala.jpg", folder / "mine.jpg")
        shutil.copy(SAMPLE / "pig.jpg", folder / "behind.jpg")
    photograph = open_upload(str(hidden / "mine.jpg"))
    picture = str(hidden / "behind.jpg")
    chain = chain_from({"background": {"kind": "picture"}, "size": {"rate": 0.1}}, picture)
    made = write_files(preview(studio, photograph, chain).edited, photograph, picture)
    assert str(hidden) not in Path(made[2]).read_text()
    monkeypatch.chdir(home)
    again = replay(Path(made[2])).save(files / "again.png")
    assert sha256(again[0]) == sha256(made[0])


def test_a_generated_background_waits_for_render_and_is_never_imitated(studio):
    photograph = open_sample("koala")
    shown = preview(studio, photograph, chain_from({"background": {"kind": "simple"}, "size": {"rate": 0.1}}))
    assert "press Render" in shown.note
    assert shown.edited is None


def test_render_counts_its_steps_and_replays(studio, files):
    photograph = open_sample("koala")
    steps: list[tuple[int, int]] = []
    shown, compared = render(
        studio, photograph, chain_from({"background": {"kind": "complex"}}), 3, 6, lambda *one: steps.append(one)
    )
    # Three passes for the picture and one on the way up; the same for its control.
    assert steps == [(done, 8) for done in range(9)]
    assert compared["pasted"].startswith("It cannot be pasted: ")
    np.testing.assert_array_equal(compared["rendered"].image, shown.after.image)
    assert np.abs(compared["control"].image.astype(float) - compared["rendered"].image).mean() > 1
    made = write_files(shown.edited, photograph)
    record = json.loads(Path(made[2]).read_text())
    assert record["rendered_by"]["renderer"] == "diffusion"
    again = replay(Path(made[2])).save(files / "again.png")
    assert sha256(again[0]) == sha256(made[0])


def test_impossible_and_missing_things_are_said(studio):
    photograph = open_sample("koala")
    with pytest.raises(UserError, match="the largest size that fits the frame"):
        preview(studio, photograph, chain_from({"size": {"rate": 0.99}}))
    with pytest.raises(UserError, match="Nothing is changed"):
        render(studio, photograph, ())
    with pytest.raises(UserError, match=r"(?s)needs the true label.*More about the object"):
        render(studio, replace(photograph, label=None), chain_from({"background": {"kind": "adversarial"}}), steps=4)
    with pytest.raises(UserError, match="no model of this page 'python:evil.py:f'"):
        studio.model("python:evil.py:f")


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.title)
def test_every_preset_changes_the_prediction_of_lite_0(studio, preset):
    photograph = open_sample(preset.sample)
    chain = chain_from(values_from(groups(), preset_flat(groups(), preset)))
    assert {edit.name for edit in chain} == set(preset.values)
    shown = preview(studio, photograph, chain)
    before, after = studio.answers("lite:0", [shown.before, shown.after])
    assert before.best == photograph.label
    assert after.best != before.best
