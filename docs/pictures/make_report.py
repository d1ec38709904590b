"""The README's and docs/report.md's pictures: a report about some hundred photographs, and a flip of it, opened; and
the README's table of its results.

python docs/pictures/make_report.py OXFORD-IIIT-PET demo/pets

The first folder holds Oxford-IIIT Pet in torchvision's layout (`unswayed build "oxford-pet:FOLDER?download=yes" …`
downloads it); the second one gets the benchmark, the predictions and the report.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from camera import camera, keep, shot

import unswayed

MODELS = ("lite:0", "lite:1", "lite:2")
README = Path(__file__).parents[2] / "README.md"
COLUMNS = ("original", "reinsertion", "background-random", "size-0.1", "size-0.05", "position", "direction-small")


def made(pets: str, work: Path) -> Path:
    """Build, evaluate and report; what is there is not made again."""
    unswayed.build(f"oxford-pet:{pets}?split=trainval", work / "benchmark", renderer="paste", sample=361)
    unswayed.evaluate(work / "benchmark", MODELS, work / "predictions")
    return Path(unswayed.report(work / "predictions", work / "report.html").path)


def write_table(work: Path) -> None:
    """Write the accuracies and average drops of these predictions into the README's table of example results."""
    drops = {(row["model"], row["edit"]): row for row in unswayed.analyze(work / "predictions").iter_rows(named=True)}
    text = README.read_text(encoding="utf-8")
    for model in MODELS:
        accuracies = (f"{100 * drops[model, edit]['accuracy']:.1f}" for edit in COLUMNS)
        average = "{drop:.1f} ({low:.1f} to {high:.1f})".format(**drops[model, "average"])
        text = re.sub(rf"(?m)^\| {model} \|.*$", f"| {model} | {' | '.join(accuracies)} | {average} |", text)
    README.write_text(text, encoding="utf-8")


def main(pets: str, work: Path) -> None:
    report = made(pets, work)
    write_table(work)
    with camera(1300, 850) as page:
        page.goto(report.resolve().as_uri())
        matrix = page.locator(".matrix-scroll").first.bounding_box()
        keep(shot(page), "report.jpg", height=round(matrix["y"] + matrix["height"]))
        page.locator(".worst-flip").click()
        page.wait_for_selector("dialog[open]")
        keep(shot(page), "report-flip.jpg", width=1000)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
