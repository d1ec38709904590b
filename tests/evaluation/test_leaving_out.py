"""`--leave-out doubted`: photographs whose masks have a warning or a low confidence enter no result."""

import json
from dataclasses import replace

import pytest

import unswayed
from command_line import run_cli
from unswayed.benchmark import BuildSettings, build
from unswayed.sources import open_source
from unswayed.sources.pictures import load_scene

DOUBTED = ("cat", "pig", "sheep")


def load_with_inverted_masks(entry):
    scene = load_scene(entry)
    return replace(scene, mask=1 - scene.mask) if entry.id in DOUBTED else scene


@pytest.fixture(scope="module")
def predictions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doubted")
    source = replace(open_source("sample", limit=20), load=load_with_inverted_masks)
    kept = tuple(entry for entry in source.entries if entry.id in (*DOUBTED, "koala", "panda", "lemur", "duck"))
    settings = BuildSettings(recipe="lighting=2", renderer="paste", size=64, quality="report")
    build(replace(source, entries=kept), folder / "bench", settings)
    done = run_cli("evaluate", str(folder / "bench"), "-m", "lite:0", "-o", str(folder / "predictions"))
    assert done.exit_code == 0, done.output
    return folder / "predictions"


def counted(predictions, *options):
    answer = run_cli("analyze", str(predictions), "--format", "json", *options)
    assert answer.exit_code == 0, answer.output
    return {row["edit"]: row["n"] for row in json.loads(answer.stdout)}


def test_analyze_leaves_them_out(predictions):
    assert counted(predictions)["lighting+2"] == 7
    assert counted(predictions, "--leave-out", "doubted")["lighting+2"] == 4


def test_check_judges_the_others_where_the_masks_as_a_whole_are_doubted(predictions):
    limits = {"max_drop": {"lighting+2": 50.0}}
    (judged,) = unswayed.check(predictions, **limits).checks.to_dicts()
    assert judged["verdict"] == "not measured" and "the masks may be wrong" in judged["reason"]
    (judged,) = unswayed.check(predictions, leave_out="doubted", **limits).checks.to_dicts()
    assert judged["n"] == 4 and "masks" not in (judged["reason"] or "")


def test_the_report_leaves_them_out(predictions, tmp_path):
    command = ["report", str(predictions), "--heat-maps", "0", "-o", str(tmp_path / "report.html")]
    assert run_cli(*command, "--leave-out", "doubted", "--assets", str(tmp_path / "assets")).exit_code == 0
    drops = (tmp_path / "assets" / "drops.csv").read_text()
    edited = next(line for line in drops.splitlines() if line.startswith("lite:0,lighting+2,"))
    assert edited.split(",")[3] == "4"
