"""The page in a real browser: an edit, changed answers, downloads that replay, marks on the photograph, flips."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from command_line import run_cli
from hostile_names import HOSTILE_EDIT, HOSTILE_MODEL
from unswayed.files.whole import sha256
from watched_page import LONG, WINDOWS, violations, watched

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SAMPLE = Path(str(resources.files("unswayed.data").joinpath("sample")))

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt install chromium")


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page, opened; at the end it has complained of nothing, asked nobody else and run no foreign script."""
    with watched(browser, address) as opened:
        yield opened


def downloaded(page: Any, what: str, folder: Path) -> Path:
    if not page.is_visible(f"#download-{what}"):
        page.click("#downloads button.label-wrap")
    with page.expect_download() as coming:
        page.click(f"#download-{what}")
    path = folder / coming.value.suggested_filename
    coming.value.save_as(path)
    return path


def open_a_flip_of_lite_0(page: Any) -> None:
    page.locator("#browse-model input").click()
    page.get_by_role("option", name="lite:0").click()
    page.wait_for_selector("#flips .quiet:text-is('lite:0')")
    page.locator("#flips button").first.click()
    page.wait_for_selector("#flip img[alt^='heat map of lite:0']")


def test_an_edit_changes_the_answer_and_its_record_replays_to_the_same_bytes(page, tmp_path):
    assert "hen →" in page.inner_text("#answers")  # the page opens with a change that turns the answer
    page.click("#pictures .chip.all")
    page.wait_for_selector("#answers .held")
    assert "The prediction is the same: hen" in page.inner_text("#answers")
    page.fill("#size-rate input[type=number]", "3")
    page.wait_for_selector("#answers .turned")
    assert page.is_checked("#on-size input")
    assert "hen →" in page.inner_text("#answers")
    assert page.locator("#answers img").count() == 2
    picture, mask, record = (downloaded(page, what, tmp_path) for what in ("picture", "mask", "record"))
    assert json.loads(record.read_text())["request"]["chain"][0]["rate"] == 0.03
    run_cli("edit", "--replay", record, "-o", tmp_path / "again.png", code=0)
    assert sha256(tmp_path / "again.png") == sha256(picture)
    assert sha256(tmp_path / "again.mask.png") == sha256(mask)
    assert violations(page) == []


def test_diffusion_renders_and_replays(page, tmp_path):
    page.locator("button.label-wrap", has_text="background").click()
    page.locator("#background-kind input").click()
    page.get_by_role("option", name="simple").click()
    page.wait_for_selector("#note :text('press Render')")
    page.click("#downloads button.label-wrap")
    assert page.is_disabled("#download-picture")
    steps = page.get_by_label("number input for diffusion steps")
    steps.fill("4")
    steps.press("Tab")
    page.wait_for_function("() => document.querySelector('[aria-label^=\"range slider for diffusion\"]').value === '4'")
    page.click("#render")
    page.wait_for_selector("#note :text('Rendered in')", timeout=2 * LONG)
    assert "Rendered in 2 diffusion steps" in page.inner_text("#note")
    picture, record = (downloaded(page, what, tmp_path) for what in ("picture", "record"))
    assert json.loads(record.read_text())["rendered_by"]["renderer"] == "diffusion"
    run_cli("edit", "--replay", record, "-o", tmp_path / "again.png", code=0)
    assert sha256(tmp_path / "again.png") == sha256(picture)


def test_an_uploaded_object_is_boxed_and_painted_with_the_mouse(page):
    assert not page.is_visible("#marker"), "a sample has its mask"
    page.set_input_files("#upload input[type=file]", SAMPLE / "panda.jpg")
    page.wait_for_selector("#marker :text('mask made by grabcut')")
    page.locator("#marker canvas").scroll_into_view_if_needed()
    box = page.locator("#marker canvas").bounding_box()

    def drag(start: tuple[float, float], end: tuple[float, float]) -> None:
        points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
        page.mouse.move(*points[0])
        page.mouse.down()
        page.mouse.move(*points[1], steps=4)
        page.mouse.up()

    drag((0.2, 0.2), (0.9, 0.9))
    page.wait_for_selector("#marker :text('mask made by grabcut from the box')")
    page.click("#marker [data-tool=add]")
    drag((0.05, 0.05), (0.3, 0.05))
    page.wait_for_selector("#marker :text('mask changed by hand')")


def test_a_photograph_of_ones_own_and_one_that_is_none(page, tmp_path):
    bad, own = tmp_path / "holiday.jpg", tmp_path / "<b>mine.jpg"
    bad.write_bytes(b"PK\x03\x04" + bytes(64))
    with page.expect_file_chooser() as chooser:
        page.click("#sample [data-own]")
    chooser.value.set_files(bad)
    page.wait_for_selector("#problem [role=alert]")
    assert "holiday.jpg: this is not a picture but a ZIP archive" in page.inner_text("#problem")
    shutil.copy(SAMPLE / "panda.jpg", own)
    page.set_input_files("#upload input[type=file]", own)
    page.wait_for_selector("#marker :text('mask made by grabcut')")
    assert page.inner_text("#problem").strip() == ""
    page.wait_for_selector("#answers :text('giant panda')")
    # The old selection and preset are gone.
    page.wait_for_selector("#pictures .chip", state="detached")
    assert page.locator("#sample [aria-pressed=true]").count() == 0
    assert not page.is_checked("#on-size input")


def test_a_photograph_is_shown_while_it_is_opened(page):
    page.route("**/queue/join*", lambda route: None)  # the server is never asked
    thumbnail = page.get_attribute("#sample [data-sample=panda] img", "src")
    page.click("#sample [data-sample=panda]")
    page.wait_for_selector("#pictures .canvas.loading")
    assert page.get_attribute("#pictures .after", "src") == thumbnail


def test_a_preset_opens_its_accordion_and_changes_have_words(page):
    assert page.inner_text("#pictures [data-reset=size]").startswith("object size 3 %")
    page.get_by_role("button", name="A blue hen").click()
    page.wait_for_selector("#pictures [data-reset=color]")
    page.wait_for_selector("#color-hue input", state="visible")
    assert not page.is_visible("#size-rate input[type=number]")
    assert page.locator("button.label-wrap", has_text="reinsertion").count() == 0


def test_the_picture_its_answers_the_search_and_the_rendering_are_in_sight_at_once(browser, address):
    with watched(browser, address, viewport=WINDOWS[0]) as page:
        for changed in (True, False):
            for part in ("#pictures .after", "#pictures .verdict", "#answers .bars", "#search", "#render"):
                box = page.locator(part).first.bounding_box()
                assert box["y"] >= 0 and box["y"] + box["height"] <= 850, (part, changed)
            if changed:
                page.click("#pictures .chip.all")
                page.wait_for_selector("#pictures :text('Nothing is changed yet')")


def test_the_smallest_change_is_searched_and_worded_with_care(page):
    page.click("#search")
    page.wait_for_selector("#found .film")
    said = page.inner_text("#found")
    assert "the prediction changes from “hen”" in said
    assert "smaller levels that were not tried" in said


def test_flips_are_browsed_filtered_and_opened_and_hostile_names_are_only_text(page):
    page.get_by_role("tab", name="Browse").click()
    page.wait_for_selector("#flips button")
    total = page.locator("#flips button").count()
    page.locator("#browse-model input").click()
    page.get_by_role("option", name=HOSTILE_MODEL).click()
    page.wait_for_function(f"document.querySelectorAll('#flips button').length < {total}")
    assert set(page.locator("#flips .quiet").all_inner_texts()) == {HOSTILE_MODEL}
    assert HOSTILE_EDIT in page.locator("#flips b").all_inner_texts()
    page.locator("#flips button").first.click()
    page.wait_for_selector("#flip h2")
    assert HOSTILE_MODEL in page.inner_text("#flip h2")
    assert f"start the page with -m {HOSTILE_MODEL}" in page.inner_text("#flip")
    open_a_flip_of_lite_0(page)
    assert violations(page) == []


def test_a_card_pressed_far_down_opens_in_sight(browser, address):
    with watched(browser, address, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True) as page:
        page.get_by_role("tab", name="Browse").click()
        page.wait_for_selector("#flips button")
        page.locator("#flips button").last.scroll_into_view_if_needed()
        assert page.evaluate("window.scrollY") > 900
        page.locator("#flips button").last.tap()
        page.wait_for_selector("#flip h2")
        page.wait_for_function("""() => {
          const box = document.querySelector("#flip h2").getBoundingClientRect();
          return box.top >= 0 && box.bottom <= innerHeight;
        }""")


def test_models_are_compared_as_dumbbells(page):
    page.get_by_role("tab", name="Compare").click()
    page.wait_for_selector("#comparison .dumbbell")
    assert "object size 2 %" in page.inner_text("#comparison")
    assert page.locator("#comparison .dumbbell .dot").count() == 2 * page.locator("#comparison .dumbbell li").count()
    assert page.locator("#comparison .disagreed li").count() > 0
    page.locator("#second input").click()
    page.get_by_role("option", name="lite:0").click()
    page.wait_for_selector("#comparison .key:has-text('lite:0')")
    assert violations(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_tab_can_be_read_at_every_width(browser, address, scheme):
    with watched(browser, address, color_scheme=scheme) as page:
        assert page.evaluate("document.body.classList.contains('dark')") == (scheme == "dark")
        page.wait_for_selector("#answers .turned")
        for tab in ("Edit", "Browse", "Compare"):
            page.get_by_role("tab", name=tab).click()
            if tab == "Browse":
                page.wait_for_selector("#flips button")
                open_a_flip_of_lite_0(page)
            if tab == "Compare":
                page.wait_for_selector("#comparison .dumbbell")
            for window in WINDOWS:
                page.set_viewport_size(window)
                assert page.evaluate("document.documentElement.scrollWidth") <= window["width"]
                assert violations(page) == [], (tab, window)
            page.set_viewport_size(WINDOWS[0])
