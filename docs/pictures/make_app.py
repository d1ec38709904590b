"""The screenshots of docs/app.md: `python docs/pictures/make_app.py PREDICTIONS`, with Playwright and Chromium."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from unswayed.views.app import AppSettings
from unswayed.views.app.page import served

HERE = Path(__file__).parent


def keep(picture: bytes, name: str, height: int) -> None:
    """The upper part of a screenshot."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.crop((0, 0, image.width, min(height, image.height))).save(HERE / name, quality=86)


def main(predictions: Path) -> None:
    with (
        served(AppSettings(models=["lite:0", "lite:2"], predictions=predictions)) as (address, _),
        sync_playwright() as runner,
    ):
        arguments = ["--headless", "--no-sandbox", "--disable-gpu"]
        browser = runner.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(180_000)
        page.goto(address)
        page.wait_for_selector("#answers .bars")
        page.wait_for_selector("#answers .turned")
        page.wait_for_timeout(500)
        keep(page.screenshot(full_page=True), "app-edit.jpg", 1040)
        page.click("#search")
        page.wait_for_selector("#found .film")
        keep(page.locator("#found").screenshot(), "app-smallest.jpg", 900)
        page.get_by_role("tab", name="Browse").click()
        page.wait_for_selector("#flips button")
        page.locator("#flips button").first.click()
        page.wait_for_selector("#flip img[alt^='heat map']")
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(500)
        keep(page.screenshot(full_page=True), "app-browse.jpg", 1250)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
