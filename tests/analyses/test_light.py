"""Analyses are light: importing any of their modules loads no pictures and no networks, and prints nothing."""

import os
import pkgutil
import subprocess
import sys

import pytest

import unswayed.analyses

MODULES = ["unswayed.analyses"] + [
    module.name for module in pkgutil.walk_packages(unswayed.analyses.__path__, "unswayed.analyses.")
]
HEAVY = (
    "cv2", "torch", "torchvision", "timm", "diffusers", "transformers", "PIL", "skimage", "sklearn", "scipy.stats",
    "matplotlib", "altair", "unswayed.models", "unswayed.rendering", "unswayed.masks", "unswayed.views",
)  # fmt: skip


# A process for each module, copied from one that has imported what they all may import. Each says on the last line of
# its output which heavy modules it has loaded.
IMPORTS = """
import importlib, os, sys
import numpy, polars, pyarrow.parquet, scipy.special
folder, names, heavy = sys.argv[1], sys.argv[2].split(), sys.argv[3].split()
for name in names:
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, name
        continue
    for number, kind in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{folder}/{name}.{kind}", os.O_WRONLY | os.O_CREAT), number)
    importlib.import_module(name)
    print(*set(sys.modules) & set(heavy), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The heavy modules that each module of analyses loads in an interpreter of its own, and what it prints."""
    folder = tmp_path_factory.mktemp("printed")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", IMPORTS, folder, " ".join(MODULES), " ".join(HEAVY)]
    subprocess.run(command, env=environment, capture_output=True, check=True)
    printed = {name: [(folder / f"{name}.{kind}").read_text() for kind in ("out", "err")] for name in MODULES}
    return {name: (out.split(), out.count("\n"), errors) for name, (out, errors) in printed.items()}


@pytest.mark.parametrize("name", MODULES)
def test_importing_it_loads_nothing_heavy_and_prints_nothing(loaded, name):
    heavy, lines, errors = loaded[name]
    assert (heavy, lines, errors) == ([], 1, "")
