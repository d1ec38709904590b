"""The stage in a real browser: handles by mouse, touch and keyboard, chips, sliders, the bar of a phone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from watched_page import swipe, watched


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    with watched(browser, address) as opened:
        yield opened


@contextmanager
def phone(browser: Any, address: str) -> Iterator[Any]:
    """A page on a touch screen of 390 × 844 pixels."""
    with watched(browser, address, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True) as opened:
        yield opened


def place(page: Any) -> dict[str, Any]:
    return json.loads(page.get_attribute("#pictures .canvas", "data-place"))


def control(page: Any, name: str) -> float:
    return float(page.input_value(f"#{name} input[type=number]"))


def middle_of(page: Any, selector: str) -> tuple[float, float]:
    page.locator(selector).scroll_into_view_if_needed()
    box = page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=8)
    page.mouse.up()


def test_the_object_is_dragged_scaled_and_turned_with_the_mouse_and_the_sliders_follow(page):
    page.click("#pictures .chip.all")
    page.wait_for_selector("#pictures .chip", state="detached")
    before, own = place(page), control(page, "size-rate")
    assert before["rate"] == pytest.approx(own, rel=0.01)
    corner = page.locator("#pictures .grip.scale").nth(2)
    x, y = middle_of(page, "#pictures .grip.move")
    box = corner.bounding_box()
    far = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    drag(page, far, ((far[0] + x) / 2, (far[1] + y) / 2))
    page.wait_for_selector("#pictures [data-reset=size]")
    last = f"JSON.parse(document.querySelector('#pictures .canvas').dataset.place).rate < {1.2 * own / 4}"
    page.wait_for_function(last)  # earlier places of the drag are shown before
    assert control(page, "size-rate") == pytest.approx(own / 4, rel=0.2)
    assert page.is_checked("#on-size input")
    x, y = middle_of(page, "#pictures .grip.move")
    drag(page, (x, y), (x - 60, y - 80))
    page.wait_for_selector("#pictures [data-reset=position]")
    page.wait_for_function(
        "(c) => JSON.parse(document.querySelector('#pictures .canvas').dataset.place).center[1] < c",
        arg=before["center"][1] - 0.1,
    )
    x, y = middle_of(page, "#pictures .grip.move")
    top = middle_of(page, "#pictures .grip.turn")
    drag(page, top, (x + (y - top[1]), y))
    page.wait_for_function(
        "Math.abs(JSON.parse(document.querySelector('#pictures .canvas').dataset.place).degrees + 90) < 6"
    )
    page.locator("button.label-wrap", has_text="direction").click()
    assert control(page, "direction-degrees") == pytest.approx(place(page)["degrees"], abs=1)


def test_chips_reset_one_change_or_all(page):
    page.fill("#size-rate input[type=number]", "0.05")
    page.wait_for_selector("#pictures [data-reset=size]:has-text('5 %')")
    page.focus("#pictures .grip.turn")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#pictures [data-reset=direction]")
    page.click("#pictures [data-reset=direction]")
    page.wait_for_selector("#pictures [data-reset=direction]", state="detached")
    assert page.is_visible("#pictures [data-reset=size]")
    assert "direction" in page.inner_text("#pictures")
    page.click("#pictures .chip.all")
    page.wait_for_selector("#pictures .chip", state="detached")
    assert not page.is_checked("#on-size input")
    assert control(page, "size-rate") == pytest.approx(place(page)["rate"], rel=0.01)


def test_handles_work_with_the_keyboard(page):
    page.click("#pictures .chip.all")
    page.wait_for_selector("#pictures .chip", state="detached")
    before = place(page)
    page.focus("#pictures .grip.scale[data-corner='2']")
    for _ in range(12):
        page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "(r) => JSON.parse(document.querySelector('#pictures .canvas').dataset.place).rate < 0.4 * r",
        arg=before["rate"],
    )
    page.focus("#pictures .grip.move")
    page.keyboard.press("Shift+ArrowUp")
    page.wait_for_selector("#pictures [data-reset=position]")
    page.focus("#pictures .grip.turn")
    page.keyboard.press("Shift+ArrowLeft")
    page.wait_for_function("JSON.parse(document.querySelector('#pictures .canvas').dataset.place).degrees === 15")
    assert place(page)["center"][1] == pytest.approx(before["center"][1] - 0.1, abs=0.02)


def test_the_size_slider_is_logarithmic_starts_at_the_objects_size_and_ends_where_the_frame_ends(page):
    page.click("#pictures .chip.all")
    page.wait_for_selector("#pictures .chip", state="detached")
    slider = page.locator("#size-rate input[type=range]")
    low, high = (float(page.get_attribute("#size-rate input[type=number]", name)) for name in ("min", "max"))
    assert low < control(page, "size-rate") < high < 1
    slider.evaluate("(one) => { one.value = 500; one.dispatchEvent(new Event('input', { bubbles: true })); }")
    page.wait_for_selector("#pictures [data-reset=size]")
    assert control(page, "size-rate") == pytest.approx((low * high) ** 0.5, rel=0.02)
    slider.evaluate("(one) => { one.value = 1000; one.dispatchEvent(new Event('input', { bubbles: true })); }")
    page.wait_for_function(
        "(h) => JSON.parse(document.querySelector('#pictures .canvas').dataset.place).rate > 0.95 * h", arg=high
    )
    assert page.locator("#note [role=alert]").count() == 0


def test_the_stage_stays_in_sight_and_says_the_answer(page):
    page.evaluate("window.scrollTo(0, 900)")
    page.wait_for_function("document.querySelector('#pictures .canvas').getBoundingClientRect().top >= 0")
    assert page.locator("#pictures .after").bounding_box()["y"] < 500
    page.fill("#size-rate input[type=number]", "0.03")
    page.wait_for_selector("#pictures .verdict .turned")
    assert "changed, was koala" in page.inner_text("#pictures .verdict")


def test_on_a_phone_fingers_move_the_object_and_a_bar_shows_picture_and_answer(browser, address):
    with phone(browser, address) as page:
        page.click("#pictures .chip.all")
        page.wait_for_selector("#pictures .chip", state="detached")
        before = place(page)
        scrolled = page.evaluate("window.scrollY")
        x, y = middle_of(page, "#pictures .grip.move")
        swipe(page, (x, y), (x, y - 60))
        page.wait_for_selector("#pictures [data-reset=position]")
        assert page.evaluate("window.scrollY") == scrolled
        assert place(page)["center"][1] < before["center"][1]
        assert not page.is_visible("#pictures .glance")
        page.evaluate("window.scrollTo(0, 2500)")
        page.wait_for_selector("#pictures .glance", state="visible")
        bar = page.locator("#pictures .glance").bounding_box()
        assert bar["y"] + bar["height"] == pytest.approx(844, abs=1)
        assert "koala" in page.inner_text("#pictures .glance")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
