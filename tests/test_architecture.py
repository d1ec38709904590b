"""docs/architecture.md against the code: the rooms, the walk, and the import contract."""

from __future__ import annotations

import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "unswayed"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def layers() -> list[str]:
    """Every room of the import contract, from left to right in the pipeline."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    listed = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [room.strip() for line in reversed(listed) for room in re.split(r"[|:]", line)]


def files_of_the_walk(text: str) -> dict[str, set[str]]:
    """Stage -> the files in its table."""
    stages = re.split(r"^### `unswayed\.(\w+)`.*$", text, flags=re.MULTILINE)[1:]
    tables = zip(stages[::2], stages[1::2], strict=True)
    return {stage: set(re.findall(r"^\| `(\S+\.py)` \|", table, re.MULTILINE)) for stage, table in tables}


def test_the_walk_of_the_page_is_the_measured_one():
    script = [sys.executable, str(ROOT / "tests" / "support" / "measured_walk.py")]
    measured = subprocess.run(script, capture_output=True, text=True, check=True, encoding="utf-8").stdout
    shown = PAGE[PAGE.index("### `unswayed.build`") : PAGE.index("## Where a new part goes")]
    walk = files_of_the_walk(measured)
    assert list(walk) == ["build", "evaluate", "report"]
    assert all(len(files) > 20 for files in walk.values())
    for stage, files in files_of_the_walk(shown).items():
        assert all((PACKAGE / file).is_file() for file in files)
        # Whether pictures are decoded in this thread depends on the cores that are free.
        assert len(files ^ walk[stage]) <= 3, (
            f"run: python tests/support/measured_walk.py, and show {files ^ walk[stage]}"
        )


def test_the_table_lists_every_room_in_the_order_of_the_contract():
    table = PAGE[PAGE.index("## The rooms") : PAGE.index("## Four mechanisms")]
    named = re.findall(r"^\| `(\w+)/` \|", table, re.MULTILINE)
    assert named == [room for room in layers() if (PACKAGE / room).is_dir()]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the code that a test may change."""
    shutil.copytree(PACKAGE, tmp_path / "unswayed", ignore=lambda folder, names: [n for n in names if not _is_code(n)])
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def _is_code(name: str) -> bool:
    return "." not in name or name.endswith(".py")


def check_imports(root: Path) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "import importlinter.cli as cli; cli.lint_imports_command()", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(program, cwd=root, capture_output=True, text=True, check=False, env=environment)


def test_an_import_from_a_room_to_the_right_is_refused(copy):
    good = check_imports(copy)
    assert good.returncode == 0, good.stdout + good.stderr
    with (copy / "unswayed" / "analyses" / "drops" / "drop.py").open("a") as file:
        file.write("\n\ndef upward():\n    from unswayed.views.report import page\n\n    return page\n")
    bad = check_imports(copy)
    assert bad.returncode == 1
    assert "unswayed.analyses.drops.drop -> unswayed.views.report.page" in " ".join(bad.stdout.split())


REGISTRIES = [
    "analyses:ANALYSES",
    "edits:EDITS",
    "benchmark.exporting:EXPORTERS",
    "jobs:ENGINES",
    "masks:SEGMENTERS",
    "models.opening:MODELS",
    "models.opening:WRAPPERS",
    "rendering.removal:REMOVALS",
    "rendering.settings:RENDERERS",
    "sources:SOURCES",
    "views.tracking:TRACKERS",
]


@pytest.mark.parametrize("registry", REGISTRIES)
def test_every_declared_part_is_where_its_declaration_says(registry):
    parts = pkgutil.resolve_name(f"unswayed.{registry}")
    for name in parts.names():
        assert callable(pkgutil.resolve_name(parts.part(name).target)), name
