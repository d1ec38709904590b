"""A page opened in a real browser that is checked at the end: no error, no request elsewhere, no foreign script."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LONG = 60_000


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
    opened.wait_for_selector("#answers .bars")
    yield opened
    assert messages == []
    assert foreign == []
    assert opened.evaluate("window.hacked") is None
    opened.close()
