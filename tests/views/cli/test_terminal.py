"""What people read in a terminal: tables of 80 columns, progress in passes, the next command, help without noise."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import polars as pl
import pytest

import unswayed
import unswayed.evaluation as evaluation
from command_line import run_cli
from unswayed.analyses.tables import analyze
from unswayed.benchmark import BuildSettings, build
from unswayed.benchmark.building import Progress
from unswayed.views.cli import COMMANDS, build_app
from unswayed.views.cli.progress import ProgressLine, say
from unswayed.views.report.drop_tables import analysis_text

LONG_NAME = "timm:a_model_with_a_rather_long_name.in1k"


@pytest.fixture(scope="module")
def predictions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models on 60 photographs: a sure drop, a drop that may be chance, a control and a sweep."""
    folder = tmp_path_factory.mktemp("terminal") / "predictions"
    folder.mkdir()
    edits = {"original": 60, "reinsertion": 58, "size-0.05": 20, "size-0.1": 40, "size-0.2": 57, "color+180": 57}
    for name in ("lite:0", LONG_NAME):
        rows = [
            {"model": name, "source_id": f"s{number:02}", "edit": edit, "run": 0, "label": 0, "correct": number < right}
            | {"sample_id": f"s{number:02}/{edit}/0", "predicted": int(number >= right), "probability": 0.5}
            for edit, right in edits.items()
            for number in range(60)
        ]
        pl.DataFrame(rows).write_parquet(folder / f"{name.replace(':', '-')}.parquet")
    return folder


@pytest.mark.parametrize("options", [(), ("--by", "class"), ("--table", "curves"), ("--groups", "all")])
def test_analyze_fits_eighty_columns_and_names_each_model_once(predictions: Path, options: tuple[str, ...]) -> None:
    """The table was up to 150 columns wide and repeated the model in every row."""
    shown = run_cli("analyze", predictions, "--resamples", 50, *options)
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    if "--groups" not in options:
        assert sum("a_model_with_a_rather_long_name" in line for line in lines) == 1
    assert shown.stderr.splitlines()[-1] == f"next: unswayed report {predictions} -o report.html"


@pytest.mark.parametrize(
    "command",
    [("compare",), ("compare", "lite:0", LONG_NAME), ("check", "--max-drop", "size-0.05=20", "--min-accuracy", "75")],
)
def test_compare_and_check_fit_eighty_columns_and_divide_no_word(predictions: Path, command: tuple[str, ...]) -> None:
    """The comparison was 213 columns wide, and the heading of a check was divided: thre-shold."""
    shown = run_cli(command[0], predictions, *command[1:])
    assert shown.exit_code in (0, 1, 3), shown.output
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert ("limit" if command[0] == "check" else "difference") in shown.stdout
    assert LONG_NAME in shown.stdout
    if command[0] == "compare":  # never the accuracy of one model without that of the other
        wide = run_cli(*command[:1], predictions, *command[1:], env={"COLUMNS": "140"}).stdout
        assert "A / B %" in wide and "100.0 / 100.0" in wide


def test_verdicts_and_lists_fit_eighty_columns_and_divide_no_word(predictions: Path, tmp_path: Path) -> None:
    """The sentences of a report were up to 210 columns wide, and a list divided the longest name of its weights."""
    shown = run_cli("report", predictions, "-o", tmp_path / "report.html", "--heat-maps", 0)
    assert shown.exit_code == 0, shown.output
    assert max(map(len, shown.stderr.splitlines())) <= 80
    assert "What hurts most: " in shown.stderr
    listed = run_cli("weights")
    assert max(map(len, (listed.stdout + listed.stderr).splitlines())) <= 80
    assert {"512x512_diffusion_uncond_finetune_008100", "timm:resnet50.tv_in1k"} <= set(listed.stdout.split())


def test_only_what_is_sure_is_colored_and_a_small_p_is_printed_so(predictions: Path) -> None:
    frame = analyze(predictions, resamples=50)
    text = analysis_text(frame, "drops", "table", color=True)
    colored = [line for line in text.splitlines() if "\x1b[31m" in line]
    names = [re.sub(r"\x1b\[[0-9;]*m", " ", line).split()[0] for line in colored]
    assert names == ["size-0.05", "size-0.1", "average"] * 2
    assert "< 0.001" in text
    assert "\x1b" not in analysis_text(frame, "drops", "table")
    assert "\x1b" not in run_cli("analyze", predictions, "--resamples", 50).stdout


def test_no_help_shows_a_type_for_an_option_that_takes_no_value() -> None:
    for command in ["", *(name for names in COMMANDS.values() for name in names)]:
        shown = run_cli(*([command] if command else []), "--help", env={"COLUMNS": "120"})
        assert shown.exit_code == 0
        assert "bool" not in shown.output.lower(), command


def test_every_help_fits_eighty_columns() -> None:
    """A default of five edits made two lines of `repair --help` ninety columns wide."""
    for command in ["", *(name for names in COMMANDS.values() for name in names)]:
        shown = run_cli(*([command] if command else []), "--help", env={"COLUMNS": "80"})
        assert max(map(len, shown.stdout.splitlines())) <= 80, command


def test_build_and_evaluate_end_with_the_next_command(tmp_path: Path) -> None:
    bench = tmp_path / "bench"
    recipe = ("--recipe", "color-gray,background-simple", "--renderer", "paste")
    arguments = ("-o", bench, *recipe, "--limit", 1, "--quality", "off")
    built = run_cli("build", "sample", *arguments)
    assert (
        built.stderr.splitlines()[-1] == f"next: unswayed evaluate {bench} -m lite:0 -m lite:2 -o {bench}-predictions"
    )
    skipped = "skipped: inversion 1, background-simple 1: needs a diffusion network (--renderer diffusion)"
    assert skipped in built.stdout.splitlines()
    evaluated = run_cli("evaluate", bench, "-m", "lite:0", "-o", tmp_path / "predictions")
    assert evaluated.stderr.splitlines()[-1] == f"next: unswayed analyze {tmp_path / 'predictions'}"
    assert "next:" not in run_cli("build", "sample", *arguments, "--json").output


def test_the_app_says_what_it_does_before_it_loads_anything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "unswayed.views.app.page", None)  # the import of the page fails, after the message
    with pytest.raises(ImportError):
        build_app()(["app", "-m", "lite:1"])
    assert "loading the page and lite:1 …" in capsys.readouterr().err


def test_a_build_reports_every_pass_of_the_network(tmp_path: Path) -> None:
    """The bar counted scenes, and stood still for as long as the first ones took."""
    seen: list[Progress] = []
    settings = BuildSettings(recipe="inversion,direction", limit=1, steps=8, quality="off")
    build("sample", tmp_path / "bench", settings, progress=seen.append)
    passes = [now.passes for now in seen]
    assert all(one is not None for one in passes)
    done = [one[0] for one in passes if one is not None]
    assert done == sorted(done)
    assert done[0] == 0
    assert len({*done}) > 2, "it moved before the scene was done"
    assert done[-1] == passes[-1][1]  # type: ignore[index]
    assert seen[-1].share == 1.0


def test_each_stage_of_a_command_has_its_own_time_left() -> None:
    """The second stage showed 0:00:00, since the line counted as finished after the first."""
    line = ProgressLine("reading", "photographs")
    for what in ("reading", "training", "training"):
        line(0, 3, what=what)
        assert line.text(80) == f"{what} {'─' * 20}  0 of 3 photographs"
        line(3, 3, what=what)
        assert line.text(80).startswith(f"{what} {'━' * 20}  3 of 3 photographs") and "0:00 left" in line.text(80)


@pytest.mark.parametrize("width", [80, 60, 40])
def test_the_progress_line_fits_and_divides_no_word(width: int) -> None:
    """The bar vanished beside a long remark, and `0/? – pictures/s` was all that a build said at first."""
    line = ProgressLine("build", "pictures")
    assert line.text(width) == "build: starting …"
    assert ProgressLine("", "").text(width) == "starting …", "before the command is known"
    remark = "2 failed; cuda:1 2 cannot be started (CUDA error: out of memory on this device)"
    line(1200, 4810, remark, what="build", rate=12.0)
    shown = line.text(width)
    assert len(shown) <= width and "━━━━━─" in shown
    assert set(shown.replace(",", "").split()[2:]) <= set(f"1200 of 4810 pictures 12/s 5:01 left {remark}".split())
    assert ("2 failed" in shown) == (width == 80)


def test_a_long_message_is_wrapped_in_a_terminal_and_a_command_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    warning, command = "warning: the benchmark is no longer at its place", f"next: unswayed report {'long/' * 9}"
    say(warning, command)
    assert capsys.readouterr().err.splitlines() == [warning, command], "in a file or a pipe, each is one line"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    say(warning, command)
    assert capsys.readouterr().err.splitlines() == ["warning: the benchmark is no longer at", "its place", command]


@pytest.mark.parametrize("command", ["evaluate", "sensitivity", "distribution"])
def test_ctrl_c_says_how_to_resume(monkeypatch, tmp_path, command):
    """Before, only `build` and `repair` spoke."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    owner, name = (evaluation, "run_evaluation") if command == "evaluate" else (unswayed, command)
    monkeypatch.setattr(owner, name, interrupted)
    stopped = run_cli(command, "bench", "-m", "lite:0", "-o", tmp_path, code=130)
    lines = stopped.stderr.splitlines()
    said = lines.index("stopped; run the same command again to resume")
    assert lines[said + 1].startswith(f"run: unswayed {command} bench -m lite:0")
