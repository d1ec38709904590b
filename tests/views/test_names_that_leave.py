"""No name from a file can move a cursor, begin a line of a log as a command, turn text around, or become markup."""

import json

import polars as pl
import pytest

from command_line import run_cli
from prediction_worlds import frame, random_answers
from unswayed.errors import printable

HOSTILE = "m\n::error::x\x1b[31m\u202e<script>alert(1)</script>[a](http://e)|`c`\r"
EDIT = "bad\n::error::edit\x1b[0m\u202e<b>"
REMARK = "remark\n::error::remark\x1b[1m"


@pytest.fixture(scope="module")
def predictions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("names") / "p"
    folder.mkdir()
    classes = ["a\n::error::class\x1b[1m<u>", "b", "c", "d"]
    for index, name in enumerate((HOSTILE, "fine")):
        rows = frame(random_answers(index, 40, {"original": 0.95, "size-0.05": 0.5, EDIT: 0.6}), name)
        photograph = pl.col("source_id") + "\n::error::photo\x1b]0;x\x07<i>"
        predicted = (pl.col("label") + ~pl.col("correct")).cast(pl.Int32)
        rows = rows.with_columns(source_id=photograph, predicted=predicted, probability=pl.lit(0.6))
        rows.write_parquet(folder / f"m{index}.parquet")
        card = {"model": name, "labels": {"name": "own", "classes": classes}, "remarks": [REMARK]}
        (folder / f"m{index}.json").write_text(json.dumps(card))
    return folder


def harmful(text):
    lines = text.splitlines()
    return [repr(line) for line in lines if set(line) & set("\x1b\r\x07\u202e") or line.lstrip().startswith("::")]


@pytest.mark.parametrize(
    "command",
    [
        *(("analyze", "--format", kind) for kind in ("table", "csv", "json", "markdown", "latex")),
        *(("analyze", "--by", "class", "--format", kind) for kind in ("table", "csv", "markdown")),
        *(("analyze", "--wide", "--format", kind) for kind in ("table", "csv", "markdown")),
        *(("compare", "--format", kind) for kind in ("table", "csv", "json", "markdown")),
        *(("check", "--max-drop", "*=5", "--format", kind) for kind in ("table", "csv", "markdown")),
        ("compare", HOSTILE, "fine", "--same-model"),
        ("compare", "nobody", "fine"),
        ("status",),
        ("plan", "--drop", "5"),
    ],
    ids=lambda command: " ".join(map(printable, command)),
)
def test_no_command_prints_a_control(predictions, command):
    name, *options = command
    result = run_cli(name, predictions, *options)
    assert not harmful(result.stdout), harmful(result.stdout)[:3]
    assert not harmful(result.stderr), harmful(result.stderr)[:3]
    if "markdown" in options:
        assert "<script>" not in result.stdout.replace("\\<", "") and "](http" not in result.stdout.replace("\\]", "")


def test_no_file_holds_one(predictions, tmp_path):
    run_cli(
        "check",
        predictions,
        "--max-drop",
        "*=5",
        "--markdown",
        tmp_path / "c.md",
        "--junit",
        tmp_path / "c.xml",
        code=1,
    )
    run_cli("report", predictions, "-o", tmp_path / "r.html", "--assets", tmp_path / "assets", code=0)
    files = [tmp_path / "c.md", tmp_path / "c.xml", *(tmp_path / "assets").rglob("*.csv")]
    assert len(files) > 6
    for path in files:
        assert not harmful(path.read_text()), path.name
