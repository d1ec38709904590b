"""What the scripts of this folder share: a browser whose screenshots have the same bytes on every run of a machine."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--font-render-hinting=none", "--force-color-profile=srgb"]
# Without these, rounded corners differ by one gray level from one start to the next.
ARGUMENTS += ["--disable-partial-raster", "--num-raster-threads=1"]


@contextmanager
def camera(width: int, height: int, **context: Any) -> Iterator[Any]:
    """A page of Chromium without animations."""
    with sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        opened = browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", color_scheme="light", **context
        )
        page = opened.new_page()
        page.set_default_timeout(90_000)
        yield page
        browser.close()


def shot(page: Any, **options: Any) -> Image.Image:
    """A screenshot without carets and running animations, once every picture of the page is decoded."""
    page.evaluate(
        """Promise.race([new Promise((done) => setTimeout(done, 2000)),
        Promise.all([...document.images].map((image) => image.decode().catch(() => null)))])"""
    )
    return Image.open(io.BytesIO(page.screenshot(animations="disabled", caret="hide", **options))).convert("RGB")


def keep(image: Image.Image, name: str, width: int | None = None, height: int | None = None, quality: int = 80) -> None:
    """Write the upper part of a picture, at most `height` high, reduced to `width`."""
    image = image.crop((0, 0, image.width, min(height or image.height, image.height)))
    if width is not None and width < image.width:
        image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
    image.save(HERE / name, quality=quality, optimize=True)
