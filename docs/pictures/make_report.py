"""The screenshots of docs/report.md: `python docs/pictures/make_report.py demo/report.html`, after `make demo`."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent


def keep(picture: bytes, name: str) -> None:
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    smaller = image.resize((image.width * 3 // 4, image.height * 3 // 4), Image.Resampling.LANCZOS)
    smaller.save(HERE / name, quality=64, optimize=True)


def main(report: Path) -> None:
    with sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 1180})
        page.goto(report.resolve().as_uri())
        keep(page.screenshot(), "report.jpg")
        page.set_viewport_size({"width": 1180, "height": 780})
        page.locator(".flip", has=page.locator("img[alt^='heat']")).or_(page.locator(".flip")).first.click()
        page.wait_for_selector("dialog[open]")
        keep(page.screenshot(), "report-flip.jpg")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
