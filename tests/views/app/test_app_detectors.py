"""The page with a detector, in a real browser and without one: what it finds before and after an edit is drawn and
said."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onnx_detectors import WhiteSheep, write_detector
from unswayed.labels import imagenet, object_space
from unswayed.rendering.photograph import chain_of
from unswayed.sources.coco import box_of
from unswayed.views.app import AppSettings
from unswayed.views.app.controls import PRESETS
from unswayed.views.app.page import served
from unswayed.views.app.photographs import open_sample
from unswayed.views.app.stage import ModelAnswers, framed, preview, stage
from unswayed.views.app.studio import FoundObjects, Studio
from unswayed.views.text import render
from watched_page import violations, watched


def drawn(page: Any, kind: str) -> list[float]:
    """Left, top, right and bottom of a box over the picture, in pixels of the picture."""
    left, top, wide, high = (
        float(page.locator(f"#pictures .boxes .{kind}").first.get_attribute(name))
        for name in ("x", "y", "width", "height")
    )
    return [left, top, left + wide, top + high]


@pytest.mark.parametrize("left", [3, 92, 200])
def test_the_words_at_a_box_end_within_the_picture(left: int) -> None:
    """A letter is 5.3 pixels wide, as measured in chromium."""
    box, words = [left, 100, left + 52, 160], "not found: bear 44 % in its place"
    drawn = {"size": (256, 256), "exact": box, "marked": box, "lines": "", "kind": "wrong", "beside": box}
    markup = render("figures.html", "boxes", words=words, **drawn)
    [start] = re.findall(r'<text [^>]*x="([\d.]+)"', markup)
    assert 0 < float(start) < 256 - 5.3 * len(words)


def test_a_detector_answers_for_the_pictures_before_and_after_an_edit(tmp_path: Path) -> None:
    name = f"detector:{write_detector(WhiteSheep(), tmp_path / 'sheep.onnx', 'coco-80')}"
    studio, sheep = Studio([name], segmenter="grabcut", device="cpu"), open_sample("sheep")
    assert studio.knows(sheep) and not studio.knows(open_sample("koala"))
    turned = preview(studio, sheep, chain_of({"direction": 180}))
    # What it calls a sheep is no dog.
    pictures = [turned.before, turned.after, replace(turned.after, label=imagenet().index("pug"))]
    answers = studio.answers(name, pictures)
    for picture, answer in zip(pictures, answers, strict=True):
        assert isinstance(answer, FoundObjects) and picture.mask is not None
        assert answer.truth.box == box_of(picture.mask > 0.5)
        assert answer.box == pytest.approx(answer.truth.box, abs=8)
        right, words = picture.label == sheep.label, answer.best_words.replace("\u00a0", " ")
        assert answer.best is right
        assert re.match(r"found: sheep 80 %, IoU 0\.9\d" if right else "not found: sheep 80 % in its place", words)
        markup = stage(sheep, turned, "", [ModelAnswers(name, answers[0], answer)])
        drawn = {kind: float(left) for left, kind in re.findall(r'<rect x="([\d.]+)"[^>]* class="(\w+)"', markup)}
        assert drawn["exact"] == pytest.approx(answer.truth.box[0], abs=0.1)
        assert drawn["right" if right else "wrong"] == pytest.approx(answer.box[0], abs=0.1)


def test_a_detector_is_tested_live(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    names = ["???" if name == "bird" else name for name in object_space("coco-80").classes]
    path = write_detector(WhiteSheep(), tmp_path_factory.mktemp("detector") / "sheep.onnx", names)
    settings = AppSettings(models=[f"detector:{path}", "lite:0"], segmenter="grabcut")
    with served(settings) as (place, _), watched(browser, place) as page:
        # It has no class for the hens that the page otherwise begins with.
        assert page.inner_text("#pictures .chip:not(.all)").startswith("object turned by 180°")
        page.click("#pictures .chip.all")
        page.wait_for_selector("#pictures .verdict .held:has-text('found: sheep 80 %')")
        exact = box_of(framed(open_sample(PRESETS[1].sample)).mask > 0.5)
        assert drawn(page, "exact") == pytest.approx(exact, abs=0.1)
        assert drawn(page, "right") == pytest.approx(exact, abs=8)
        page.wait_for_function("document.querySelectorAll('#answers figure img').length === 2")
        said = page.locator("#answers figcaption").all_inner_texts()
        for when, words in zip(("before", "after"), said, strict=True):
            assert re.fullmatch(when + r": found: sheep 80 %, IoU 0\.9\d", words)
        page.locator("button.label-wrap", has_text="size").first.click()
        page.fill("#size-rate input[type=number]", "0.1")
        page.wait_for_selector("#pictures .verdict .turned:has-text('not found')")
        assert page.locator("#pictures .boxes .right").count() == 0
        assert page.locator("#pictures .boxes .exact").count() == 1
        page.wait_for_selector("#answers figcaption:has-text('after: not found')")
        page.click("#search")
        page.wait_for_selector("#searching :text('is no classifier')")
        page.locator("#models input").click()
        page.get_by_role("option", name="lite:0").click()
        page.wait_for_selector("#answers .bars")
        assert page.locator("#answers .answers").count() == 2
        assert violations(page) == []
