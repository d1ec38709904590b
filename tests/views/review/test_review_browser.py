"""The review page in a real browser: two raters rate 30 pictures by keyboard alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unswayed.benchmark.rows import read_reviews
from unswayed.views.review import open_session, served, summarize
from watched_page import WINDOWS, violations

KEYS = {"1": "valid", "2": "unrecognizable", "3": "artifact"}


def rate(browser: Any, bench: Path, rater: str, presses: list[str], **options: Any) -> tuple[list[str], list[str]]:
    """Press these keys, each once the picture before it is saved; what the page complained of and asked for."""
    messages: list[str] = []
    requests: list[str] = []
    with served(open_session(bench, rater, limit=30, blind=True, shuffle=True)) as server:
        context = browser.new_context(**options)
        page = context.new_page()
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(server.address)
        for count, key in enumerate(presses, start=1):
            page.locator("#place", has_text=f"· {count - 1} rated").wait_for()
            page.keyboard.press(key)
        page.locator("#place", has_text=f"· {len(presses)} rated").wait_for()
        page.screenshot(path=str(bench / f"{rater}.png"))
        context.close()
        foreign = [url for url in requests if not url.startswith((server.address, "data:"))]
    return messages, foreign


def test_two_raters_rate_thirty_pictures_by_keyboard(browser, bench):
    from sklearn.metrics import cohen_kappa_score

    presses = {"ann": list("1112131123" * 3), "bob": list("1121131122" * 3)}
    assert rate(browser, bench, "ann", presses["ann"]) == ([], [])
    assert rate(browser, bench, "bob", presses["bob"][:10], color_scheme="dark") == ([], [])
    # The second rater comes back later and continues.
    with served(open_session(bench, "bob", limit=30, blind=True, shuffle=True)) as server:
        page = browser.new_page()
        page.goto(server.address)
        for count, key in enumerate(presses["bob"][10:], start=10):
            page.locator("#place", has_text=f"· {count} rated").wait_for()
            page.keyboard.press(key)
        page.locator("#place", has_text="all rated").wait_for()
        page.keyboard.press("ArrowLeft")
        page.locator("#place", has_text="Picture 29 of 30").wait_for()
        assert page.locator("button[aria-pressed=true]").count() == 1
        page.close()
    reviews = read_reviews(bench)
    given: dict[str, dict[str, str]] = {"ann": {}, "bob": {}}
    for one in reviews:
        given[one.rater][one.sample_id] = one.answer
    for rater, pressed in presses.items():
        order = [item.sample_id for item in open_session(bench, rater, limit=30, shuffle=True).items]
        assert [given[rater][one] for one in order] == [KEYS[key] for key in pressed]
    items = sorted(given["ann"])
    wanted = cohen_kappa_score([given["ann"][one] for one in items], [given["bob"][one] for one in items])
    found = summarize(bench)["agreement"]
    assert (found["n"], found["method"]) == (30, "Cohen")
    assert found["kappa"] == pytest.approx(wanted)


def test_an_answer_that_cannot_be_saved_is_said_on_the_page(browser, bench):
    with served(open_session(bench, "ann", limit=3)) as server:
        page = browser.new_page()
        page.goto(server.address)
        page.locator("#place", has_text="0 rated").wait_for()
        (bench / "reviews.parquet").write_bytes(b"damaged")
        page.keyboard.press("1")
        page.locator("#message", has_text="was not saved").wait_for()
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser, bench, scheme):
    with served(open_session(bench, "ann", limit=3)) as server:
        page = browser.new_page(color_scheme=scheme, bypass_csp=True)
        for window in WINDOWS:
            page.set_viewport_size(window)
            page.goto(server.address)
            page.locator("#place", has_text="0 rated").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= window["width"]
            assert violations(page) == [], window
        page.close()


def test_on_a_phone_the_pictures_are_stacked_held_to_flip_and_zoomed(browser, bench):
    with served(open_session(bench, "ann", limit=3)) as server:
        page = browser.new_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
        page.goto(server.address)
        page.locator("#place", has_text="0 rated").wait_for()
        original, edited = page.locator("#original"), page.locator("#edited")
        assert edited.is_visible() and not original.is_visible()
        assert "size-0" not in page.inner_text("#edit") and page.inner_text("#edit"), "edits have plain words"
        at_first = edited.bounding_box()
        assert at_first["width"] > 330
        assert page.locator("[data-answer=artifact]").bounding_box()["y"] < 844
        button = page.locator("#flip").bounding_box()
        page.mouse.move(button["x"] + 20, button["y"] + 10)
        page.mouse.down()
        assert original.is_visible() and not edited.is_visible()
        assert original.bounding_box() == pytest.approx(at_first, abs=2)
        page.mouse.up()
        assert edited.is_visible() and not original.is_visible()
        page.locator("#zoom").tap()
        assert edited.bounding_box()["width"] > 2 * at_first["width"]
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.locator("[data-answer=valid]").tap()
        page.locator("#place", has_text="1 rated").wait_for()
        assert edited.bounding_box()["width"] == pytest.approx(at_first["width"], abs=2)
        page.close()
