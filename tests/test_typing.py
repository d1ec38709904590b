"""Types that users see: a type checker finds real types, no `Any`, behind every public name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import unswayed

CODE = Path(__file__).with_name("typed_user_code.py")
PACKAGE = Path(str(unswayed.__file__)).parent

WRONG = """
import unswayed
unswayed.edit("dog.jpg", seed="three")
unswayed.check("predictions", max_drops={"size-0.05": 20})
unswayed.Benchmark("bench")[0][0].no_such_method()
unswayed.open_sauce("sample")
unswayed.build("sample", "bench", recipes="imagenet-e")
unswayed.report("predictions", "report.html", heat_maps="four")
unswayed.analyze("predictions", unswayed.GateSettings())
"""


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    """A function that gives mypy's errors on a file: strict, and every expression of type `Any` is an error."""
    cache = tmp_path_factory.mktemp("mypy")

    def check(file: Path) -> list[str]:
        command = [sys.executable, "-m", "mypy", "--strict", "--disallow-any-expr", "--follow-imports=silent"]
        command += ["--config-file=", f"--cache-dir={cache}", "--no-error-summary", "--hide-error-context", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=cache, env={"MYPYPATH": str(PACKAGE.parent)})
        assert done.stderr == ""
        return done.stdout.splitlines()

    return check


def test_user_code_with_every_public_name_passes_strict_mypy_without_any(strict):
    used = set(re.findall(r"\bunswayed\.(\w+)", CODE.read_text()))
    assert set(unswayed.__all__) - {"transforms"} <= used
    assert (PACKAGE / "py.typed").is_file()
    assert strict(CODE) == []


def test_mistakes_in_user_code_are_found(strict, tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    lines = {int(error.split(":")[1]) for error in strict(tmp_path / "wrong.py")}
    assert lines == {3, 4, 5, 6, 7, 8, 9}


def test_neither_the_import_nor_the_help_loads_a_heavy_package():
    heavy = ("torch", "polars", "pyarrow", "numpy", "PIL", "cv2", "scipy", "pandas")
    code = "import sys, unswayed; from unswayed.views.cli import build_app; build_app()"
    code += f"; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
