"""What tests of several rooms share: a real browser, and Hypothesis settings that do not depend on speed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
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
