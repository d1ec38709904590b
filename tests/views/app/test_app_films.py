"""Filmstrips, the fragility profile, masks, and Cancel in a real browser, with mouse, keys and touch."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from unswayed.views.app import AppSettings
from unswayed.views.app.page import served
from watched_page import LONG, swipe, violations, watched

SAMPLE = Path(str(resources.files("unswayed.data").joinpath("sample")))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page of its own, on a computer without the weights of the better segmenter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSWAYED_CACHE", str(tmp_path_factory.mktemp("cache")))
        with served(AppSettings(models=["lite:0"])) as (place, _):
            yield place


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    with watched(browser, address) as opened:
        yield opened


def swipe_over(page: Any, selector: str, start: tuple[float, float], end: tuple[float, float]) -> None:
    """One finger over an element, from start to end in shares of it."""
    page.locator(selector).scroll_into_view_if_needed()
    box = page.locator(selector).bounding_box()
    swipe(page, *((box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)))


def shown_still(page: Any) -> tuple[str, str, str]:
    """The caption, the place of the mark on the curve, and the picture on the stage."""
    film = page.locator("#found .film")
    return (
        film.locator(".words").inner_text(),
        str(film.locator(".now").get_attribute("style")),
        str(page.locator("#pictures .playing img").get_attribute("src")),
    )


def use_few_steps(page: Any, steps: int) -> None:
    if not page.is_visible("#download-picture"):
        page.click("#downloads button.label-wrap")
    number = page.get_by_label("number input for diffusion steps")
    number.fill(str(steps))
    number.press("Tab")
    page.wait_for_function(
        f"() => document.querySelector('[aria-label^=\"range slider for diffusion\"]').value === '{steps}'"
    )


def choose_mask(page: Any, path: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.click("#upload-mask")
    chooser.value.set_files(path)


def choose_background(page: Any, kind: str) -> None:
    page.locator("#background-kind input").click()
    page.get_by_role("option", name=kind, exact=True).click()


def test_a_filmstrip_is_scrubbed_with_keys_and_mouse_and_saved_as_a_gif(page, tmp_path):
    page.click("#search")
    page.wait_for_selector("#found .film .thumbs img.current")
    assert "the prediction changes from “hen”" in page.inner_text("#found")
    assert "Probability of “hen”, from 0 to 100 %" in page.inner_text("#found"), "the curve says what it shows"
    tops = page.locator("#found .chips button").evaluate_all("all => all.map((one) => one.getBoundingClientRect().top)")
    assert len(tops) == 2 and tops[0] == tops[1]
    at_turn = shown_still(page)
    assert "hen" not in at_turn[0].split(";")[0]
    page.locator("#found input[type=range]").focus()
    page.keyboard.press("ArrowLeft")
    before = shown_still(page)
    assert all(one != other for one, other in zip(before, at_turn, strict=True))
    page.keyboard.press("Home")
    assert shown_still(page)[0].startswith("unchanged: hen")
    assert page.locator("#found input[type=range]").get_attribute("aria-valuetext").startswith("unchanged: hen")
    curve = page.locator("#found .curve").bounding_box()
    page.mouse.click(curve["x"] + curve["width"] - 2, curve["y"] + curve["height"] / 2)
    last = page.locator("#found .thumbs img").count() - 1
    assert "current" in str(page.locator("#found .thumbs img").nth(last).get_attribute("class"))
    # One axis: the mark on the curve, the slider and the thumbnail stand over each other, and no thumbnails overlap.
    share = float(page.input_value("#found input[type=range]"))
    now = page.locator("#found .now").bounding_box()
    thumbnail = page.locator("#found .thumbs img").nth(last).bounding_box()
    assert now["x"] == pytest.approx(curve["x"] + curve["width"] * share / 100, abs=3)
    if thumbnail is not None:
        assert thumbnail["x"] + thumbnail["width"] / 2 == pytest.approx(now["x"], abs=4)
    shown = [one.bounding_box() for one in page.locator("#found .thumbs img:not(.hidden)").all()]
    places = sorted(one["x"] for one in shown)
    assert all(right - left >= shown[0]["width"] for left, right in itertools.pairwise(places))
    page.click("#found [data-play]")
    page.wait_for_selector("#pictures .playing figcaption:has-text('unchanged')")
    page.wait_for_selector("#pictures .playing figcaption:has-text('% of the picture')")
    visibility = "getComputedStyle(document.querySelector('#pictures .verdict')).visibility"
    assert page.evaluate(visibility) == "hidden", "the film's answer stands in the place of the edit's"
    page.click("#found [data-back]")
    assert page.locator("#pictures .playing").count() == 0 and page.evaluate(visibility) == "visible"
    with page.expect_download() as coming:
        page.click("#download-gif")
    coming.value.save_as(tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == last + 1
    page.click("#sweep")
    page.wait_for_function("document.querySelectorAll('#found .thumbs img').length === 13")
    assert "12 levels" in page.inner_text("#found")
    assert violations(page) == []


def test_the_profile_grows_bar_by_bar_is_canceled_and_opens_a_filmstrip(page):
    page.click("#fragility")
    page.wait_for_selector("#searching :text('of 18 searches done')")
    page.wait_for_selector("#profile ul > li")
    page.click("#cancel-search")
    page.wait_for_selector("#searching :text('Canceled after')")
    assert "The shorter the bar, the more fragile" in page.inner_text("#profile")
    rows = page.locator("#profile ul > li").count()
    assert 1 <= rows < 18
    assert page.is_hidden("#cancel-search")
    first = page.locator("#profile ul > li").first
    assert "lite:0" in first.inner_text()
    assert "% :" in first.inner_text().replace("%:", "% :")
    first.locator("button").click()
    page.wait_for_selector("#found .film")
    assert "lite:0, object smaller" in page.inner_text("#found")
    assert page.locator("#profile ul > li").count() == rows
    assert violations(page) == []


def test_a_mask_is_uploaded_warned_about_brushed_and_undone(page, tmp_path):
    page.set_input_files("#upload input[type=file]", SAMPLE / "koala.jpg")
    page.wait_for_selector("#marker :text('mask made by grabcut')")
    assert "Objects are found by GrabCut" in page.inner_text("#better-masks")
    assert "unswayed weights fetch masks" in page.inner_text("#better-masks")
    with Image.open(SAMPLE / "koala.jpg") as photograph:
        mask = Image.new("L", photograph.size)
    mask.paste(255, (100, 100, 120, 120))
    mask.save(tmp_path / "small.png")
    choose_mask(page, tmp_path / "small.png")
    page.wait_for_selector("#marker :text('mask uploaded: small.png')")
    assert "covers only" in page.inner_text("#marker .message.warning")
    assert violations(page) == []
    page.locator("#marker [data-size]").fill("12")
    page.click("#marker [data-tool=add]")
    box = page.locator("#marker canvas").bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.5 * box["height"], steps=4)
    page.mouse.up()
    page.wait_for_selector("#marker :text('mask changed by hand')")
    assert page.locator("#marker [data-size]").input_value() == "12"
    page.keyboard.press("Control+z")
    page.wait_for_function("!document.querySelector('#marker').innerText.includes('mask changed by hand')")
    page.click("#marker [data-undo]")
    page.wait_for_selector("#marker :text('mask made by grabcut')")
    assert page.is_disabled("#marker [data-undo]")
    page.click("#find-object")
    page.wait_for_selector("#marker [data-undo]:not([disabled])")
    assert page.inner_text("#problem").strip() == ""
    shutil.copy(SAMPLE / "koala.jpg", tmp_path / "no mask.jpg")
    choose_mask(page, tmp_path / "no mask.jpg")
    page.wait_for_selector("#problem :text('this is a color photograph, not a mask')")


def test_a_rendering_shows_its_passes_is_canceled_and_an_old_result_is_marked(page):
    page.fill("#size-rate input[type=number]", "10")
    page.wait_for_function("document.querySelector('#on-size input').checked")
    use_few_steps(page, 100)
    page.click("#render")
    page.wait_for_selector("#working :text('of 50 passes done')", timeout=2 * LONG)
    page.wait_for_selector("#working :text('s left')")
    page.click("#cancel-render")
    page.wait_for_selector("#working :text('Canceled after')")
    assert page.is_hidden("#cancel-render")
    assert page.locator("#compared figure").count() == 0
    use_few_steps(page, 4)
    page.click("#render")
    page.wait_for_selector("#compared .trio", timeout=2 * LONG)
    assert page.locator("#compared figure img").count() == 3
    said = page.locator("#compared figcaption").all_inner_texts()
    assert [text.splitlines()[0].split(":")[0] for text in said] == ["pasted", "rendered with diffusion", "control"]
    assert all("lite:0: " in text for text in said)
    assert violations(page) == []
    page.locator("button.label-wrap", has_text="background").click()
    gray = "getComputedStyle(document.querySelector('#pictures img')).filter.includes('grayscale')"
    assert not page.evaluate(gray)
    choose_background(page, "picture")
    page.wait_for_selector("#note .old:has-text('Not updated: the background')")
    assert page.evaluate(gray)
    assert violations(page) == []
    choose_background(page, "checker")
    page.wait_for_function(f"!({gray})")
    page.wait_for_function("!document.querySelector('#compared figure')")


def test_on_a_phone_a_swipe_scrolls_a_tool_paints_and_a_finger_scrubs(browser, address):
    window = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "color_scheme": "dark"}
    with watched(browser, address, **window) as phone:
        phone.set_input_files("#upload input[type=file]", SAMPLE / "koala.jpg")
        phone.wait_for_selector("#marker :text('mask made by grabcut')")
        swipe_over(phone, "#marker canvas", (0.5, 0.9), (0.5, 0.2))
        assert phone.locator("#marker [aria-pressed=true]").count() == 0
        phone.locator("#marker [data-tool=erase]").tap()
        assert "mask changed by hand" not in phone.inner_text("#marker")
        swipe_over(phone, "#marker canvas", (0.3, 0.6), (0.7, 0.6))
        phone.wait_for_selector("#marker :text('mask changed by hand')")
        phone.locator("#marker [data-undo]").tap()
        phone.wait_for_function("!document.querySelector('#marker').innerText.includes('mask changed by hand')")
        phone.locator("#sample [data-sample=koala]").tap()
        phone.wait_for_selector("#mask-tools", state="hidden")
        phone.locator("#search").tap()
        phone.wait_for_selector("#found .film .thumbs img.current")
        swipe_over(phone, "#found .thumbs", (0.6, 0.5), (0.02, 0.5))
        assert shown_still(phone)[0].startswith("unchanged: koala")
        swipe_over(phone, "#found .curve", (0.02, 0.5), (0.98, 0.5))
        assert not shown_still(phone)[0].startswith("unchanged")
        phone.locator("#fragility").tap()
        phone.wait_for_selector("#profile ul > li")
        phone.locator("#cancel-search").tap()
        phone.wait_for_selector("#searching :text('Canceled after')")
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390
        assert violations(phone) == []
