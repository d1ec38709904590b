"""Building: what lies in the folder afterwards, and that it depends on nothing but the plan."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from unswayed.benchmark import Benchmark, BuildSettings, build
from unswayed.benchmark.plan import picture_seed
from unswayed.benchmark.rows import read_rows
from unswayed.errors import UserError
from unswayed.sources import open_source

EDITS = [
    *("source", "original", "inversion"),
    *("background-simple", "background-complex", "background-adversarial", "background-random"),
    *("size-full", "size-0.1", "size-0.08", "size-0.05"),
    *("position", "direction", "direction-small", "reinsertion"),
]
COLUMNS = [
    *("sample_id", "source_id", "edit", "run", "parameters", "seed", "label", "path", "sha256", "pixel_rate"),
    *("requested", "border_contact", "status", "reason"),
    *("mask_path", "attribute", "level", "control", "guide", "measures"),
]


def test_a_row_for_every_edit_of_every_scene(sample_benchmark):
    table = Benchmark(sample_benchmark).manifest
    rows = table.to_pylist()
    assert set(COLUMNS) <= set(table.column_names)
    assert [row["edit"] for row in rows[: len(EDITS)]] == EDITS
    assert len(rows) == 20 * len(EDITS)
    assert {row["status"] for row in rows} == {"ok", "skipped"}
    for row in rows:
        assert row["sample_id"] == f"{row['source_id']}/{row['edit']}/{row['run']}"
        assert (row["status"] == "ok") == (row["path"] is not None)
        assert (row["status"] == "ok") == (row["reason"] is None)
        assert json.loads(row["parameters"]) is not None


def test_labels_and_card_say_what_was_built(sample_benchmark):
    benchmark, source = Benchmark(sample_benchmark), open_source("sample")
    assert benchmark.labels == source.labels
    assert benchmark.card["seed"] == 7
    assert [edit["name"] for edit in benchmark.card["recipe"]["edits"]] == EDITS[1:]
    assert benchmark.card["renderer"]["renderer"] == "paste"
    for row in benchmark.manifest.to_pylist():
        assert row["label"] == source.label_of(row["source_id"])


def test_what_needs_a_network_is_skipped_by_paste_with_the_reason(sample_benchmark):
    for row in Benchmark(sample_benchmark).manifest.to_pylist():
        generated = row["edit"] in ("inversion", "background-simple", "background-complex", "background-adversarial")
        assert generated == ("needs a diffusion network" in (row["reason"] or ""))


@pytest.mark.parametrize("rate", [0.1, 0.08, 0.05])
def test_the_written_mask_has_the_requested_rate(sample_benchmark, rate):
    rows = [row for row in Benchmark(sample_benchmark).manifest.to_pylist() if row["edit"] == f"size-{rate}"]
    assert len(rows) == 20
    for row in rows:
        assert row["status"] == "ok"
        assert row["requested"] == rate
        mask = cv2.imread(str(sample_benchmark / row["mask_path"]), cv2.IMREAD_UNCHANGED)
        assert mask.shape == (256, 256)
        assert (mask > 127).mean() == pytest.approx(rate, abs=0.002)
        assert (mask > 127).mean() == row["pixel_rate"]


def test_pictures_are_256_and_the_source_is_the_file_as_found(sample_benchmark):
    source = open_source("sample")
    for row in read_rows(sample_benchmark, "panda"):
        if row.status != "ok":
            continue
        picture = cv2.imread(str(sample_benchmark / row.path))
        if row.edit == "source":
            with open(source.entry("panda").image, "rb") as file:
                assert (sample_benchmark / row.path).read_bytes() == file.read()
        else:
            assert picture.shape == (256, 256, 3)


def test_the_same_bytes_whatever_the_batch_size_and_the_workers(sample_benchmark, tmp_path, tree):
    build("sample", tmp_path / "again", BuildSettings(renderer="paste", seed=7, batch_size=16, workers=2))
    assert tree(tmp_path / "again") == tree(sample_benchmark)


def test_another_seed_draws_other_positions(tmp_path, sample_benchmark):
    build("sample", tmp_path / "other", BuildSettings(recipe="position", renderer="paste", seed=8, limit=1))
    then, now = (
        next(r for r in read_rows(b, "bison") if r.edit == "position") for b in (sample_benchmark, tmp_path / "other")
    )
    assert then.values["position"] != now.values["position"]


def test_a_seed_follows_from_the_picture_alone():
    """Spelled out: changing how seeds are made would silently change every benchmark."""
    text = b'[7,"dog",{"edit":"size-0.05","parameters":{"chain":[{"edit":"size","rate":0.05}]}},0]'
    expected = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    assert picture_seed(7, "dog", "size-0.05", {"chain": [{"rate": 0.05, "edit": "size"}]}, 0) == expected
    seeds = {
        picture_seed(s, i, e, {"rate": r}, n)
        for s in (0, 1)
        for i in "ab"
        for e in "xy"
        for r in (1, 2)
        for n in (0, 1)
    }
    assert len(seeds) == 32


def test_further_runs_only_where_something_is_drawn(drawn_folder, tmp_path):
    recipe = "original,size-0.1,position,direction,background-random"
    build(
        f"folder:{drawn_folder('photos', 4)}",
        tmp_path / "b",
        BuildSettings(recipe=recipe, renderer="paste", runs=3, size=64),
    )
    rows = Benchmark(tmp_path / "b").manifest.to_pylist()
    runs = {
        edit: sorted(r["run"] for r in rows if r["edit"] == edit and r["source_id"] == "class0--0000")
        for edit in {r["edit"] for r in rows}
    }
    assert runs["original"] == runs["size-0.1"] == runs["source"] == runs["reinsertion"] == [0]
    assert runs["position"] == runs["direction"] == runs["background-random"] == [0, 1, 2]
    assert (tmp_path / "b/images/position/class0--0000.run1.png").is_file()
    drawn = [r for r in rows if r["edit"] == "position" and r["source_id"] == "class0--0000"]
    assert len({r["sha256"] for r in drawn}) == 3
    assert len({r["seed"] for r in drawn}) == 3


def test_whole_objects_leaves_out_what_the_border_cuts(drawn_folder, tmp_path):
    folder = drawn_folder("photos", 3)
    cut = folder / "masks/class1/0001.png"
    levels = cv2.imread(str(cut), cv2.IMREAD_GRAYSCALE)
    cv2.imwrite(str(cut), cv2.copyMakeBorder(levels[:, 20:], 0, 0, 0, 20, cv2.BORDER_CONSTANT))
    build(
        f"folder:{folder}",
        tmp_path / "b",
        BuildSettings(recipe="original", renderer="paste", whole_objects=True, size=64),
    )
    rows = Benchmark(tmp_path / "b").manifest.to_pylist()
    assert {row["source_id"] for row in rows if row["status"] == "skipped"} == {"class1--0001"}
    assert all("border cuts off the object" in row["reason"] for row in rows if row["status"] == "skipped")
    build(f"folder:{folder}", tmp_path / "all", BuildSettings(recipe="original", renderer="paste", size=64))
    contact = {row.source_id: row.border_contact for row in read_rows(tmp_path / "all", "class1--0001")}
    assert contact["class1--0001"] > 0.1


def test_a_sweep_keeps_its_levels(drawn_folder, tmp_path):
    build(
        f"folder:{drawn_folder('photos', 2)}",
        tmp_path / "b",
        BuildSettings(recipe="size=0.05:0.2:3", renderer="paste", size=64),
    )
    rows = [r for r in Benchmark(tmp_path / "b").manifest.to_pylist() if r["attribute"] == "size"]
    assert sorted({float(r["level"]) for r in rows}) == [0.05, 0.1, 0.2]
    assert {r["control"] for r in rows} == {"reinsertion"}


def test_a_mended_picture_is_made_on_the_next_run(drawn_folder, tmp_path):
    folder = drawn_folder("photos", 4)
    broken = folder / "images/class1/0001.jpg"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:200])
    first = build(f"folder:{folder}", tmp_path / "b", BuildSettings(recipe="size-0.1", renderer="paste", size=64))
    assert list(first.failures) == ["class1--0001"]
    broken.write_bytes(whole)
    second = build(f"folder:{folder}", tmp_path / "b", BuildSettings(recipe="size-0.1", renderer="paste", size=64))
    assert (second.failures, second.made) == ({}, 1)


def test_a_worker_that_dies_costs_its_source_alone(drawn_folder, tmp_path):
    from deadly_source import load_or_die

    source = replace(open_source(f"folder:{drawn_folder('photos', 5)}"), load=load_or_die)
    built = build(source, tmp_path / "b", BuildSettings(recipe="original", renderer="paste", size=64, workers=2))
    assert list(built.failures) == ["class0--0002"]
    assert "died twice" in built.failures["class0--0002"]
    assert built.counts == {"ok": 8, "skipped": 0, "failed": 2}


def test_a_source_that_no_file_shows_is_kept_as_png(tmp_path, drawn_folder):
    scenes = open_source(f"folder:{drawn_folder('photos', 2)}")
    put_together = replace(scenes, spec="cutouts:somewhere")
    build(put_together, tmp_path / "b", BuildSettings(recipe="original", renderer="paste", size=64))
    row = read_rows(tmp_path / "b", "class0--0000")[0]
    kept = cv2.imread(str(tmp_path / "b" / row.path), cv2.IMREAD_COLOR_RGB)
    assert row.path.endswith(".png")
    assert (kept == scenes["class0--0000"].image).all()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"seed": 8}, "seed: 7 there, 8 now"),
        ({"recipe": "imagenet-e-l"}, "recipe.name"),
        ({"frame": "squash"}, 'frame: "object" there, "squash" now'),
        ({"feather": 3.0}, "renderer.feather: 1.0 there, 3.0 now"),
        ({"limit": 5}, "source.scenes: 20 there, 5 now"),
    ],
)
def test_a_folder_with_another_benchmark_is_left_alone(sample_benchmark, tree, changed, words):
    before = tree(sample_benchmark)
    with pytest.raises(UserError, match="contains another benchmark") as caught:
        build("sample", sample_benchmark, BuildSettings(**{"renderer": "paste", "seed": 7, **changed}))
    assert words in str(caught.value)
    assert tree(sample_benchmark) == before


def test_changed_weights_are_another_benchmark(sample_benchmark, tmp_path):
    shutil.copytree(sample_benchmark, tmp_path / "b")
    card = json.loads((tmp_path / "b/benchmark.json").read_text())
    card["renderer"]["weights_sha256"] = "1" * 64
    (tmp_path / "b/benchmark.json").write_text(json.dumps(card))
    with pytest.raises(UserError, match="renderer.weights_sha256"):
        build("sample", tmp_path / "b", BuildSettings(renderer="paste", seed=7))


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match="contains files but no benchmark"):
        build("sample", tmp_path, BuildSettings(renderer="paste"))
    assert (tmp_path / "thesis.tex").read_text() == "precious"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"source": "sampel"}, "did you mean 'sample'"),
        ({"recipe": "imagenet-f"}, "did you mean 'imagenet-e'"),
        ({"recipe": "sise=0.1:0.2:3"}, "did you mean 'size'"),
        ({"recipe": "size=0.1:7:3"}, "allowed: .*0.001 to 1"),
        ({"recipe": "lighting(wher=both)=1"}, "did you mean 'where'"),
        ({"renderer": "pasta"}, "did you mean 'paste'"),
        ({"frame": "objekt"}, "did you mean 'object'"),
        ({"removal": "patchs"}, "did you mean 'patches'"),
        ({"classes": "giant pandaa"}, "did you mean 'giant panda'"),
        ({"engine": "lokal"}, "did you mean 'local'"),
        ({"runs": 0}, "runs is 0"),
        ({"size": 1}, "size is 1"),
        ({"seed": -1}, "seed is -1"),
        ({"limit": 0}, "limit is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"workers": 0}, "workers is 0"),
    ],
)
def test_a_wrong_request_says_what_is_allowed_and_writes_nothing(tmp_path, wrong, words):
    request = {"recipe": "original,size-0.1", "renderer": "paste", "limit": 2, **wrong}
    source = request.pop("source", "sample")
    with pytest.raises(UserError, match=words):
        build(source, tmp_path / "b", BuildSettings(**request))
    assert not list(tmp_path.glob("b/images"))


def test_a_source_without_masks_cannot_be_edited(drawn_folder, tmp_path):
    with pytest.raises(UserError, match="has no masks.*\n.*unswayed masks"):
        build(f"images:{drawn_folder('photos', 2) / 'images'}", tmp_path / "b", BuildSettings(renderer="paste"))


def test_masks_that_look_wrong_are_noted_in_rows_and_summed_up(tmp_path):
    from PIL import Image

    from unswayed.benchmark import Benchmark, BuildSettings, build
    from unswayed.sources import open_source

    scene = open_source("sample")["dog"]
    for folder, mask in (("dog", scene.mask), ("hound", 1 - scene.mask)):
        (tmp_path / "p" / folder).mkdir(parents=True)
        Image.fromarray(scene.image).save(tmp_path / "p" / folder / "1.jpg")
        Image.fromarray((255 * mask).astype("uint8")).save(tmp_path / "p" / folder / "1_mask.png")
    built = build(f"folder:{tmp_path}/p", tmp_path / "b", BuildSettings(recipe="original", renderer="paste", size=64))
    assert built.classes == {"dog": 1, "hound": 1}
    assert built.warnings == ("the mask looks inverted in 1 of 2 scenes: hound--1",)
    rows = Benchmark(tmp_path / "b").manifest.to_pylist()
    assert {row["source_id"]: "looks inverted" in row["notes"] for row in rows} == {"dog--1": False, "hound--1": True}


def test_every_picture_has_the_statistics_of_its_background(sample_benchmark: Path) -> None:
    rows = [
        row for row in Benchmark(sample_benchmark).manifest.to_pylist() if row["edit"] == "size-0.05" and row["path"]
    ]
    names = {"background_contrast", "background_dissimilarity", "background_amplitude"}
    assert rows
    assert all(names <= set(json.loads(row["measures"])) for row in rows)


def test_edits_that_move_the_object_are_made_over_several_fills(tmp_path):
    settings = {"recipe": "original,reinsertion,size-0.1,background-random", "renderer": "paste", "limit": 2}
    build("sample", tmp_path / "once", BuildSettings(**settings))
    build("sample", tmp_path / "twice", BuildSettings(**settings, fills=2))
    once, twice = (
        {(row["edit"], row["run"]): row for row in Benchmark(tmp_path / name).manifest.to_pylist()}
        for name in ("once", "twice")
    )
    added = {("reinsertion", 1), ("size-0.1", 1)}
    assert set(twice) - set(once) == added
    assert all(twice[key]["sha256"] == once[key]["sha256"] for key in once)  # the first fill is that of one fill
    first, second = (cv2.imread(str(tmp_path / "twice" / twice["size-0.1", run]["path"])).astype(int) for run in (0, 1))
    mask = cv2.imread(str(tmp_path / "twice" / twice["size-0.1", 0]["mask_path"]), cv2.IMREAD_GRAYSCALE)
    differs = (first != second).any(axis=2)
    inside = cv2.erode(mask, np.ones((9, 9), np.uint8)) == 255
    assert differs.mean() > 0.01 and not differs[inside].any()
    with pytest.raises(UserError, match="fills"):
        build("sample", tmp_path / "twice", BuildSettings(**settings, fills=3))
