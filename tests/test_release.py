"""The release: the workflow's first step on this repository, its matrix, and what its jobs may do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import unswayed
from unswayed.benchmark.rows import FORMAT as BENCHMARK_FORMAT
from unswayed.evaluation.model_cards import FORMAT as CARD_FORMAT

ROOT = Path(__file__).parents[1]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
JOBS = WORKFLOW["jobs"]


def run_step(folder: Path, tag: str, job: str = "build", name: str = "changelog") -> subprocess.CompletedProcess[str]:
    [script] = (step["run"] for step in JOBS[job]["steps"] if name in step.get("name", ""))
    environment = {**os.environ, "GITHUB_REF_NAME": tag}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path):
    """The files that the step reads, with a changelog that is ready for the release."""
    for name in ("CHANGELOG.md", "CITATION.cff", "src/unswayed/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"
    dated = changelog.read_text(encoding="utf-8").replace(f"{unswayed.__version__} (unreleased)", unswayed.__version__)
    changelog.write_text(dated + "\n## 0.0.1\n\n- Something old.\n", encoding="utf-8")
    return tmp_path


def test_a_tag_that_is_the_version_gets_the_notes_of_the_changelog(checkout):
    done = run_step(checkout, f"v{unswayed.__version__}")
    assert done.returncode == 0, done.stdout + done.stderr
    notes = (checkout / "notes.md").read_text(encoding="utf-8")
    assert "unswayed" in notes and "Something old" not in notes and not re.search("^## ", notes, re.MULTILINE)


def test_another_tag_and_a_changelog_that_is_not_ready_are_refused(checkout):
    assert run_step(checkout, "v9.9.9").returncode == 1
    changelog = checkout / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    changelog.write_text(text.replace(f"## {unswayed.__version__}", f"## {unswayed.__version__} (unreleased)"))
    refused = run_step(checkout, f"v{unswayed.__version__}")
    assert (refused.returncode, refused.stdout) == (1, "the changelog still says unreleased\n")


def test_the_wheel_is_tried_on_every_system_and_python_before_anything_is_published():
    matrix = JOBS["try"]["strategy"]["matrix"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stated = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert matrix["python"] == stated == ["3.11", "3.12", "3.13", "3.14"]
    assert {entry["os"] for entry in matrix["include"]} == set(matrix["os"])
    assert {system.partition("-")[0] for system in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert not [step for step in JOBS["try"]["steps"] if "checkout" in step.get("uses", "")], "the wheel alone"
    [install] = (step["run"] for step in JOBS["try"]["steps"] if step.get("name") == "Install the wheel")
    [upload] = (step["with"]["path"] for step in JOBS["build"]["steps"] if "upload" in step.get("uses", ""))
    assert "-r pyproject.toml dist/*.whl" in install and "pyproject.toml" in upload, "so that lowest-direct means these"
    assert (JOBS["try"]["needs"], JOBS["publish"]["needs"]) == ("build", "try")
    assert {JOBS[name]["needs"] for name in ("announce", "docs")} == {"publish"}


def test_the_documentation_of_each_version_is_published_beside_the_others_and_the_newest_as_latest(tmp_path):
    def git(*words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init", "-q", "--bare", "origin")
    git("clone", "-q", "origin", "project")
    (tmp_path / "project/README.md").write_text("code")
    git("-C", "project", "add", "README.md")
    git("-C", "project", "commit", "-qm", "code")
    git("-C", "project", "push", "-q", "origin", "HEAD:main")
    for number, version in enumerate(("0.1.0", "0.2.0", "0.2.0")):  # the last one is a repeated run
        checkout = tmp_path / str(number)
        git("clone", "-q", "--depth", "1", f"file://{tmp_path}/origin", str(checkout))
        (checkout / "site").mkdir()
        (checkout / "site/index.html").write_text(f"pages of {version}")
        done = run_step(checkout, f"v{version}", "docs", "Publish under the version")
        assert done.returncode == 0, done.stderr
    published = ["-C", "origin", "ls-tree", "-r", "--name-only", "gh-pages"]
    files = [".nojekyll", "0.1.0/index.html", "0.2.0/index.html", "index.html", "latest/index.html"]
    assert git(*published).split() == files
    shown = {name: git("-C", "origin", "show", f"gh-pages:{name}/index.html") for name in ("0.1.0", "0.2.0", "latest")}
    assert shown == {"0.1.0": "pages of 0.1.0", "0.2.0": "pages of 0.2.0", "latest": "pages of 0.2.0"}


def test_no_job_has_a_password_and_only_two_may_sign():
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text()
    assert WORKFLOW["permissions"] == {"contents": "read"}
    signing = {name for name, job in JOBS.items() if "id-token" in job.get("permissions", {})}
    writing = {name for name, job in JOBS.items() if job.get("permissions", {}).get("contents") == "write"}
    assert (signing, writing) == ({"build", "publish"}, {"announce", "docs"})


def test_the_promised_formats_are_those_that_are_written():
    text = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    [row] = (line for line in text.splitlines() if line.startswith("| **Files**"))
    assert re.findall(r"`format` (\d+)", row) == [str(BENCHMARK_FORMAT), str(CARD_FORMAT)]
