"""What people read in a terminal: tables of 80 columns, progress in passes, the next command, help without noise."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import rich.progress

from command_line import run_cli
from unswayed.analyses.tables import analyze
from unswayed.benchmark import BuildSettings, build
from unswayed.benchmark.building import Progress
from unswayed.views.cli import COMMANDS, build_app
from unswayed.views.cli.progress import progress_line
from unswayed.views.report.drop_tables import analysis_text


@pytest.fixture(scope="module")
def predictions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models on 60 photographs: a sure drop, a drop that may be chance, a control and a sweep."""
    folder = tmp_path_factory.mktemp("terminal") / "predictions"
    folder.mkdir()
    edits = {"original": 60, "reinsertion": 58, "size-0.05": 20, "size-0.1": 40, "size-0.2": 57, "color+180": 57}
    for name in ("lite:0", "timm:a_model_with_a_rather_long_name.in1k"):
        rows = [
            {"model": name, "source_id": f"s{number:02}", "edit": edit, "run": 0, "label": 0, "correct": number < right}
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


def test_only_what_is_sure_is_colored_and_a_small_p_is_printed_so(predictions: Path) -> None:
    frame = analyze(predictions, resamples=50)
    text = analysis_text(frame, "drops", "table", color=True)
    colored = [line for line in text.splitlines() if "\x1b[31m" in line]
    assert [line.split("size")[1].split()[0] for line in colored] == ["-0.05", "-0.1"] * 2
    assert "< 0.001" in text
    assert "\x1b" not in analysis_text(frame, "drops", "table")
    assert "\x1b" not in run_cli("analyze", predictions, "--resamples", 50).stdout


def test_no_help_shows_a_type_for_an_option_that_takes_no_value() -> None:
    for command in ["", *(name for names in COMMANDS.values() for name in names)]:
        shown = run_cli(*([command] if command else []), "--help", env={"COLUMNS": "120"})
        assert shown.exit_code == 0
        assert "bool" not in shown.output.lower(), command


def test_build_and_evaluate_end_with_the_next_command(tmp_path: Path) -> None:
    bench = tmp_path / "bench"
    arguments = ("-o", bench, "--recipe", "color-gray", "--renderer", "paste", "--limit", 1, "--quality", "off")
    built = run_cli("build", "sample", *arguments)
    assert (
        built.stderr.splitlines()[-1] == f"next: unswayed evaluate {bench} -m lite:0 -m lite:2 -o {bench}-predictions"
    )
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


def test_each_stage_of_a_command_has_its_own_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second stage showed 0:00:00, since the line counted as finished after the first."""
    tasks: list[Any] = []
    add = rich.progress.Progress.add_task

    def keep(self: Any, *arguments: Any, **options: Any) -> Any:
        task = add(self, *arguments, **options)
        tasks.append(self.tasks[0])
        return task

    monkeypatch.setattr(rich.progress.Progress, "add_task", keep)
    with progress_line("reading", "photographs") as show:
        for what in ("reading", "training", "training"):
            show(0, 3, what=what)
            assert not tasks[0].finished and (tasks[0].description, tasks[0].completed) == (what, 0)
            show(3, 3, what=what)
            assert tasks[0].finished
