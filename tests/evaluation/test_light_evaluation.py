"""What `unswayed evaluate` imports: no polars, and no model library in the process of the command itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

LIGHT = """
import sys
sys.modules["polars"] = None  # its import fails, as where it is not installed
from unswayed.evaluation import EvaluateSettings, run_evaluation
done = run_evaluation("images:" + sys.argv[1], ["lite:0"], sys.argv[2], EvaluateSettings(device="cpu", limit=1))
assert done.scored == ("lite:0",), done
loaded = [name for name in ("torchvision", "timm") if name in sys.modules]
assert not loaded, loaded
"""


def test_evaluate_needs_no_polars_and_imports_no_model_library_itself(tmp_path: Path) -> None:
    photographs = tmp_path / "photographs" / "n02123045"
    photographs.mkdir(parents=True)
    shutil.copy(str(resources.files("unswayed.data") / "sample" / "cat.jpg"), photographs)
    command = [sys.executable, "-c", LIGHT, str(photographs.parent), str(tmp_path / "predictions")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
