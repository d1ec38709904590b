"""`unswayed check`, `compare` and `analyze` as a user runs them: exits, files, errors."""

import csv
import io
import json
import re
from dataclasses import dataclass
from xml.etree import ElementTree

import polars as pl
import pytest

from command_line import run_cli, run_cli_process
from prediction_worlds import folder, frame


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def write(path, models, n=400):
    """A predictions folder: model -> edit -> number of photographs lost."""
    path.mkdir(parents=True)
    for name, edits in models.items():
        rows = [
            {"model": name, "source_id": f"image-{i}", "edit": edit, "run": 0, "label": i % 7, "correct": i >= lost}
            for edit, lost in {"original": 0, **edits}.items()
            for i in range(n)
        ]
        pl.DataFrame(rows).write_parquet(path / f"{name}.parquet")
        (path / f"{name}.json").write_text(json.dumps({"model": name, "labels": {"name": "imagenet-1k"}}))
    return path


@pytest.fixture(scope="module")
def predictions(tmp_path_factory):
    models = {"good": {"size-0.05": 20, "position": 4}, "bad": {"size-0.05": 160, "position": 4}}
    return write(tmp_path_factory.mktemp("gate") / "p", models)


def test_exit_0_when_every_check_passes(predictions):
    done = run_cli("check", predictions, "-m", "good", "--max-drop", "size-0.05=20", "--min-accuracy", "90")
    assert done.exit_code == 0, done.stderr
    assert "unswayed check: pass" in done.stdout


def test_exit_1_when_one_fails_and_the_files_say_which(predictions, tmp_path):
    files = tmp_path / "check.json", tmp_path / "check.xml"
    done = run_cli("check", predictions, "--max-drop", "size-*=20", "--json", files[0], "--junit", files[1])
    assert done.exit_code == 1, done.stderr
    found = json.loads(files[0].read_text())
    assert found["verdict"] == "fail"
    assert {check["model"]: check["verdict"] for check in found["checks"]} == {"good": "pass", "bad": "fail"}
    suite = ElementTree.parse(files[1]).getroot()
    assert suite.get("failures") == "1"
    assert done.stdout.index("bad") < done.stdout.index("good"), "failures come first"


def test_an_undecided_check_shows_in_80_columns_how_many_photographs_would_decide(tmp_path):
    """Before, the column was left out where a name of an edit was long."""
    right = [1] * 86
    answers = {"original": right, "background-random": right, "size-0.05": [0] * 16 + [1] * 70}
    there = folder(tmp_path / "p", {"mine": frame(answers)})
    limits = ("--max-drop", "size-0.05=20", "--max-drop", "background-random=15")
    text = run_cli("check", there, *limits, code=3, env={"COLUMNS": "80"}).stdout
    (heading,) = (line for line in text.splitlines() if line.split()[:2] == ["edit", "measure"])
    (row,) = (line for line in text.splitlines() if line.split()[:1] == ["size-0.05"])
    assert re.match(r"unswayed check: cannot tell; about [\d,]+ more photographs would decide", text)
    assert heading.split()[-2:] == ["limit", "more"]
    assert re.fullmatch(r"[\d,]+", row.split()[-1]) and row.split()[-2] == "20.00"


def test_the_first_line_says_which_drop_is_so_close_to_its_limit_that_no_photographs_decide(tmp_path):
    """Before, it ended after "cannot tell" where one of the checks could not be decided."""
    answers = {"original": [1] * 80, "position": [0] * 16 + [1] * 64, "size-0.05": [0] * 14 + [1] * 66}
    there = folder(tmp_path / "p", {"mine": frame(answers)})
    text = run_cli("check", there, "--max-drop", "position=20", "--max-drop", "size-0.05=20", code=3).stdout
    first = "unswayed check: cannot tell; position: too close to the limit for any number of photographs"
    assert " ".join(text.split()).startswith(first)


def test_exit_3_when_the_interval_straddles_the_threshold(predictions):
    done = run_cli("check", predictions, "-m", "bad", "--max-drop", "size-0.05=40")
    assert done.exit_code == 3, done.stderr
    assert "cannot tell" in done.stdout


def test_a_shell_sees_the_exit(predictions):
    run_cli_process("check", predictions, "-m", "bad", "--max-drop", "size-0.05=40", code=3)


def test_a_baseline_and_a_config(predictions, tmp_path):
    new = write(tmp_path / "new", {"good": {"size-0.05": 100, "position": 4}})
    config = tmp_path / "gate.toml"
    config.write_text(f'[baseline]\npath = "{predictions}"\nmargin = 5\n')
    done = run_cli("check", new, "--config", config)
    assert done.exit_code == 1, done.stderr
    assert run_cli("check", new, "--config", config, "--margin", "40").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is nothing to check"),
        (["--max-drop", "size-0.5=20"], "did you mean 'size-0.05'"),
        (["--max-drop", "size-0.05"], "EDIT=NUMBER"),
        (["--min-accuracy", "0.9"], "90 means 90 %"),
        (["--max-drop", "position=3", "-m", "goood"], "did you mean 'good'"),
        (["--config", "nowhere.toml"], "does not exist"),
        (["--baseline", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_exit_2_and_a_reason_for_a_mistake(predictions, arguments, message):
    done = run_cli("check", predictions, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_compare_names_the_more_robust_model(predictions):
    done = run_cli("compare", predictions, "good", "bad", "--format", "json")
    assert done.exit_code == 0, done.stderr
    found = {row["edit"]: row for row in json.loads(done.stdout)}
    assert found["size-0.05"]["verdict"] == "first drops less"
    assert found["size-0.05"]["drop_difference"] == pytest.approx(-35)
    assert found["position"]["verdict"] == "no difference shown"
    assert "good against bad; by drop" in run_cli("compare", predictions, "good", "bad").stdout
    assert run_cli("compare", predictions, "good", "bda").exit_code == 2


def test_analyze_prints_records_with_the_promised_keys(predictions):
    done = run_cli("analyze", predictions, "--format", "json")
    assert done.exit_code == 0, done.stderr
    records = json.loads(done.stdout)
    keys = {"model", "edit", "n", "accuracy", "drop", "low", "high", "net_drop", "p_value"}
    assert all(keys <= set(record) for record in records)
    found = next(one for one in records if one["model"] == "bad" and one["edit"] == "size-0.05")
    assert (found["n"], found["accuracy"], found["drop"]) == (400, 0.6, 40)
    assert found["low"] < 40 < found["high"]


def test_analyze_in_every_format(predictions, tmp_path):
    rows = list(csv.DictReader(io.StringIO(run_cli("analyze", predictions, "--format", "csv").stdout)))
    assert float(rows[1]["drop"]) == 1.0
    assert "| bad | size-0.05 | 400 |" in run_cli("analyze", predictions, "--format", "markdown").stdout
    assert r"\toprule" in run_cli("analyze", predictions, "--format", "latex").stdout
    assert "size-0.05" in run_cli("analyze", predictions).stdout
    by_class = tmp_path / "classes.csv"
    done = run_cli("analyze", predictions, "--by", "class", "-e", "size-0.05", "--format", "csv", "-o", by_class)
    assert done.stdout == ""
    assert {row["class"] for row in csv.DictReader(by_class.open())} >= {"tench", "goldfish"}
    done = run_cli("analyze", predictions, "--format", "markdwn")
    assert done.exit_code == 2
    assert "'markdown'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table", "curvs"], "did you mean 'curves'"),
        (["--table", "fits", "--by", "class"], "--by is not for the table 'fits'"),
        (["--table", "fits", "--at-accuracy", "80"], "--table thresholds"),
        (["--by", "class", "--groups", "all"], "both --by and --groups"),
        (["--by", "colour"], "no column to split by 'colour'"),
    ],
)
def test_analyze_refuses_what_it_cannot_do(predictions, arguments, message):
    done = run_cli("analyze", predictions, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_tables_without_a_sweep_or_grid_say_so(predictions):
    assert "no sweep" in run_cli("analyze", predictions, "--table", "fits").stdout
    assert "no grid" in run_cli("analyze", predictions, "--table", "interactions").stdout
    assert json.loads(run_cli("analyze", predictions, "--table", "flips", "--format", "json").stdout) == []
