"""How fast the app answers in a real Chromium: from a slider's change to picture and answer, and updates in a drag.

    python benchmarks/app_latency.py [--changes 20] [--seconds 5]

The times are measured in the page: from the event of the slider to the patch of the page that contains the new picture
with the new answer on it. A drag moves the object along a circle, with a pointer event every 20 milliseconds.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
from typing import Any

from unswayed.views.app import AppSettings
from unswayed.views.app.page import served

PICTURE = "document.querySelector('#pictures .after')"
# Resolves with the milliseconds until the picture is another one.
CHANGE = f"""(value) => new Promise((resolve) => {{
  const [before, begun] = [{PICTURE}.src, performance.now()];
  new MutationObserver((_, observer) => {{
    if ({PICTURE}.src === before) return;
    observer.disconnect();
    resolve(performance.now() - begun);
  }}).observe(document.querySelector('#pictures'), {{ subtree: true, attributes: true, childList: true }});
  const slider = document.querySelector('#size-rate input[type=range]');
  slider.value = value;
  slider.dispatchEvent(new Event('input', {{ bubbles: true }}));
}})"""
COUNT = f"""() => {{
  window.updates = [];
  let last = {PICTURE}.src;
  new MutationObserver(() => {{
    if ({PICTURE}.src !== last) {{ last = {PICTURE}.src; window.updates.push(performance.now()); }}
  }}).observe(document.querySelector('#pictures'), {{ subtree: true, attributes: true, childList: true }});
}}"""


def slider_times(page: Any, changes: int) -> list[float]:
    """Return the seconds from each change of the size to its picture and answer."""
    values = [300 + 500 * ((7 * step) % changes) / changes for step in range(changes)]
    times = []
    for value in values:
        times.append(page.evaluate(CHANGE, value) / 1000)
        page.wait_for_timeout(1500)  # the heat maps of this picture, which the visitor looks at
    return times


def drag_rate(page: Any, seconds: float) -> float:
    """Return the pictures with answers per second while the object is dragged along a circle."""
    box = page.locator("#pictures .grip.move").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.evaluate(COUNT)
    begun = page.evaluate("performance.now()")
    steps = 0
    while page.evaluate("performance.now()") - begun < 1000 * seconds:
        steps += 1
        page.mouse.move(x + 60 * math.cos(steps / 20), y + 60 * math.sin(steps / 20))
        page.wait_for_timeout(20)
    times = page.evaluate("window.updates")
    page.mouse.up()
    return sum(1 for time in times if time - begun <= 1000 * seconds) / seconds


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    with served(AppSettings(models=["lite:0"])) as (address, _), sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=path, args=["--headless", "--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        page.goto(address)
        page.wait_for_selector("#answers .bars", timeout=120_000)
        page.wait_for_timeout(2000)
        times = slider_times(page, given.changes)
        rate = drag_rate(page, given.seconds)
        browser.close()
    slow = sorted(times)[math.ceil(0.9 * len(times)) - 1]
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    print(f"slider to picture and answer: median {statistics.median(times):.2f} s, 90 % within {slow:.2f} s")
    print(f"drag: {rate:.1f} pictures with answers per second")


if __name__ == "__main__":
    main()
