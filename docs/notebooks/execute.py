"""Runs notebooks and stores what their cells print and show: `python docs/notebooks/execute.py tutorial.ipynb …`.

The cells are plain Python, so one namespace and a temporary folder are all that they need; no Jupyter is installed. The
badge of Colab gets its address from `Repository` in pyproject.toml's `[project.urls]`.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import os
import sys
import tempfile
import tomllib
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

from PIL import Image

SIDE = 640  # pixels: larger pictures are stored reduced
COLAB = "https://colab.research.google.com/"
BADGE = f"[![Open in Colab]({COLAB}assets/colab-badge.svg)]"


def with_badge(notebook: dict[str, Any], name: str, repository: str | None) -> dict[str, Any]:
    """The notebook with a badge that opens it in Colab: from its repository on GitHub, else by *Upload*."""
    line = f"{BADGE}({COLAB}) (choose *Upload* and this file, `{name}`)\n"
    if repository is not None:
        line = f"{BADGE}({COLAB}github/{repository.partition('github.com/')[2]}/blob/main/docs/notebooks/{name})\n"
    first, *others = notebook["cells"]
    source = [line if text.startswith(BADGE) else text for text in first["source"]]
    return {**notebook, "cells": [{**first, "source": source}, *others]}


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of its code cells; what a cell raises ends the run."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                count += 1
                cell = {**cell, "execution_count": count, "outputs": _outputs("".join(cell["source"]), names, count)}
            cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Run one cell; return its printed text and the value of its last expression."""
    parts = ast.parse(source)
    last = parts.body.pop() if parts.body and isinstance(parts.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(parts, f"<cell {count}>", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), f"<cell {count}>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(True)})
    if value is not None:
        shown = {"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": _data(value)}
        outputs.append(shown)
    return outputs


def _data(value: Any) -> dict[str, Any]:
    """The value as text, and as a picture or a table where it is one."""
    if isinstance(value, Image.Image):
        value = value.convert("RGB")
        value.thumbnail((SIDE, SIDE))
        buffer = io.BytesIO()
        value.save(buffer, "JPEG", quality=85)
        return {"image/jpeg": base64.b64encode(buffer.getvalue()).decode(), "text/plain": [f"{value.size} pixels"]}
    data: dict[str, Any] = {"text/plain": repr(value).splitlines(True)}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_().splitlines(True)
    return data


def main(paths: list[str]) -> None:
    os.environ["POLARS_FMT_MAX_ROWS"] = "30"
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    repository = project.get("urls", {}).get("Repository")
    for path in map(Path, paths):
        notebook = with_badge(run(json.loads(path.read_text(encoding="utf-8"))), path.name, repository)
        text = json.dumps(notebook, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
