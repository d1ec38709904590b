"""`unswayed --help`: commands in the order of the pipeline, in groups, and shell completion."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from command_line import refusal, run_cli
from unswayed.views.cli import COMMANDS, build_app

ROOT = Path(__file__).parents[3]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]


def test_help_lists_every_command_once_in_pipeline_order_under_its_group():
    shown = run_cli("--help", env={"COLUMNS": "100"}).stdout
    listed = [line.strip("│ ").split()[0] for line in shown.splitlines() if line.startswith("│ ") and line[2] != " "]
    commands = [name for group in COMMANDS.values() for name in group]
    assert [word for word in listed if not word.startswith("-")] == commands
    assert len(set(commands)) == len(commands)
    stages = ["build", "evaluate", "analyze", "report"]
    assert sorted(stages, key=commands.index) == stages
    groups = [line.strip("╭─╮ ") for line in shown.splitlines() if line.startswith("╭─")]
    assert groups == ["Options", *COMMANDS]


def test_completion_offers_the_commands():
    environment = {"_UNSWAYED_COMPLETE": "complete_bash", "COMP_WORDS": "unswayed ver", "COMP_CWORD": "1"}
    done = run_cli(env=environment)
    assert done.stdout.split() == ["verify"]


@pytest.mark.parametrize(
    ("command", "option", "choices"),
    [
        ("build", "--frame", "object|center|squash"),
        ("build", "--guidance", "paper|released|calibrated"),
        ("edit", "--sampler", "auto|ancestral|ddim|dpm|dpm-sde"),
        ("evaluate", "--precision", "fp32|bf16|fp16"),
        ("analyze", "--format", "table|csv|json|markdown|latex"),
    ],
)
def test_help_lists_the_choices_and_a_wrong_one_exits_with_two(command, option, choices):
    shown = run_cli(command, "--help", env={"COLUMNS": "200"})
    assert f"<{choices}>" in shown.output
    wrong = run_cli(command, "x", option, "wrong", env={"COLUMNS": "200"})
    assert wrong.exit_code == 2
    assert all(f"'{choice}'" in wrong.output for choice in choices.split("|"))


def test_help_and_refusals_list_the_renderers_of_the_registry():
    shown = run_cli("build", "--help", env={"COLUMNS": "200"})
    assert "diffusers:NAME_OR_FOLDER draws what words say" in shown.output
    refusal(
        run_cli("build", "sample", "-o", "x", "--renderer", "past"),
        given="there is no renderer 'past'",
        allowed="paste",
    )


def test_completion_offers_the_choices():
    environment = {"_UNSWAYED_COMPLETE": "complete_bash", "COMP_WORDS": "unswayed build --frame ", "COMP_CWORD": "3"}
    done = run_cli(env=environment)
    assert done.output.split() == ["object", "center", "squash"]


def test_no_help_of_a_command_loads_a_network_library_or_tables():
    """In one process, so that the whole list takes a second."""
    code = "import sys, typer.testing\nfrom unswayed.views.cli import COMMANDS, build_app\n"
    code += "for panel in COMMANDS.values():\n    for name in panel:\n"
    code += "        done = typer.testing.CliRunner().invoke(build_app(), [name, '--help'])\n"
    code += "        assert done.exit_code == 0, name\n"
    code += "        heavy = {'torch', 'polars', 'cv2'} & set(sys.modules)\n        assert not heavy, (name, heavy)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_help_of_a_command_begins_with_its_line_in_the_list():
    for panel in COMMANDS.values():
        for name, line in panel.items():
            shown = run_cli(name, "--help", env={"COLUMNS": "200"}).stdout
            assert line.replace("`", "") in " ".join(shown.split()), name


def test_every_option_that_a_page_gives_a_command_exists():
    app = typer.main.get_command(build_app())
    options = {
        name: {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for name in (name for panel in COMMANDS.values() for name in panel)
        if (command := app.get_command(typer.Context(app), name)) is not None
    }
    given = [
        (page.name, name, option)
        for page in PAGES
        for name, rest in re.findall(r"unswayed ([a-z-]+)((?:[^\n`|;#]|\\\n)*)", page.read_text(encoding="utf-8"))
        for option in re.findall(r"(?<=\s)(--[a-z][a-z-]+|-[a-zA-Z])(?=[\s=,]|$)", re.split(r"&&|\)", rest)[0])
        if name in options
    ]
    assert len(given) > 300
    assert [found for found in given if found[2] not in options[found[1]] | {"--help"}] == []
