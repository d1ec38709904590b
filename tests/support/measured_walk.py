"""Follow one photograph through build, evaluate and report, and print the way as docs/architecture.md shows it.

    python tests/support/measured_walk.py

One sample scene, one edit and its control, pasted, one model, all in the main thread of this process. The table has one
row per file, in the order in which the files are first entered.
"""

from __future__ import annotations

import ast
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import unswayed

PACKAGE = Path(str(unswayed.__file__)).parent


def measured_walk() -> dict[str, list[tuple[str, str]]]:
    """Stage -> (file, the function that is entered first) in order.

    Everything runs once before it is followed, so that nothing of the way is an import.
    """
    folder = Path(tempfile.mkdtemp())
    model = unswayed.open_model("lite:0", device="cpu")
    recipe = "original,reinsertion,size-0.05"
    settings = unswayed.BuildSettings(recipe=recipe, renderer="paste", limit=1, workers=1, device="cpu")

    def followed(root: Path) -> dict[str, list[tuple[str, str]]]:
        return {
            "build": _entered(lambda: unswayed.build("sample", root / "bench", settings)),
            "evaluate": _entered(lambda: unswayed.evaluate(root / "bench", [model], root / "predictions")),
            "report": _entered(lambda: unswayed.report(root / "predictions", root / "report.html")),
        }

    followed(folder / "first")
    return followed(folder / "second")


def _entered(action: Callable[[], object]) -> list[tuple[str, str]]:
    first: dict[str, str] = {}
    home = f"{PACKAGE}{os.sep}"

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(home) and code.co_filename.endswith(".py"):
            name = code.co_qualname.partition(".<locals>")[0]
            if not name.startswith("<"):
                first.setdefault(code.co_filename[len(home) :].replace(os.sep, "/"), name)

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return list(first.items())


def purpose(file: str) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse((PACKAGE / file).read_text(encoding="utf-8"))) or ""
    sentence = " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".")
    return sentence.replace("|", "\\|")


def as_markdown(walk: dict[str, list[tuple[str, str]]]) -> str:
    lines = []
    for stage, rows in walk.items():
        rooms = {file.split("/")[0] for file, _ in rows if "/" in file}
        single = sum("/" not in file for file, _ in rows)
        lines += [
            f"### `unswayed.{stage}`: {len(rows) - single} files in {len(rooms)} rooms and {single} single files",
            "",
        ]
        lines += ["| file | entered by | purpose |", "| --- | --- | --- |"]
        lines += [f"| `{file}` | `{name}` | {purpose(file)} |" for file, name in rows]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(as_markdown(measured_walk()))
