"""The composite GitHub Action: its shell steps, run one after another as GitHub runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"] if "run" in step}
INPUTS = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()}


class Job:
    """A working folder with the files that GitHub gives a job, and `unswayed` on the path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        commands = folder / "commands"
        commands.mkdir(parents=True)
        script = commands / "unswayed"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "from unswayed.views.cli import main; main()" "$@"\n')
        script.chmod(0o755)
        (commands / "python").symlink_to(sys.executable)
        self.environment = {
            **os.environ,
            "PATH": f"{commands}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
            "GITHUB_OUTPUT": str(folder / "output"),
        }

    def step(self, name: str, **given: str) -> subprocess.CompletedProcess[str]:
        inputs = INPUTS | {key.replace("_", "-"): value for key, value in given.items()}
        step = STEPS[name]
        values = {key: _evaluated(value, inputs) for key, value in step.get("env", {}).items()}
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder, env=self.environment | values, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def summary(self) -> str:
        path = self.folder / "summary.md"
        return path.read_text(encoding="utf-8") if path.exists() else ""


def _evaluated(text: str, inputs: dict[str, str]) -> str:
    """The expressions of a step's environment; anything else than an input would be a mistake in the action."""
    return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], text)


def test_no_input_reaches_a_shell_as_code():
    """An expression inside `run` would let the text of an input run commands; inputs come by the environment."""
    assert not [name for name, step in STEPS.items() if "${{" in step["run"]]
    named = {
        name for text in re.findall(r"\$\{\{.*?\}\}", str(ACTION)) for name in re.findall(r"inputs\.([\w-]+)", text)
    }
    assert named == set(INPUTS)


@pytest.mark.slow  # nine runs of the command
def test_the_steps_pass_fail_and_cannot_tell(tmp_path):
    job = Job(tmp_path / "job")
    options = "--recipe original,position --renderer paste --limit 6 --pixels 160 --seed 7"
    assert job.step("Key of the caches", build_options=options).returncode == 0
    assert re.fullmatch(r"key=[0-9a-f]{16}\n", (job.folder / "output").read_text())
    built = job.step("Benchmark", build_options=options)
    assert built.returncode == 0, built.stderr
    before = (job.folder / ".unswayed/benchmark/manifest.parquet").stat().st_mtime_ns
    assert job.step("Benchmark", build_options="--recipe wrong").returncode == 0, "a cached benchmark is kept"
    assert (job.folder / ".unswayed/benchmark/manifest.parquet").stat().st_mtime_ns == before
    evaluated = job.step("Evaluate", model="lite:0\n")
    assert evaluated.returncode == 0, evaluated.stderr

    nothing = job.step("Check")
    assert nothing.returncode == 0 and "nothing to check" in job.summary()

    passed = job.step("Check", limits="--min-accuracy 5")
    assert passed.returncode == 0, passed.stderr
    assert "## ✅ unswayed check: pass" in job.summary()
    assert "verdict=pass" in (job.folder / "output").read_text()

    failed = job.step("Check", limits="--min-accuracy position=99.9")
    assert failed.returncode == 1 and "## ❌ unswayed check: fail" in job.summary()
    assert "### The worst flips" in job.summary() and "| position | lite:0 |" in job.summary()

    unsure = "--max-drop position=20"
    lenient, strict = job.step("Check", limits=unsure), job.step("Check", limits=unsure, cannot_tell="fail")
    assert lenient.returncode == 0 and "::warning::unswayed: cannot tell" in lenient.stdout
    assert strict.returncode == 3 and "## ❔ unswayed check: cannot tell" in job.summary()

    assert job.step("Predictions as the new baseline").returncode == 0
    same = job.step("Check")
    assert same.returncode == 0 and "accuracy lost" in same.stdout, same.stderr
    reported = job.step("Report")
    assert reported.returncode == 0 and (job.folder / ".unswayed/report.html").is_file()


def test_a_wrong_limit_stops_the_job_with_its_message(tmp_path):
    job = Job(tmp_path / "job")
    wrong = job.step("Check", limits="--max-drop nonsense")
    assert wrong.returncode == 2 and "nonsense" in wrong.stderr
