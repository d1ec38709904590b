"""What tests of several folders share: a real browser, commands without the rights of root, and settings of Hypothesis
that do not depend on speed."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


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
    """Runs a command of unfazed as somebody who may not open the folder `closed`."""
    if sys.platform != "linux":
        pytest.skip("drops capabilities of Linux")

    def run(command: str, closed: Path) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-c", "from unfazed.cli import main; main()", *command.split()]
        closed.chmod(0)
        try:
            return subprocess.run(program, capture_output=True, text=True, preexec_fn=_without_rights_of_root)
        finally:
            closed.chmod(0o755)

    return run
