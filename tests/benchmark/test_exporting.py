"""Exports opened by the libraries they are for, and the way back: the same labels, bytes, hashes and credits."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from PIL import Image

from command_line import refused, run_cli
from object_world import MODELS, write_objects
from unswayed.benchmark import Benchmark, export, import_published, verify
from unswayed.benchmark.building import build
from unswayed.benchmark.rows import read_rows, write_rows
from unswayed.errors import UserError
from unswayed.evaluation import run_evaluation
from unswayed.sources.coco import read_objects, run_length_mask


def finished(bench: Path) -> list[dict]:
    return [row for row in Benchmark(bench).manifest.to_pylist() if row["status"] == "ok"]


@pytest.fixture(scope="module")
def published(bench, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "animals"
    export(bench, "datasets", folder)
    return folder


def tree(root: Path) -> dict[str, bytes]:
    """Every file of a benchmark but its caches, with its bytes."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {one.relative_to(root).as_posix(): one.read_bytes() for one in files if not one.name.startswith(".")}


def test_a_benchmark_comes_back_from_a_datasets_folder_with_the_same_files(bench, published, tmp_path):
    seen = []
    back = import_published(published, tmp_path / "back", progress=lambda done, total: seen.append((done, total)))
    assert back.failures == {} and back.sources == 6 and seen[-1] == (len(finished(bench)),) * 2
    assert verify(tmp_path / "back").passed
    files = tree(tmp_path / "back")
    credits = files.pop("CREDITS.csv")
    assert files == {name: data for name, data in tree(bench).items() if not name.startswith(".cache")}
    names = [row["photograph"] for row in csv.DictReader(io.StringIO(credits.decode()))]
    assert names == ["bison", "cat", "chameleon", "chicken", "cow", "crab"]


def test_a_folder_that_came_back_can_be_exported_again_with_its_credits(published, tmp_path):
    import_published(published, tmp_path / "back")
    export(tmp_path / "back", "datasets", tmp_path / "again")
    assert (tmp_path / "again" / "CREDITS.csv").read_bytes() == (published / "CREDITS.csv").read_bytes()


@pytest.mark.parametrize("to", ["imagefolder", "datasets"])
def test_swapped_pictures_and_changed_rows_are_not_exported(bench, tmp_path, to):
    swapped, changed = (Path(shutil.copytree(bench, tmp_path / name)) for name in ("swapped", "changed"))
    shutil.copyfile(bench / "images/original/cat.png", swapped / "images/original/cow.png")
    with pytest.raises(UserError, match=r"cow\.png has changed since it was built"):
        export(swapped, to, tmp_path / "one")
    rows = read_rows(changed, "cat")
    write_rows(changed, "cat", [replace(row, label=0) for row in rows])
    with pytest.raises(UserError, match=r"rows/cat\.json: does not match the manifest"):
        export(changed, to, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_load_dataset_opens_the_folder_as_it_is(bench, published, tmp_path):
    datasets = pytest.importorskip("datasets", reason="pip install 'unswayed[datasets]'")
    opened = datasets.load_dataset(str(published), split="test", cache_dir=str(tmp_path))
    rows = finished(bench)
    assert opened["sample_id"][:] == [row["sample_id"] for row in rows]
    assert opened["label"][:] == [row["label"] for row in rows]
    assert opened.features["label"].int2str(rows[0]["label"]) == Benchmark(bench).labels.classes[rows[0]["label"]]
    assert opened[0]["image"].size == Image.open(bench / rows[0]["path"]).size
    stored = opened.cast_column("image", datasets.Image(decode=False)).cast_column("mask", datasets.Image(decode=False))
    for row, found in zip(rows, stored, strict=True):
        assert found["image"]["bytes"] == (bench / row["path"]).read_bytes()
        assert (found["mask"] is None) == (row["mask_path"] is None)
        if row["mask_path"]:
            assert found["mask"]["bytes"] == (bench / row["mask_path"]).read_bytes()
    card = (published / "README.md").read_text()
    assert "| size-0.05 | 6 | 0 |" in card and "path: data/test-*.parquet" in card


def test_image_folders_open_in_torchvision_and_timm(bench, tmp_path):
    from timm.data import create_dataset
    from torchvision.datasets import ImageFolder

    made = export(bench, "imagefolder", tmp_path / "folders")
    rows = [row for row in finished(bench) if row["edit"] == "position"]
    assert made.pictures == len(finished(bench)) and len(rows) == 12
    opened = ImageFolder(str(tmp_path / "folders" / "position"))
    wnids = Benchmark(bench).labels.wnids
    assert sorted(Path(path).name for path, _ in opened.samples) == sorted(Path(row["path"]).name for row in rows)
    by_name = {Path(path).name: Path(path) for path, _ in opened.samples}
    for row in rows:
        path = by_name[Path(row["path"]).name]
        assert path.parent.name == wnids[row["label"]]
        assert path.read_bytes() == (bench / row["path"]).read_bytes()
    timm = create_dataset(
        "", root=str(tmp_path / "folders" / "position"), class_map=str(tmp_path / "folders" / "class_map.txt")
    )
    assert sorted(timm[at][1] for at in range(len(timm))) == sorted(row["label"] for row in rows)


LOOK = """
import json, sys
import fiftyone
from unswayed.errors import UserError
from unswayed.benchmark import export

bench, predictions = sys.argv[1:]
try:
    fiftyone.list_datasets()
except Exception as error:
    sys.exit(f"no database: {error}")
export(bench, "fiftyone", "animals", predictions=predictions)
opened = fiftyone.load_dataset("animals")
samples = {
    one.sample_id: [
        one.filepath, one.ground_truth.label, one.object and one.object.mask_path, one.predicted_lite_0.label, one.flips
    ]
    for one in opened.select_group_slices()
}
try:
    export(bench, "fiftyone", "animals")
    again = "written"
except UserError as error:
    again = str(error)
found = {
    "persistent": opened.persistent,
    "groups": len(opened.distinct("group.id")),
    "slices": sorted(opened.group_slices),
    "samples": samples,
    "flips": sorted(one.sample_id for one in opened.load_saved_view("flips")),
    "again": again,
}
print("FOUND", json.dumps(found))
"""


@pytest.mark.slow  # FiftyOne and its database take half a minute to start
def test_fiftyone_shows_groups_masks_predictions_and_flips(bench, predictions, tmp_path):
    if find_spec("fiftyone") is None:
        pytest.skip("pip install 'unswayed[fiftyone]'")
    # A process of its own, since FiftyOne reads where its database is when it is imported.
    settings = {"FIFTYONE_DATABASE_DIR": str(tmp_path / "database"), "FIFTYONE_DO_NOT_TRACK": "true"}
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(bench), str(predictions)],
        env={**os.environ, **settings}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "no database:" in done.stderr:
        pytest.skip(f"FiftyOne's database does not run here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.partition("FOUND ")[2])
    assert found["persistent"] and found["groups"] == 6
    two = [f"{edit}{run}" for edit in ("background-random", "position") for run in ("", "-run1")]
    assert found["slices"] == sorted(["source", "original", "reinsertion", "size-0_05", *two])
    answers = {one["sample_id"]: one for one in parquet.read_table(predictions / "lite-0.parquet").to_pylist()}
    right = {one["source_id"] for one in answers.values() if one["edit"] == "original" and one["correct"]}
    flips = sorted(
        name
        for name, one in answers.items()
        if one["edit"] not in ("original", "source") and one["source_id"] in right and not one["correct"]
    )
    assert flips and found["flips"] == flips
    classes, rows = Benchmark(bench).labels.classes, finished(bench)
    assert found["samples"] == {
        row["sample_id"]: [
            str((bench / row["path"]).resolve()),
            classes[row["label"]],
            str((bench / row["mask_path"]).resolve()) if row["mask_path"] else None,
            classes[answers[row["sample_id"]]["predicted"]],
            ["lite:0"] if row["sample_id"] in flips else [],
        ]
        for row in rows
    }
    assert "already has a dataset 'animals'" in found["again"]


LOOK_AT_OBJECTS = """
import json, sys
import fiftyone
from unswayed.benchmark import export

try:
    fiftyone.list_datasets()
except Exception as error:
    sys.exit(f"no database: {error}")
export(sys.argv[1], "fiftyone", "objects", predictions=sys.argv[2])
found = {}
for sample in fiftyone.load_dataset("objects").select_group_slices():
    for field in ("other_objects", "predicted_exact_box", "predicted_instances_box"):
        detections = sample[field].detections if sample[field] else []
        found[f"{sample.sample_id} {field}"] = [
            [each.label, each.bounding_box, None if each.mask is None else each.mask.tolist(), each.confidence]
            for each in detections
        ]
print("FOUND", json.dumps(found))
"""


@pytest.mark.slow  # FiftyOne and its database take half a minute to start
def test_fiftyone_shows_the_boxes_and_masks_of_what_was_found_and_of_the_other_objects(tmp_path):
    if find_spec("fiftyone") is None:
        pytest.skip("pip install 'unswayed[fiftyone]'")
    file, bench, predictions = write_objects(tmp_path / "photographs", count=2), tmp_path / "b", tmp_path / "p"
    (tmp_path / "finders.py").write_text(MODELS)
    build(f"coco:{file}", bench, recipe="original,size-0.05", renderer="paste", workers=1, quality="off")
    run_evaluation(
        bench, [f"{name}=python:{tmp_path}/finders.py:{name}" for name in ("exact", "instances")], predictions
    )
    done = subprocess.run(
        [sys.executable, "-c", LOOK_AT_OBJECTS, str(bench), str(predictions)],
        env={**os.environ, "FIFTYONE_DATABASE_DIR": str(tmp_path / "database"), "FIFTYONE_DO_NOT_TRACK": "true"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "no database:" in done.stderr:
        pytest.skip(f"FiftyOne's database does not run here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.partition("FOUND ")[2])
    classes, rows = Benchmark(bench).labels.classes, finished(bench)

    def detection(label, box, mask, confidence):
        left, top, right, bottom = box
        part = np.s_[int(top) : int(bottom), int(left) : int(right)]
        inside = None if mask is None else (run_length_mask(mask, 256, 256)[part] > 0).tolist()
        return [classes[label], [left / 256, top / 256, (right - left) / 256, (bottom - top) / 256], inside, confidence]

    names = [row["sample_id"] for row in rows]
    # Models are not asked about the photographs as they were found.
    expected = {f"{name} predicted_{model}_box": [] for name in names for model in ("exact", "instances")}
    for row in rows:
        others = read_objects(row["objects"], "row")
        expected[f"{row['sample_id']} other_objects"] = [detection(it.label, it.box, it.mask, None) for it in others]
    for name in ("exact", "instances"):
        for row in parquet.read_table(predictions / f"{name}.parquet").to_pylist():
            assert row["correct"] and (row["mask"] is None) == (name == "exact")
            box = detection(row["predicted"], row["box"], row["mask"], row["probability"])
            expected[f"{row['sample_id']} predicted_{name}_box"] = [box]
    assert found == expected and any(expected[f"{name} other_objects"] for name in names)


def test_a_changed_picture_is_reported_when_it_comes_back(published, tmp_path):
    shutil.copytree(published, tmp_path / "broken")
    [path] = (tmp_path / "broken" / "data").glob("*.parquet")
    table = parquet.read_table(path)
    images = table.column("image").to_pylist()
    images[1]["bytes"] += b"x"
    changed = table.set_column(0, table.schema.field("image"), pa.array(images, table.schema.field("image").type))
    parquet.write_table(changed.slice(0, len(changed) - 1), path)
    back = import_published(tmp_path / "broken", tmp_path / "back")
    names = table.column("sample_id").to_pylist()
    assert set(back.failures) == {names[1], names[-1]}
    assert "does not match" in back.failures[names[1]] and "no picture" in back.failures[names[-1]]


@pytest.mark.parametrize("edit", ["../../away", "/tmp/away", "a/b", "..", "."])
def test_an_edit_whose_name_is_no_folder_is_refused_before_anything_is_written(bench, edit, tmp_path):
    copied = Path(shutil.copytree(bench, tmp_path / "in" / "bench"))
    table = parquet.read_table(copied / "manifest.parquet")
    rows = table.to_pylist()
    rows[1]["edit"] = edit
    parquet.write_table(pa.Table.from_pylist(rows, schema=table.schema), copied / "manifest.parquet")
    with pytest.raises(UserError, match="column 'edit' has .*, which is no name of a folder"):
        export(copied, "imagefolder", tmp_path / "in" / "out" / "folders")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_class_folders_from_a_card_are_single_names(bench, tmp_path):
    copied = Path(shutil.copytree(bench, tmp_path / "bench"))
    card = json.loads((copied / "benchmark.json").read_text())
    card["labels"] = {"name": "own", "classes": ["a", "b"], "wnids": ["../../away", "b"]}
    (copied / "benchmark.json").write_text(json.dumps(card))
    with pytest.raises(UserError, match="some are not WNIDs"):
        export(copied, "imagefolder", tmp_path / "folders")


@pytest.mark.parametrize("to", ["datasets", "imagefolder"])
def test_pipes_and_missing_pictures_are_refused_by_name(bench, to, tmp_path):
    copied = Path(shutil.copytree(bench, tmp_path / "bench"))
    picture = copied / finished(copied)[0]["path"]
    picture.unlink()
    with pytest.raises(UserError, match=f"{picture.name} does not exist"):
        export(copied, to, tmp_path / "missing")
    os.mkfifo(picture)
    with pytest.raises(UserError, match=f"{picture.name} is no file"):
        export(copied, to, tmp_path / "pipe")


def test_a_file_that_expands_to_more_than_its_size_allows_is_not_imported(published, tmp_path, monkeypatch):
    monkeypatch.setattr("unswayed.files.tables.MOST_BYTES", 2**24)
    copied = Path(shutil.copytree(published, tmp_path / "copied"))
    [shard] = (copied / "data").glob("*.parquet")
    picture = pa.array([bytes(2**24 + 1)])
    table = pa.table({"sample_id": ["a"], "image": pa.StructArray.from_arrays([picture], ["bytes"])})
    parquet.write_table(table, shard, compression="zstd")
    assert shard.stat().st_size < 2**16
    with pytest.raises(UserError, match="holds a table of"):
        import_published(copied, tmp_path / "back")


def test_a_manifest_that_names_files_outside_the_benchmark_is_refused(published, tmp_path):
    for column, value in (("source_id", "../../away"), ("mask_path", "/etc/away.png")):
        evil = tmp_path / column
        shutil.copytree(published, evil)
        manifest = evil / "benchmark" / "manifest.parquet"
        table = parquet.read_table(manifest)
        rows = table.to_pylist()
        rows[0][column] = value
        parquet.write_table(pa.Table.from_pylist(rows, schema=table.schema), manifest)
        with pytest.raises(UserError, match="outside the benchmark"):
            import_published(evil, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_push_and_import_through_the_hub(bench, tmp_path, monkeypatch, capsys):
    """The Hub's two functions are replaced by a folder: what was uploaded is what comes down."""
    import huggingface_hub

    calls = []

    class Hub:
        def create_repo(self, repo, **settings):
            calls.append((repo, settings["private"], settings["repo_type"]))

        def upload_folder(self, *, repo_id, folder_path, **settings):
            shutil.copytree(folder_path, tmp_path / "hub" / repo_id)

    def download(name, *, repo_type, revision):
        assert (repo_type, revision) == ("dataset", "v1")
        return str(tmp_path / "hub" / name)

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    exported = run_cli("export", bench, "--to", "datasets", "-o", tmp_path / "out", "--push", "me/it", code=0)
    assert calls == [("me/it", True, "dataset")]
    assert "https://huggingface.co/datasets/me/it" in exported.stdout
    run_cli("import", "hf:me/it@v1", "-o", tmp_path / "back", code=0)
    assert verify(tmp_path / "back").passed


def test_a_hub_that_cannot_be_reached_is_a_users_error(tmp_path, monkeypatch):
    import huggingface_hub

    def refuse(*names, **settings):
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(UserError, match="could not be downloaded: no route"):
        import_published("hf:me/it", tmp_path / "back")


def test_a_folder_with_files_and_wrong_options_are_refused(bench, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        export(bench, "imagefolder", tmp_path / "full")
    with refused("did you mean 'datasets'", given="'dataset'", allowed="datasets, imagefolder, fiftyone"):
        export(bench, "dataset", tmp_path / "new")
    with refused(given="--predictions", allowed="--to fiftyone"):
        export(bench, "datasets", tmp_path / "new", predictions=tmp_path)
    with pytest.raises(UserError, match="not a benchmark that unswayed exported"):
        import_published(tmp_path / "full", tmp_path / "new")


def test_missing_fiftyone_names_its_pip_line(bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "fiftyone", None)
    with pytest.raises(UserError, match=r"pip install 'unswayed\[fiftyone\]'"):
        export(bench, "fiftyone", "animals")
