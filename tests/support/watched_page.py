"""A page opened in a real browser that is checked at the end: no error, no request elsewhere, no foreign script."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

AXE = Path(__file__).parents[2] / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
LONG = 60_000
WINDOWS = ({"width": 1300, "height": 850}, {"width": 768, "height": 1024}, {"width": 390, "height": 844})


@contextmanager
def watched(browser: Any, address: str, **context: Any) -> Iterator[Any]:
    """The page, opened and with its first predictions; context: settings of the browser's window."""
    opened = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, "color_scheme": "light", **context})
    opened.set_default_timeout(LONG)
    messages: list[str] = []
    foreign: list[str] = []
    opened.on("console", lambda message: messages.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: messages.append(str(error)))
    opened.on(
        "request", lambda one: None if one.url.startswith((address, "data:", "blob:")) else foreign.append(one.url)
    )
    opened.goto(address)
    opened.wait_for_selector("#answers .answers")
    yield opened
    assert messages == []
    assert foreign == []
    assert opened.evaluate("window.hacked") is None
    opened.close()


def swipe(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """One finger from start to end, as the screen reports it; it rests at the end, so that nothing goes on moving."""
    session = page.context.new_cdp_session(page)
    shares = [place / 8 for place in range(9)]
    points = [{"x": start[0] + (end[0] - start[0]) * one, "y": start[1] + (end[1] - start[1]) * one} for one in shares]
    for kind, point in [("touchStart", points[0]), *(("touchMove", one) for one in points[1:])]:
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})
    page.wait_for_timeout(150)
    session.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": points[-1:]})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def violations(page: Any, part: str = "html") -> list[tuple[str, str]]:
    """What axe-core finds in a part of the page that is serious or worse: (rule, the element)."""
    if not AXE.is_file():
        pytest.skip("no axe-core: npm install --no-save --prefix .venv/axe axe-core@4")
    # While something new is being made gradio dims the old, and fades it in again.
    page.wait_for_function("""() => ["pictures", "answers", "flip", "flips", "comparison", "found"].every((name) => {
      const block = document.getElementById(name);
      const inside = "div:not([data-testid=status-tracker], .hide *), span";
      const parts = block ? [block, ...block.querySelectorAll(inside)] : [];
      return parts.every((part) => getComputedStyle(part).opacity === "1");
    })""")
    page.evaluate("(code) => new Function(code).call(window)", AXE.read_text())
    found = page.evaluate("(part) => axe.run(part)", part)
    assert len(found["passes"]) > 10, "rules were applied"
    serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    return [(one["id"], node["html"]) for one in serious for node in one["nodes"]]
