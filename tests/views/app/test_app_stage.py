"""The stage in a real browser: handles by mouse, touch and keyboard, chips, sliders, the bar of a phone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from unswayed.views.app import editor, stage
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


def size(page: Any) -> float:
    return control(page, "size-rate") / 100


def middle_of(page: Any, selector: str) -> tuple[float, float]:
    page.locator(selector).scroll_into_view_if_needed()
    box = page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def center_of(page: Any) -> tuple[float, float]:
    """The middle of the object's box on the screen."""
    corners, picture = place(page)["corners"], page.locator("#pictures .after").bounding_box()
    x, y = (sum(corner[axis] for corner in corners) / 4 for axis in (0, 1))
    return picture["x"] + x * picture["width"], picture["y"] + y * picture["height"]


def drag(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=8)
    page.mouse.up()


def test_the_object_is_dragged_scaled_and_turned_with_the_mouse_and_the_sliders_follow(page):
    page.click("#pictures .chip.all")
    page.wait_for_selector("#pictures .chip", state="detached")
    before, own = place(page), size(page)
    assert before["rate"] == pytest.approx(own, rel=0.01)
    corner = page.locator("#pictures .grip.scale").nth(2)
    x, y = center_of(page)
    box = corner.bounding_box()
    far = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    drag(page, far, ((far[0] + x) / 2, (far[1] + y) / 2))
    page.wait_for_selector("#pictures [data-reset=size]")
    last = f"JSON.parse(document.querySelector('#pictures .canvas').dataset.place).rate < {1.2 * own / 4}"
    page.wait_for_function(last)  # earlier places of the drag are shown before
    assert size(page) == pytest.approx(own / 4, rel=0.2)
    assert page.is_checked("#on-size input")
    x, y = center_of(page)
    drag(page, (x, y), (x - 60, y - 80))
    page.wait_for_selector("#pictures [data-reset=position]")
    page.wait_for_function(
        "(c) => JSON.parse(document.querySelector('#pictures .canvas').dataset.place).center[1] < c",
        arg=before["center"][1] - 0.1,
    )
    x, y = center_of(page)
    top = middle_of(page, "#pictures .grip.turn")
    drag(page, top, (x + (y - top[1]), y))
    page.wait_for_function(
        "Math.abs(JSON.parse(document.querySelector('#pictures .canvas').dataset.place).degrees + 90) < 6"
    )
    page.locator("button.label-wrap", has_text="direction").click()
    assert control(page, "direction-degrees") == pytest.approx(place(page)["degrees"], abs=1)


def test_chips_reset_one_change_or_all(page):
    page.fill("#size-rate input[type=number]", "5")
    page.wait_for_selector("#pictures [data-reset=size]:has-text('5 %')")
    page.focus("#pictures .grip.turn")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#pictures [data-reset=direction]")
    page.click("#pictures [data-reset=direction]")
    page.wait_for_selector("#pictures [data-reset=direction]", state="detached")
    assert page.is_visible("#pictures [data-reset=size]")
    page.click("#pictures .chip.all")
    page.wait_for_selector("#pictures .chip", state="detached")
    assert not page.is_checked("#on-size input")
    assert size(page) == pytest.approx(place(page)["rate"], rel=0.01)


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
    low, high = (float(page.get_attribute("#size-rate input[type=number]", name)) / 100 for name in ("min", "max"))
    assert low < size(page) < high < 1
    slider.evaluate("(one) => { one.value = 500; one.dispatchEvent(new Event('input', { bubbles: true })); }")
    page.wait_for_selector("#pictures [data-reset=size]")
    assert size(page) == pytest.approx((low * high) ** 0.5, rel=0.02)
    slider.evaluate("(one) => { one.value = 1000; one.dispatchEvent(new Event('input', { bubbles: true })); }")
    page.wait_for_function(
        "(h) => JSON.parse(document.querySelector('#pictures .canvas').dataset.place).rate > 0.95 * h", arg=high
    )
    assert page.locator("#note [role=alert]").count() == 0


def test_the_stage_stays_in_sight_and_says_the_answer(page):
    page.evaluate("window.scrollTo(0, 900)")
    page.wait_for_function("document.querySelector('#pictures .canvas').getBoundingClientRect().top >= 0")
    assert page.locator("#pictures .after").bounding_box()["y"] < 500
    page.fill("#size-rate input[type=number]", "3")
    page.wait_for_selector("#pictures .verdict .turned")
    assert "changed, was hen" in page.inner_text("#pictures .verdict")


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
        assert "hen" in page.inner_text("#pictures .glance")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


FRAME = """() => {
  const points = document.querySelector("#pictures polygon").getAttribute("points").split(" ");
  const corners = points.map((point) => point.split(",").map(Number));
  const moving = document.querySelector("#pictures .moving");
  return {
    center: [0, 1].map((axis) => corners.reduce((sum, corner) => sum + corner[axis], 0) / 4),
    serial: document.querySelector("#pictures .canvas").dataset.serial || "",
    hidden: moving.hidden,
    ink: moving.hidden ? 0 : moving.getContext("2d").getImageData(128, 128, 1, 1).data[3],
  };
}"""


def test_the_cut_out_follows_the_pointer_and_late_replies_are_ignored(page, monkeypatch):
    """With a slow server the picture jumped back to places that the pointer had left."""

    def slow(*given: Any) -> stage.StageContent:
        time.sleep(1.0)
        return stage.preview(*given)

    page.hover("#pictures .canvas")
    start = middle_of(page, "#pictures .grip.move")
    monkeypatch.setattr(editor, "preview", slow)
    page.mouse.move(*start)
    page.mouse.down()
    begun = page.evaluate(FRAME)["center"]
    for step in range(1, 11):
        page.mouse.move(start[0] - 8 * step, start[1] - 8 * step)
        page.wait_for_timeout(120)
    page.mouse.up()
    end = page.evaluate(FRAME)
    assert end["center"][0] < begun[0] - 0.1 and not end["hidden"] and end["ink"] == 255
    serials, deadline = [], time.monotonic() + 60
    while not (now := page.evaluate(FRAME))["hidden"]:
        assert now["center"] == end["center"], "it jumped back"
        serials.append(now["serial"])
        assert time.monotonic() < deadline
        page.wait_for_timeout(50)
    assert len(set(serials)) > 1, "replies to earlier places came and were not shown"
    assert now["center"] == pytest.approx(end["center"], abs=0.01)
    assert place(page)["center"] == pytest.approx(end["center"], abs=0.03)


def test_a_second_handle_keeps_what_the_first_one_did_before_its_reply(page, monkeypatch):
    page.click("#pictures .chip.all")
    page.wait_for_selector("#pictures .chip", state="detached")
    before = place(page)

    def slow(*given: Any) -> stage.StageContent:
        time.sleep(0.7)
        return stage.preview(*given)

    monkeypatch.setattr(editor, "preview", slow)
    page.focus("#pictures .grip.scale[data-corner='2']")
    for _ in range(8):
        page.keyboard.press("ArrowLeft")
    page.focus("#pictures .grip.move")
    page.keyboard.press("Shift+ArrowUp")
    page.wait_for_selector("#pictures [data-reset=position]")
    page.wait_for_function("document.querySelector('#pictures .moving').hidden")
    assert place(page)["rate"] == pytest.approx(before["rate"] * 1.05**-16, rel=0.05)
    assert page.is_visible("#pictures [data-reset=size]")


def test_handles_appear_on_hover_and_cover_neither_the_object_nor_the_answer(page):
    page.mouse.move(1, 1)
    shown = "getComputedStyle(document.querySelector('#pictures .grip.turn')).opacity"
    page.wait_for_function(f"{shown} === '0'")
    page.hover("#pictures .after", position={"x": 5, "y": 5}, force=True)
    page.wait_for_function(f"{shown} === '1'")
    corners = place(page)["corners"]
    picture = page.locator("#pictures .after").bounding_box()
    left, top = (
        picture[axis] + picture["width"] * min(corner[at] for corner in corners) for at, axis in enumerate("xy")
    )
    right, low = (
        picture[axis] + picture["width"] * max(corner[at] for corner in corners) for at, axis in enumerate("xy")
    )
    answer = page.locator("#pictures .verdict").bounding_box()
    for grip in page.locator("#pictures .grip").all():
        box = grip.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        assert x < left or x > right or y < top or y > low
        assert box["y"] + box["height"] <= answer["y"] + 1
