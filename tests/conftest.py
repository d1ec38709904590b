"""What tests of several folders share: a server that copies worker processes, a real browser, commands without the
rights of root, and settings of Hypothesis that do not depend on speed."""

from __future__ import annotations

import ctypes
import multiprocessing
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from PIL import Image

from command_line import PROGRAM

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# Whatever the workers of any command import; what is not installed is left out. The first one imports timm quickly.
IMPORTS_OF_WORKERS = (
    "unswayed.models.libraries", "cv2", "onnxruntime", "polars", "pyarrow.parquet", "pytorch_grad_cam", "scipy.special",
    "unswayed.benchmark.render", "unswayed.benchmark.warm", "unswayed.evaluation.study", "unswayed.models.opening",
)  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def _server_that_has_imported_everything() -> Iterator[None]:
    """The server that copies worker processes lives as long as the tests and imports only what its first worker needs:
    without this, every worker of another command would import torch for itself, in seconds."""
    preload = multiprocessing.set_forkserver_preload

    def all_imports(modules: Iterable[str]) -> None:
        preload(list(dict.fromkeys([*IMPORTS_OF_WORKERS, *modules])))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "set_forkserver_preload", all_imports)
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, headless; without it the test is skipped."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no chromium: apt install chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    arguments += ["--disable-background-networking", "--disable-component-update", "--no-first-run"]
    with playwright.sync_playwright() as runner:
        opened = runner.chromium.launch(executable_path=path, args=arguments)
        yield opened
        opened.close()


def _without_rights_of_root() -> None:
    """Root reads everything; without these two capabilities it is bound by permissions like anyone."""
    drop_from_bounding_set, override, read_search = 24, 1, 2
    for capability in (override, read_search):
        ctypes.CDLL(None).prctl(drop_from_bounding_set, capability, 0, 0, 0)


@pytest.fixture
def ordinary_user() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command of unswayed as somebody who may not open the folder `closed`."""
    if sys.platform != "linux":
        pytest.skip("drops capabilities of Linux")

    def run(command: str, closed: Path) -> subprocess.CompletedProcess[str]:
        program = [*PROGRAM, *command.split()]
        closed.chmod(0)
        try:
            return subprocess.run(program, capture_output=True, text=True, preexec_fn=_without_rights_of_root)
        finally:
            closed.chmod(0o755)

    return run


@pytest.fixture
def photograph(tmp_path):
    """A function that writes a photograph of random pixels: `photograph("dog/1.jpg")`; the array that it holds."""

    def write(name, size=(40, 30), folder=tmp_path):
        wide, high = size
        seed = sum(map(ord, name))
        pixels = np.random.default_rng(seed).integers(0, 256, (high, wide, 3), np.uint8)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / name)
        return np.asarray(Image.open(folder / name).convert("RGB"))

    return write


@pytest.fixture
def mask_file(tmp_path):
    """A function that writes a mask, white in the box (left, top, right, bottom); the array that it holds."""

    def write(name, size=(40, 30), box=(10, 5, 30, 25), folder=tmp_path):
        wide, high = size
        levels = np.zeros((high, wide), np.uint8)
        left, top, right, bottom = box
        levels[top:bottom, left:right] = 255
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(levels).save(folder / name)
        return levels / 255

    return write
