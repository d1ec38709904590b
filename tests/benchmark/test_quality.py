"""The validity of built pictures: in the manifest, checked by verify, and used by `quality="strict"`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from benchmark_scripts import load_script
from unswayed.benchmark import Benchmark, BuildSettings, build, verify
from unswayed.benchmark.plan import Plan
from unswayed.edits.geometry import resized
from unswayed.edits.recipes import open_recipe
from unswayed.errors import UserError
from unswayed.scene import frame
from unswayed.sources import open_source

PETS = Path(__file__).parents[1] / "data" / "oxford-iiit-pet"
COLUMNS = ["validity", "validity_reasons", "validity_measures"]


@pytest.fixture(scope="module")
def measurement():
    """The command that plants faults, as a module."""
    return load_script("validity")


@pytest.mark.parametrize("source", ["sample", f"oxford-pet:{PETS}?split=all"])
def test_planted_faults_are_found_and_good_pictures_are_not_flagged(measurement, source, tmp_path):
    recipe = open_recipe("original,background-random,size-0.05,position")
    plan = Plan(tmp_path, open_source(source).select(4, None), recipe, BuildSettings(renderer="paste"))
    found = measurement.flagged(plan, trials=12)
    assert found.pop("ordinary pictures")[0] == 0
    assert len(found) == 5
    assert all(flagged >= 10 for flagged, _ in found.values()), found


def test_pictures_of_the_sample_are_valid_unless_patches_drew_combs_and_tunnels(sample_benchmark):
    table = Benchmark(sample_benchmark).manifest
    edited = [row for row in table.to_pylist() if row["status"] == "ok" and row["edit"] != "source"]
    flagged = [row for row in edited if row["validity"] < 0.5]
    assert {row["source_id"] for row in flagged if row["edit"] == "size-0.05"} == {"koala", "panda"}
    assert all("repeats fine detail" in json.loads(row["validity_reasons"])[0] for row in flagged)
    assert all((json.loads(row["validity_reasons"]) == []) is (row["validity"] >= 0.5) for row in edited)
    measured = [json.loads(row["validity_measures"]) for row in edited]
    assert all(one["object"] == one["outside"] == 0 for one in measured)
    assert {row["validity"] for row in table.to_pylist() if row["edit"] == "source"} == {None}


def test_pictures_do_not_depend_on_the_quality_setting(drawn_folder, tmp_path, tree):
    source = f"folder:{drawn_folder('photos', 3)}"
    settings = {"recipe": "original,position,size-0.1", "renderer": "paste", "size": 64}
    for quality in ("off", "report", "strict"):
        build(source, tmp_path / quality, BuildSettings(**settings, quality=quality, tries=0))
    assert tree(tmp_path / "off" / "images") == tree(tmp_path / "report" / "images")
    kept = tree(tmp_path / "strict" / "images")
    assert kept.items() <= tree(tmp_path / "report" / "images").items()
    off = Benchmark(tmp_path / "off").manifest
    assert off.column("validity").null_count == len(off)


def test_strict_makes_an_invalid_picture_again_and_then_leaves_it_out(drawn_folder, tmp_path, monkeypatch):
    from unswayed.benchmark import quality

    source, settings = f"folder:{drawn_folder('photos', 1)}", {"renderer": "paste", "size": 64, "quality": "strict"}
    tried = []

    def faults(row, layers, answer, evidence):
        tried.append((row.edit, row.seed))
        third = row.edit == "position" and sum(edit == "position" for edit, _ in tried) == 3
        return {"noise": 0.0 if row.edit in ("original", "reinsertion") or third else 50.0}

    monkeypatch.setattr(quality, "find_faults", faults)
    monkeypatch.setattr("unswayed.jobs._packed", lambda worker, optional: None)  # this process has the planted faults
    built = build(source, tmp_path / "bench", BuildSettings(**settings, recipe="original,position,size-0.1", tries=3))
    rows = {row["edit"]: row for row in Benchmark(tmp_path / "bench").manifest.to_pylist()}
    seeds = [seed for edit, seed in tried if edit == "position"]
    assert len(set(seeds)) == 3
    assert rows["position"]["status"] == "ok"
    assert rows["position"]["seed"] == seeds[-1]
    assert rows["size-0.1"]["status"] == "skipped"  # nothing in it is drawn
    assert "noise" in rows["size-0.1"]["reason"]
    assert (built.left_out, built.invalid) == (1, 0)
    assert verify(tmp_path / "bench").passed
    with pytest.raises(UserError, match="strict"):
        build(source, tmp_path / "bench", BuildSettings(renderer="paste", size=64, recipe="original,position,size-0.1"))


def test_strict_with_a_network_explains_what_it_draws_again_and_leaves_out(tmp_path, monkeypatch):
    from unswayed.benchmark import quality

    measured = quality.find_faults
    seeds: dict[str, list[int]] = {}

    def faults(row, layers, answer, evidence):
        seeds.setdefault(row.edit, []).append(row.seed)
        found = measured(row, layers, answer, evidence)
        assert (row.edit == "original") != answer.generated
        # A network has no planted faults of its own: the first picture of each edit gets noise, and inversion always.
        first = row.edit != "original" and (row.edit == "inversion" or len(seeds[row.edit]) == 1)
        return {**found, "noise": 9.0 if first else found["noise"]}

    monkeypatch.setattr(quality, "find_faults", faults)
    monkeypatch.setattr("unswayed.jobs._packed", lambda worker, optional: None)  # this process has the planted faults
    settings = BuildSettings(
        renderer="diffusion", recipe="original,inversion,size-0.05", steps=2, quality="strict", tries=1, device="cpu"
    )
    built = build(open_source("sample")[7:8], tmp_path / "bench", settings)
    rows = {row["edit"]: row for row in Benchmark(tmp_path / "bench").manifest.to_pylist()}
    assert len(seeds["original"]) == 1 and len(set(seeds["inversion"])) == len(set(seeds["size-0.05"])) == 2
    assert rows["size-0.05"]["status"] == "ok" and rows["size-0.05"]["seed"] == seeds["size-0.05"][1]
    assert json.loads(rows["size-0.05"]["validity_measures"])["recognized"] < 0.5  # the classifier was asked
    assert (built.left_out, built.invalid) == (1, 0)
    assert rows["inversion"]["status"] == "skipped"
    assert "left out as invalid, after 1 more try: the background gained noise" in rows["inversion"]["reason"]


def test_a_salient_network_is_asked_about_the_removed_object(drawn_folder, tmp_path):
    from unswayed.benchmark.prepare import Preparation
    from unswayed.benchmark.quality import Witness

    settings = BuildSettings(renderer="paste", size=64, recipe="size-0.1")
    plan = Plan(tmp_path, open_source(f"folder:{drawn_folder('photos', 1)}"), open_recipe("size-0.1"), settings)
    (scene_id,) = plan.source.ids
    scene = plan.source[scene_id]
    for found, expected in ((lambda image, box: resized(frame(scene, "object").mask, 64), 1.0), (None, None)):
        preparation = Preparation(plan)
        preparation.__dict__["witness"] = Witness(
            preparation.backgrounds, segmenter=None if found is None else lambda found=found: found
        )
        known = preparation(scene_id)[-1].evidence
        assert known.left.get("salient") == expected


def test_verify_holds_a_score_against_its_measures(sample_benchmark, tmp_path):
    root = Path(shutil.copytree(sample_benchmark, tmp_path / "bench"))
    path = root / "manifest.parquet"
    table = parquet.read_table(path)
    rows = table.to_pylist()
    at = next(at for at, row in enumerate(rows) if row["sample_id"] == "dog/position/0")
    rows[at]["validity"] = 0.9 if rows[at]["validity"] < 0.8 else 0.6
    parquet.write_table(table.from_pylist(rows, schema=table.schema), path)
    assert any("dog/position/0: has the validity" in str(problem) for problem in verify(root).problems)
