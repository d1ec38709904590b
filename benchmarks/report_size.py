"""The size of a report and how fast a browser opens it.

    PYTHONPATH=src python benchmarks/report_size.py PREDICTIONS [--report FILE.html]

Writes the report of PREDICTIONS without heat maps (or takes an existing one) and opens it in Chromium five times.
Prints megabytes, the seconds that writing took, and the median seconds until the page has run its script and drawn its
first picture. Needs playwright and Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from unswayed.views.report import ReportSettings
from unswayed.views.report.page import write_report


def opening(report: Path) -> float:
    """Return the seconds from the start of the navigation to the first frame after the page's script."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox"])
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        started = time.perf_counter()
        page.goto(report.resolve().as_uri())
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        seconds = time.perf_counter() - started
        browser.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("predictions", type=Path)
    parser.add_argument("--report", type=Path, help="an existing report of these predictions")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report, started = options.report, time.perf_counter()
        if report is None:
            report = Path(folder) / "report.html"
            write_report(options.predictions, report, ReportSettings(heat_maps=0))
            print(f"written in {time.perf_counter() - started:.1f} s")
        seconds = [opening(report) for _ in range(5)]
        print(f"{report.stat().st_size / 1e6:.2f} MB, opened in {statistics.median(seconds):.2f} s (median of five)")


if __name__ == "__main__":
    main()
