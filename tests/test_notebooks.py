"""The notebooks of the documentation run from first to last cell, and say what their stored outputs say."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


@pytest.fixture
def execute(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script of docs/notebooks."""
    monkeypatch.syspath_prepend(str(FOLDER))
    sys.modules.pop("execute", None)
    return import_module("execute")


def read(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))


def said(notebook: dict[str, Any]) -> str:
    """What the code cells print and show, as text."""
    texts = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            texts.append("".join(output.get("text") or output["data"]["text/plain"]))
    return "\n".join(texts)


def words_of(text: str) -> list[str]:
    """The words of a text without its numbers, which differ in their last digits between machines."""
    return re.findall(r"[A-Za-z]{3,}", text)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_valid_complete_and_opens_in_colab(name: str) -> None:
    notebook = read(name)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    identifiers = [cell["id"] for cell in notebook["cells"]]
    assert len(set(identifiers)) == len(identifiers)
    first = "".join(notebook["cells"][0]["source"])
    assert "colab-badge.svg" in first and f"{name}.ipynb" in first
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert sum(bool(cell["outputs"]) for cell in code) >= 2
    links = re.findall(r"\]\((\w+\.ipynb)\)", json.dumps(notebook))
    assert set(links) <= {f"{other}.ipynb" for other in NOTEBOOKS}
    assert len(json.dumps(notebook)) < 400_000


def test_the_badges_lead_to_the_repository_that_the_project_names(execute: Any) -> None:
    """Without an address in pyproject.toml they lead to Colab's Upload."""
    urls = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text("utf-8"))["project"].get("urls", {})
    for name in NOTEBOOKS:
        assert execute.with_badge(read(name), f"{name}.ipynb", urls.get("Repository")) == read(name), "make notebooks"
    moved = execute.with_badge(read("tutorial"), "tutorial.ipynb", "https://github.com/someone/fork")
    address = "https://colab.research.google.com/github/someone/fork/blob/main/docs/notebooks/tutorial.ipynb"
    assert f"colab-badge.svg)]({address})\n" in "".join(moved["cells"][0]["source"])
    assert moved["cells"][1:] == read("tutorial")["cells"][1:]


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_its_outputs_are_those_that_are_stored(
    name: str, execute: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "papers":
        pytest.importorskip("imagenet_x")
    monkeypatch.setenv("POLARS_FMT_MAX_ROWS", "30")
    stored = read(name)
    again = execute.run(stored)
    assert words_of(said(again)) == words_of(said(stored))


def test_the_five_notebooks_are_there() -> None:
    assert NOTEBOOKS == ["own_photographs", "papers", "release_gate", "repair", "tutorial"]
