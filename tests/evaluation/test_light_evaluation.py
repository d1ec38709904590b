"""What `unswayed evaluate` imports: no polars, no pandas, no scipy, no model library in the command's own process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from command_line import run_cli

LIGHT = """
import sys
sys.modules["polars"] = None  # its import fails, as where it is not installed
from unswayed.evaluation import EvaluateSettings, run_evaluation
done = run_evaluation(sys.argv[1], ["lite:0"], sys.argv[2], EvaluateSettings(device="cpu", limit=1))
assert done.scored == ("lite:0",), done
loaded = [name for name in ("pandas", "torchvision", "timm") if name in sys.modules]
assert not loaded, loaded
"""

SCORED = """
import sys
import numpy as np
from unswayed.evaluation.contract import at_least
from unswayed.evaluation.model_cards import Picture
from unswayed.evaluation.passes import classified_columns, make_table
row = Picture("cat-original", "cat", "cat.png", "original", 0, 281, "cat.png", None, "0")
scores = {name: np.ones(1) for name in ("probability", "true_probability", "energy")}
scores |= {name: np.ones(1, np.int64) for name in ("predicted", "rank", "subset")}
scores |= {"top": np.ones((1, 5), np.int64), "top_probabilities": np.ones((1, 5))}
table = make_table("plain", [row], classified_columns([row], scores, np.ones(1, np.float32)), [0])
assert table.column("predicted").to_pylist() == [1] and abs(at_least(1, 2, 0.5) - 0.75) < 1e-12
loaded = [name for name in ("pandas", "scipy") if name in sys.modules]
assert not loaded, loaded
"""


@pytest.mark.parametrize("script", [LIGHT, SCORED])
def test_evaluate_imports_only_what_it_needs(script: str, tmp_path: Path) -> None:
    built = run_cli(
        "build", "sample", "-o", tmp_path / "bench", "--recipe", "size=0.1", "--renderer", "paste", "--limit", 1
    )
    assert built.exit_code == 0
    command = [sys.executable, "-c", script, str(tmp_path / "bench"), str(tmp_path / "predictions")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
