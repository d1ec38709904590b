"""A package that adds one part of every kind: installed, each is used like the built-in ones everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from outside_package import install, path_with

PARTS = {
    "unswayed.edits": {"hand-shake": "outside_edit:Shake"},
    "unswayed.removals": {"plain": "outside_removal:Plain"},
    "unswayed.renderers": {"gray": "outside_renderer:open_gray"},
    "unswayed.sources": {"mirror": "outside_source:open_mirror"},
    "unswayed.models": {"hue": "outside_model:open_hue"},
    "unswayed.wrappers": {"negated": "outside_wrapper:negated"},
    "unswayed.analyses": {"certainty": "outside_analysis:certainty"},
    "unswayed.engines": {"noted": "outside_engine:NotedEngine"},
    "unswayed.trackers": {"ledger": "outside_tracker:open_ledger"},
    "unswayed.exporters": {"listing": "outside_exporter:write_listing"},
    "unswayed.segmenters": {"disc": "outside_segmenter:open_disc"},
}

# One process for all commands: their imports take longer than their work.
SCRIPT = """
import json, sys
import torch
from torchvision import tv_tensors
from command_line import run_cli

def unswayed(*arguments):
    return run_cli(*arguments, code=0).stdout

if __name__ == "__main__":
    unswayed("build", "mirror:3", "-o", "bench", "--recipe", "hand-shake=0.05:0.3:4", "--runs", 3,
             "--renderer", "paste", "--removal", "plain:77", "--engine", "noted", "--workers", 2)
    unswayed("evaluate", "bench", "-m", "lite:0", "-m", "hue:1", "-o", "predictions")
    unswayed("evaluate", "bench", "-m", "hue:1+negated", "-o", "negated")
    said = {"drops": json.loads(unswayed("analyze", "predictions", "--format", "json"))}
    said["certainty"] = json.loads(unswayed("analyze", "predictions", "--table", "certainty", "--format", "json"))
    unswayed("report", "predictions", "-o", "report.html", "--track", "ledger")
    unswayed("edit", sys.argv[1], "--hand-shake", 0.2, "--renderer", "paste", "--removal", "plain", "-o", "shaken.png")
    unswayed("edit", sys.argv[1], "--size", 0.1, "--renderer", "gray:90", "--removal", "plain", "-o", "gray.png")
    said["build"] = run_cli("build", "--help", env={"COLUMNS": "200"}).stdout
    said["edits"] = unswayed("edits")
    said["models"] = json.loads(unswayed("models", "--json"))
    unswayed("export", "bench", "--to", "listing", "-o", "listed")
    said["export"] = run_cli("export", "--help", env={"COLUMNS": "200"}).stdout
    unswayed("masks", "photographs", "-o", "masks", "--segmenter", "disc:0.25")

    from unswayed.evaluation.fragility import directions
    from unswayed.repair.settings import weights_of
    from unswayed.transforms import BatchEdit, EditMixture, RandomEdit, Scenes
    from unswayed.views.app.page import build_page
    from unswayed.views.app.results import Results
    from unswayed.views.app.studio import Studio

    page = build_page(Studio(["lite:0"]), Results("predictions"))
    components = {one["props"].get("elem_id"): one for one in page.config["components"]}
    said["shown"] = {name: (components[name]["type"], components[name]["props"]) for name in
                     ("on-hand-shake", "hand-shake-reach", "hand-shake-along")}
    said["directions"] = list(directions())
    shaken = EditMixture({"hand-shake": 1.0}, probability=1.0, most=1, ranges={"hand-shake": (0.2, 0.3)})
    assert EditMixture.from_json(shaken.to_json()) == shaken
    images, masks, _ = zip(*(Scenes("sample", 96)[place] for place in range(3)))
    images, masks = torch.stack([*images]), torch.stack([*masks])
    batch, moved = BatchEdit(shaken)(images, masks)
    torch.manual_seed(0)
    single, mask = RandomEdit(shaken)(tv_tensors.Image(images[0][:, :80]), tv_tensors.Mask(masks[0][:80]))
    said["trained"] = {
        "weights": weights_of({"hand-shake-0.1": 10.0, "size-0.05": 5.0}),
        # the object lies elsewhere and is inverted: its colors are those of a negative
        "batch": [float((after != before).float().mean()) for after, before in zip(moved, masks)],
        "inverted": [
            float(picture.permute(1, 2, 0)[after > 0.99].float().mean())
            + float(image.permute(1, 2, 0)[before > 0.99].float().mean())
            for picture, after, image, before in zip(batch, moved, images, masks)
        ],
        "single": [list(single.shape), float((mask > 0.5).float().mean()), bool((single != images[0][:, :80]).any())],
    }
    print(json.dumps(said, default=str))
"""


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    """The folder in which the commands ran with the package installed, and what they printed."""
    packages, folder = tmp_path_factory.mktemp("packages"), tmp_path_factory.mktemp("used")
    install(packages, PARTS)
    from unswayed.sources import open_source

    photograph = open_source("sample").entry("dog").image
    (folder / "photographs").mkdir()
    Image.open(photograph).save(folder / "photographs" / "dog.png")
    (folder / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py", str(photograph)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path_with(packages, Path(__file__).parent / "outside")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, json.loads(done.stdout.splitlines()[-1])


def test_the_build_makes_every_run_with_the_control_and_the_removal(outside) -> None:
    import pyarrow.parquet

    folder, _ = outside
    rows = pyarrow.parquet.read_table(folder / "bench" / "manifest.parquet").to_pylist()
    shaken = [row for row in rows if row["attribute"] == "hand-shake"]
    assert {row["run"] for row in shaken} == {0, 1, 2}
    assert {row["control"] for row in shaken} == {"reinsertion"}
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["run"] for row in rows if row["edit"] == "reinsertion"} == {0}
    of_one = [row["sha256"] for row in shaken if (row["source_id"], row["level"]) == (shaken[-1]["source_id"], "0.05")]
    assert len(set(of_one)) == 3
    card = json.loads((folder / "bench" / "benchmark.json").read_text())
    assert card["removal"] == {"spec": "plain:77", "name": "plain-77"}


def test_analyze_subtracts_its_control(outside) -> None:
    shaken = [row for row in outside[1]["drops"] if row["edit"].startswith("hand-shake")]
    assert len(shaken) == 2 * 4
    assert {(row["kind"], row["control"], row["runs"]) for row in shaken} == {("edit", "reinsertion", 3)}
    assert {row["model"] for row in shaken} == {"lite:0", "hue:1"}
    assert all(row["net_drop"] is not None for row in shaken)


def test_the_report_has_its_axis_label_and_its_words(outside) -> None:
    page = (outside[0] / "report.html").read_text(encoding="utf-8")
    assert "reach of the shake, share of the frame" in page
    assert "object shaken by up to 0.05 of the frame" in page


def test_the_app_has_its_switch_its_slider_and_its_list(outside) -> None:
    shown = outside[1]["shown"]
    assert shown["on-hand-shake"][1]["info"] == "how far a hand shakes the object"
    kind, slider = shown["hand-shake-reach"]
    assert (kind, slider["minimum"], slider["maximum"], slider["step"]) == ("slider", 0.0, 50.0, 2.0)  # in percent
    kind, choice = shown["hand-shake-along"]
    assert kind == "dropdown"
    assert [value for _, value in choice["choices"]] == ["both", "x", "y"]
    assert "object shaken" in outside[1]["directions"]


def test_the_commands_know_the_edit_and_the_removal(outside) -> None:
    folder, said = outside
    for words in ("hand-shake", "how far a hand shakes", "plain:VALUE", "fills the hole with one gray"):
        assert words in said["edits"]
    record = json.loads((folder / "shaken.json").read_text())
    assert record["request"]["chain"] == [{"edit": "hand-shake", "reach": 0.2, "along": "both"}]


def test_the_renderer_is_offered_and_draws(outside) -> None:
    folder, said = outside
    assert "puts the object on one gray" in said["edits"] and "gray" in said["build"]
    record = json.loads((folder / "gray.json").read_text())
    assert record["rendered_by"] == {"renderer": "gray:90", "device": "cpu"}
    picture, mask = (np.asarray(Image.open(folder / name)) for name in ("gray.png", "gray.mask.png"))
    assert (picture[mask == 0] == 90).all() and (picture[mask == 255] != 90).any()


def test_the_source_has_its_own_photographs(outside) -> None:
    from unswayed.sources import open_source

    card = json.loads((outside[0] / "bench" / "benchmark.json").read_text())
    assert card["source"]["spec"] == "mirror:3" and card["source"]["scenes"] == 3
    for file in (outside[0] / "bench" / "images" / "source").iterdir():
        found = np.asarray(Image.open(file).convert("RGB"))
        assert (found == open_source("sample")[file.stem].image[:, ::-1]).all()


def test_the_model_is_listed_and_evaluated(outside) -> None:
    folder, said = outside
    assert "hue" in said["models"]
    card = json.loads((folder / "predictions" / "hue-1.json").read_text())
    assert card["model"] == "hue:1"


def test_the_wrapper_is_listed_and_answers_the_opposite(outside) -> None:
    import polars as pl

    folder, said = outside
    assert "+negated" in said["models"]["wrappers"]
    plain, negated = (
        pl.read_parquet(folder / name).sort("sample_id")
        for name in ("predictions/hue-1.parquet", "negated/hue-1+negated.parquet")
    )
    assert (plain["energy"] != negated["energy"]).all()
    assert (plain["predicted"] != negated["predicted"]).all()
    cards = [
        json.loads((folder / name).read_text()) for name in ("predictions/hue-1.json", "negated/hue-1+negated.json")
    ]
    assert cards[0]["weights_sha256"] == cards[1]["weights_sha256"]  # as the guide of an attack it is the same model


def test_the_analysis_is_a_table_and_a_section_of_the_report(outside) -> None:
    import polars as pl

    folder, said = outside
    for row in said["certainty"]:
        answers = pl.read_parquet(folder / "predictions" / f"{row['model'].replace(':', '-')}.parquet")
        answers = answers.filter(pl.col("edit").cast(pl.String) == row["edit"])
        assert row["n"] == len(answers)
        assert row["certainty"] == pytest.approx(answers["probability"].mean(), abs=1e-6)
    assert {row["model"] for row in said["certainty"]} == {"lite:0", "hue:1"}
    assert "Certainty of each edit" in (folder / "report.html").read_text()


def test_the_engine_ran_the_build(outside) -> None:
    assert (outside[0] / "noted.txt").read_text().splitlines() == ["2"]


def test_the_tracker_was_told_the_numbers_of_the_table(outside) -> None:
    folder, said = outside
    entries = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    assert {entry["run"] for entry in entries} == {"run of lite:0", "run of hue:1"}
    metrics = {entry["run"]: entry["value"] for entry in entries if entry["kind"] == "metrics"}
    for row in said["drops"]:
        if row["edit"].startswith("hand-shake"):
            told = [value for name, value in metrics[f"run of {row['model']}"].items() if row["edit"] in name]
            assert any(value == pytest.approx(row["drop"]) for value in told)
    assert {"report.html"} <= {entry["value"] for entry in entries if entry["kind"] == "file"}


def test_the_exporter_lists_every_picture(outside) -> None:
    folder, said = outside
    lines = (folder / "listed" / "pictures.txt").read_text().splitlines()
    assert {line.split()[0] for line in lines} == {
        str(file.relative_to(folder / "bench")) for file in (folder / "bench" / "images").rglob("*.png")
    }
    assert "listing" in said["export"]


def test_the_segmenter_makes_masks(outside) -> None:
    mask = np.asarray(Image.open(outside[0] / "masks" / "dog.png").convert("L")) > 127
    assert mask.mean() == pytest.approx(np.pi * 0.25**2, abs=0.01)


def test_training_transforms_and_repair_draw_the_edit(outside) -> None:
    trained = outside[1]["trained"]
    assert trained["weights"]["hand-shake"] == 1.0
    assert trained["weights"]["size"] == 0.5
    assert min(trained["batch"]) > 0.01
    assert trained["inverted"] == pytest.approx([255.0] * 3, abs=8)
    shape, rate, changed = trained["single"]
    assert shape == [3, 80, 96]
    assert rate > 0.01
    assert changed
