"""The screenshot of docs/review.md: `python docs/pictures/make_review.py`, with Playwright and Chromium."""

from __future__ import annotations

import tempfile
from pathlib import Path

from camera import camera, keep, shot

from unswayed.benchmark import BuildSettings, build
from unswayed.views.review import open_session, served


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Path(folder) / "bench"
        build("sample", bench, BuildSettings(renderer="paste", recipe="original,size-0.1,position"))
        with served(open_session(bench, "ann", edits=["size-0.1"])) as server, camera(900, 860) as page:
            page.goto(server.address)
            page.wait_for_selector("#edit:not(:empty)")
            while "German shepherd" not in page.inner_text("#edit"):
                said = page.inner_text("#place")
                page.keyboard.press("1")
                page.wait_for_function("said => document.querySelector('#place').innerText !== said", arg=said)
            page.wait_for_timeout(500)
            keep(shot(page), "review.jpg")


if __name__ == "__main__":
    main()
