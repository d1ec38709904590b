"""The README's and docs/report.md's pictures: a report about some hundred photographs, and a flip of it, opened.

python docs/pictures/make_report.py OXFORD-IIIT-PET demo/pets

The first folder holds Oxford-IIIT Pet in torchvision's layout (`unswayed build "oxford-pet:FOLDER?download=yes" …`
downloads it); the second one gets the benchmark, the predictions and the report.
"""

from __future__ import annotations

import sys
from pathlib import Path

from camera import camera, keep, shot

import unswayed

MODELS = ("lite:0", "lite:1", "lite:2")


def made(pets: str, work: Path) -> Path:
    """Build, evaluate and report; what is there is not made again."""
    unswayed.build(f"oxford-pet:{pets}?split=trainval", work / "benchmark", renderer="paste", sample=361)
    unswayed.evaluate(work / "benchmark", MODELS, work / "predictions")
    return Path(unswayed.report(work / "predictions", work / "report.html").path)


def main(pets: str, work: Path) -> None:
    report = made(pets, work)
    with camera(1300, 850) as page:
        page.goto(report.resolve().as_uri())
        keep(shot(page), "report.jpg", height=690)
        page.locator(".worst-flip").click()
        page.wait_for_selector("dialog[open]")
        keep(shot(page), "report-flip.jpg", width=1000)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
