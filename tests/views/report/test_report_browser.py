"""The report in a real browser: it sorts, filters and opens flips by keyboard, and asks nothing of anybody."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from report_world import make_benchmark, make_predictions
from unswayed.views.report.page import write_report
from watched_page import WINDOWS, violations

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CLASSES = ["<script>window.hacked=1</script>", '"><img src=x onerror=window.hacked=2>', "a & b"]
MODELS = ["<script>window.hacked=3</script>", "second", "third"]
SMALL = "object size 5 %"
UNBROKEN = SMALL.replace(" %", "\N{NO-BREAK SPACE}%")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt install chromium")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browser")
    bench = make_benchmark(root / "bench", 24, CLASSES)
    make_predictions(root / "predictions", bench, MODELS, CLASSES, white_box="second")
    write_report(root / "predictions", root / "report.html", flips=24, heat_maps=0)
    return root / "report.html"


class Visit:
    """An open page, what it complained of, and what it asked for besides itself."""

    def __init__(self, browser: Any, report: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(report.as_uri())

    def again(self, report: Path) -> Visit:
        """Open the page as it was at first."""
        self.page.goto("about:blank")
        self.page.goto(report.as_uri())
        return self

    def foreign(self) -> list[str]:
        return [url for url in self.requests if not url.startswith(("data:", "file:", "about:"))]

    def column(self, table: str, number: int) -> list[str]:
        return self.page.locator(f"#{table} tbody tr:visible > :nth-child({number})").all_inner_texts()


@pytest.fixture(scope="module")
def desk(browser: Any, report: Path) -> Iterator[Visit]:
    yield from opened(browser, report, viewport={"width": 1280, "height": 900}, accept_downloads=True)


@pytest.fixture(scope="module")
def handset(browser: Any, report: Path) -> Iterator[Visit]:
    yield from opened(browser, report, viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)


def opened(browser: Any, report: Path, **options: Any) -> Iterator[Visit]:
    one = Visit(browser, report, **options)
    yield one
    assert one.messages == []
    assert one.foreign() == []
    assert one.page.evaluate("window.hacked") is None
    one.context.close()


@pytest.fixture
def visit(desk: Visit, report: Path) -> Visit:
    return desk.again(report)


@pytest.fixture
def phone(handset: Visit, report: Path) -> Visit:
    return handset.again(report)


def test_the_table_sorts_by_number_both_ways(visit: Visit) -> None:
    heading = visit.page.locator("#drops-table thead button", has_text="net drop, points")
    heading.click()
    shown = [number(one) for one in visit.column("drops-table", 4) if not one.startswith("–")]
    assert shown == sorted(shown)
    heading.click()
    shown = [number(one) for one in visit.column("drops-table", 4) if not one.startswith("–")]
    assert shown == sorted(shown, reverse=True)
    assert visit.page.locator("#drops-table th[aria-sort=descending]").count() == 1


def number(text: str) -> float:
    return float(text.split()[0].replace("−", "-"))


def test_a_cell_of_the_matrix_filters_table_gallery_and_figure(visit: Visit) -> None:
    page = visit.page
    cell = page.locator(".matrix td button[data-model=second][data-edit='size-0.05']")
    cell.click()
    assert cell.get_attribute("aria-pressed") == "true"
    assert visit.column("drops-table", 1) == ["second"]
    assert "1 of" in page.locator("[data-for=drops-table] output").inner_text()
    assert visit.column("answers-table", 2) == [SMALL]
    flips = page.locator("#flips-list > li:visible")
    assert all(flips.nth(i).get_attribute("data-edit") == "size-0.05" for i in range(flips.count()))
    kept = page.locator(".wide [data-place]:not(.out)")
    assert kept.count() > 0
    assert {kept.nth(i).get_attribute("data-edit") for i in range(kept.count())} == {"size-0.05"}
    assert len({kept.nth(i).get_attribute("data-place") for i in range(kept.count())}) == 1
    assert page.locator("#chosen").inner_text().startswith(f"second, {UNBROKEN}: ")
    assert page.locator("#explorer-choice select[name=model]").input_value() == "second"
    cell.click()
    assert page.locator("[data-place].out").count() == 0
    assert page.locator("#chosen").inner_text() == ""


def test_a_pressed_cell_shows_its_flips_in_place_and_they_open(visit: Visit) -> None:
    page = visit.page
    page.locator(".matrix td button[data-model=second][data-edit='size-0.05']").click()
    cards = page.locator("#chosen .in-place button")
    assert 0 < cards.count() <= 8
    assert cards.first.locator(".crop").count() == 2
    answers = [text.strip().split("\n") for text in cards.all_inner_texts()]
    assert all(before[0] == "✓" and after[0] == "✗" and before[1:] != after[1:] for before, after in answers)
    flips = int(page.locator("#chosen p").inner_text().split(": ")[1].split()[0])
    assert cards.count() == min(8, flips)
    counts = page.evaluate("JSON.parse(document.querySelector('#data').textContent).counts")
    few = {key: row[0] for key, row in counts.items() if 0 < row[0] < 8 and not key.startswith("<")}
    key, flips = few.popitem()
    model, edit = key.split("\n")
    page.locator(f".matrix td button[data-model={model}][data-edit='{edit}']").click()
    assert cards.count() == flips, "flips and no other photographs"
    page.locator(".matrix td button[data-model=second][data-edit='size-0.05']").click()
    matrix, shown = page.locator(".matrix").first.bounding_box(), cards.first.bounding_box()
    assert 0 < shown["y"] - (matrix["y"] + matrix["height"]) < 200, "below the matrix, not elsewhere"
    pressed = page.locator(".matrix td [aria-pressed=true]").bounding_box()
    assert pressed["y"] >= 0 and shown["y"] + shown["height"] <= page.viewport_size["height"], "both are in sight"
    cards.first.click()
    assert page.locator("dialog[open] h3").inner_text().endswith(f", {UNBROKEN}")
    assert page.locator("#explorer-choice select[name=model]").input_value() == "second"
    page.keyboard.press("Escape")
    page.locator(".in-place button:focus").wait_for()
    page.locator(".matrix tbody th button[data-model=third]").click()
    assert "third" not in page.locator(".in-place small").first.inner_text(), "the edit alone is named"
    page.locator("#choice button").click()
    assert page.locator(".in-place").count() == 0


def test_the_first_screen_answers_without_scrolling(browser: Any, report: Path) -> None:
    visit = Visit(browser, report, viewport={"width": 1300, "height": 850})
    page = visit.page
    for part in (".verdict-line", ".forest", ".worst-flip", ".matrix tbody tr:last-child"):
        box = page.locator(part).first.bounding_box()
        assert box["y"] + box["height"] <= 850, part
    assert page.locator(".forest tbody tr").count() == len(MODELS)
    assert len({round(box["x"]) for box in (it.bounding_box() for it in page.locator(".forest .zero").all())}) == 1
    turned = page.locator(".matrix thead :is(th, button)").evaluate_all(
        "them => them.filter((it) => getComputedStyle(it).writingMode !== 'horizontal-tb').length"
    )
    assert turned == 0, "headings are read without turning the head"
    groups = page.locator(".matrix thead .attribute").first.locator("xpath=..").locator("th").all_inner_texts()
    assert {"size", "background", "controls"} <= set(groups)
    page.locator(".worst-flip").click()
    pair = page.locator(".worst-pair").inner_text()
    assert "✓" in pair and "✗" in pair
    assert page.locator("dialog[open] figure").count() == 3
    page.keyboard.press("Escape")
    page.locator(".worst-flip:focus").wait_for()
    visit.context.close()


def test_a_model_and_an_edit_filter_alone_and_all_is_shown_again(visit: Visit) -> None:
    page = visit.page
    page.locator(".matrix thead button[data-edit='size-0.1']").click()
    assert set(visit.column("drops-table", 2)) == {"object size 10 %"}
    page.locator(".matrix tbody th button[data-model=third]").click()
    assert set(visit.column("drops-table", 1)) == {"third"}
    assert page.locator("#choice select[name=edit]").input_value() == ""
    page.locator("#choice select[name=edit]").select_option("size-0.08")
    assert visit.column("drops-table", 2) == ["object size 8 %"]
    page.locator("#choice button").click()
    assert page.locator("#drops-table tbody tr[hidden]").count() == 0


def test_the_gallery_filters_by_class_and_blame_and_names_are_only_text(visit: Visit) -> None:
    page = visit.page
    every = page.locator("#flips-list > li").count()
    for name, value in (("class", CLASSES[0]), ("blame", "the rendering: control wrong already"),
                        ("change", "wrong to right")):  # fmt: skip
        page.locator(f"[data-for=flips-list] select[data-filter={name}]").select_option(value)
        items = page.locator("#flips-list > li:visible")
        assert 0 < items.count() < every
        assert all(items.nth(i).get_attribute(f"data-{name}") == value for i in range(items.count()))
        page.locator(f"[data-for=flips-list] select[data-filter={name}]").select_option("")


def test_a_flip_opens_moves_and_closes_by_keyboard(visit: Visit) -> None:
    page = visit.page
    page.locator(".flip").first.focus()
    page.keyboard.press("Enter")
    dialog = page.locator("dialog[open]")
    first = dialog.locator("h3").inner_text()
    assert dialog.locator("[role=img], img").count() == 3, "photograph, control and edited picture"
    page.wait_for_function("[...document.images].every((it) => it.complete && it.naturalWidth > 0)")
    assert dialog.locator("svg[role=img]").first.evaluate("it => it.querySelector('use').getBBox().width") == 256
    for word in ("right", "wrong", "control: ", "To blame"):
        assert word in dialog.inner_text()
    page.keyboard.press("ArrowRight")
    assert page.url.split("#")[1] != first
    page.keyboard.press("ArrowLeft")
    assert dialog.locator("h3").inner_text() == first
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    page.locator(".flip:focus").wait_for()
    page.wait_for_url(lambda url: "#" not in url)


def test_a_link_leads_to_a_flip_and_to_a_photograph(visit: Visit, report: Path) -> None:
    page = visit.page
    page.locator(".flip").nth(2).click()
    heading, address = page.locator("dialog h3").inner_text(), page.url
    assert "#flip=" in address
    visit.again(report)
    page.goto(address)
    page.reload()
    assert page.locator("dialog[open] h3").inner_text() == heading
    page.locator("[data-close]").click()
    page.evaluate("location.hash = 'photograph=' + encodeURIComponent('second/size-0.05/scene00003')")
    page.wait_for_selector("dialog[open]")
    assert page.locator("dialog h3").inner_text() == f"scene00003, {UNBROKEN}"


def test_a_point_of_the_scatter_opens_the_photograph_with_all_models(visit: Visit) -> None:
    page = visit.page
    page.locator("#explorer-choice select[name=model]").select_option("second")
    page.locator("#explorer-choice select[name=edit]").select_option("size-0.05")
    assert page.locator("#scatter circle").count() == 24
    assert f"24 photographs, second, {UNBROKEN}" in str(page.locator("#scatter").get_attribute("aria-label"))
    legend = page.locator("#scatter-legend li").all_inner_texts()
    assert sum(int(one.rpartition(": ")[2]) for one in legend) == 24
    page.locator("#scatter circle").last.click()
    dialog = page.locator("dialog[open]")
    assert dialog.locator(".answers tbody tr").count() == len(MODELS)
    heads = dialog.locator(".answers thead th").all_inner_texts()
    assert [head.strip() for head in heads] == ["original", "control: object put back", UNBROKEN]
    assert dialog.locator(".answers thead .crop").count() == 3
    lefts = [[round(box["x"]) for box in (it.bounding_box() for it in dialog.locator(which).all())]
             for which in (".answers thead .crop", ".answers tbody tr:first-child td .right, "
                           ".answers tbody tr:first-child td .wrong")]  # fmt: skip
    assert lefts[0] == lefts[1], "each picture stands above its answers"
    dialog.locator(".other", has_text="random background").click()
    assert dialog.locator("h3").inner_text().endswith(", random background")
    heads = dialog.locator(".answers thead th").all_inner_texts()
    assert [head.strip() for head in heads] == ["original", "control: background redrawn", "random background"]
    page.keyboard.press("Escape")
    page.locator("#explorer-open").click()
    assert page.locator("dialog[open]").count() == 1


def test_every_table_can_be_saved(visit: Visit) -> None:
    with visit.page.expect_download() as waiting:
        visit.page.locator("a[download='drops.csv']").click()
    assert Path(waiting.value.path()).read_text().startswith("model,edit,")


def test_on_a_phone_a_touch_filters_opens_and_explores(phone: Visit) -> None:
    page = phone.page
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator(".narrow svg").first.is_visible()
    assert page.locator(".wide svg").first.is_hidden()
    page.locator(".matrix td button[data-model=third][data-edit='size-0.05']").tap()
    assert phone.column("drops-table", 1) == ["third"]
    page.locator("#choice button").tap()
    page.locator(".flip").first.tap()
    assert page.locator("dialog[open] figure").count() == 3
    page.locator("[data-move='1']").tap()
    page.locator("[data-close]").tap()
    page.locator("#scatter").scroll_into_view_if_needed()
    # A finger misses the point by a few pixels.
    box = page.locator("#scatter circle").last.bounding_box()
    page.touchscreen.tap(box["x"] + 9, box["y"] + 9)
    assert page.locator("dialog[open] .answers").count() == 1
    assert page.evaluate("document.querySelector('dialog').scrollWidth") <= 390
    hidden = "part => part.scrollWidth - part.clientWidth"
    assert page.locator("dialog[open] .scroll").evaluate(hidden) <= 0, "the answers to all pictures are in sight"


@pytest.mark.parametrize("width", [1280, 768, 390])
def test_nothing_is_wider_than_the_screen_and_no_figure_text_overlaps(visit: Visit, width: int) -> None:
    visit.page.set_viewport_size({"width": width, "height": 900})
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    plot, column = (visit.page.locator(part).first.bounding_box() for part in ("table.forest", ".found"))
    assert plot["x"] + plot["width"] <= column["x"] + column["width"] + 1, "the worst flip does not cover the numbers"
    wide = "them => them.filter((it) => it.scrollWidth > it.clientWidth + 1).map((it) => it.textContent)"
    assert visit.page.locator(".matrix thead .attribute").evaluate_all(wide) == [], "headings do not run together"
    tall = "them => them.filter((it) => it.offsetHeight > 130).map((it) => it.closest('table').id)"
    assert visit.page.locator("table[id] thead").evaluate_all(tall) == [], "headings leave room for rows"
    lines = "them => them.map((it) => Math.round(it.offsetHeight / parseFloat(getComputedStyle(it).lineHeight)))"
    assert set(visit.page.locator("#matrix-help .entry").evaluate_all(lines)) == {1}, "a color stands beside its word"
    overlaps = visit.page.evaluate(
        """() => [...document.querySelectorAll(".drawing svg")].flatMap((svg) => {
            const boxes = [...svg.querySelectorAll("text")].map((it) => [it.textContent, it.getBoundingClientRect()]);
            return boxes.flatMap(([one, a], i) => boxes.slice(i + 1)
                .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1
                                && a.top < b.bottom - 2 && b.top < a.bottom - 2)
                .map(([two]) => `${one} / ${two}`));
        })"""
    )
    visit.page.set_viewport_size({"width": 1280, "height": 900})
    assert overlaps == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Any, report: Path, scheme: str) -> None:
    visit = Visit(browser, report, color_scheme=scheme, bypass_csp=True)
    for window in WINDOWS:
        visit.page.set_viewport_size(window)
        visit.again(report).page.locator(".matrix td button[data-model=second]").nth(1).click()  # with flips in place
        assert violations(visit.page) == [], window
        visit.page.locator(".flip").first.click()
        assert violations(visit.page, "dialog") == [], window
    visit.context.close()


def test_it_prints_every_row_and_column(browser: Any, report: Path) -> None:
    visit = Visit(browser, report, viewport={"width": 794, "height": 1123})  # A4 at 96 dots an inch
    visit.page.emulate_media(media="print")
    assert visit.page.evaluate("document.querySelector('#drops-table').getBoundingClientRect().right") <= 794
    clipped = visit.page.evaluate(
        "[...document.querySelectorAll('.scroll')].filter((it) => it.scrollHeight > it.clientHeight + 1).length"
    )
    assert clipped == 0
    assert visit.page.locator("nav").is_hidden()
    assert len(visit.page.pdf(format="A4")) > 10_000
    visit.context.close()
