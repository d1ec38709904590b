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


@pytest.fixture(scope="module")
def loaded():
    """The heavy modules that each module of analyses loads in an interpreter of its own, and what it prints."""
    code = "import importlib, sys; importlib.import_module(sys.argv[1]); print(*set(sys.modules) & set(sys.argv[2:]))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = {}
    for name in MODULES:
        done = subprocess.run(
            [sys.executable, "-c", code, name, *HEAVY], env=environment, capture_output=True, text=True, check=True
        )
        found[name] = done.stdout.split(), done.stdout.count("\n"), done.stderr
    return found


@pytest.mark.parametrize("name", MODULES)
def test_importing_it_loads_nothing_heavy_and_prints_nothing(loaded, name):
    heavy, lines, errors = loaded[name]
    assert (heavy, lines, errors) == ([], 1, "")
