"""The report in a real browser: it sorts, filters and opens flips by keyboard, and asks nothing of anybody."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_world import make_benchmark, make_predictions

from unfazed.report.page import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(__file__).parents[2] / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
CLASSES = ["<script>window.hacked=1</script>", '"><img src=x onerror=window.hacked=2>', "a & b"]
MODELS = ["<script>window.hacked=3</script>", "second", "third"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt install chromium")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browser")
    bench = make_benchmark(root / "bench", 24, CLASSES)
    make_predictions(root / "predictions", bench, MODELS, CLASSES, white_box="second")
    write_report(root / "predictions", root / "report.html", flips=16, heat_maps=0)
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

    def foreign(self) -> list[str]:
        return [url for url in self.requests if not url.startswith(("data:", "file:"))]

    def column(self, table: str, number: int) -> list[str]:
        return self.page.locator(f"#{table} tbody tr:visible > :nth-child({number})").all_inner_texts()


@pytest.fixture
def visit(browser: Any, report: Path) -> Iterator[Visit]:
    opened = Visit(browser, report, viewport={"width": 1280, "height": 900})
    yield opened
    assert opened.messages == []
    assert opened.foreign() == []
    assert opened.page.evaluate("window.hacked") is None
    opened.context.close()


def test_the_table_sorts_by_number_both_ways(visit: Visit) -> None:
    heading = visit.page.locator("#drops-table thead button", has_text="drop, points").first
    heading.click()
    shown = [float(one.replace("−", "-")) for one in visit.column("drops-table", 6) if one != "–"]
    assert shown == sorted(shown)
    heading.click()
    shown = [float(one.replace("−", "-")) for one in visit.column("drops-table", 6) if one != "–"]
    assert shown == sorted(shown, reverse=True)
    assert visit.page.locator("#drops-table th[aria-sort=descending]").count() == 1


def test_the_table_filters_by_model_and_edit(visit: Visit) -> None:
    visit.page.locator("[data-for=drops-table] select").nth(0).select_option("second")
    visit.page.locator("[data-for=drops-table] select").nth(1).select_option("size-0.05")
    assert visit.column("drops-table", 1) == ["second"]
    assert "1 of" in visit.page.locator("[data-for=drops-table] output").inner_text()


def test_the_gallery_filters_by_class_and_names_are_only_text(visit: Visit) -> None:
    chosen = CLASSES[0]
    visit.page.locator("[data-for=flips-list] select").nth(2).select_option(chosen)
    items = visit.page.locator("#flips-list > li:visible")
    assert items.count() > 0
    assert all(items.nth(i).get_attribute("data-class") == chosen for i in range(items.count()))
    assert chosen in items.first.inner_text()


def test_a_flip_opens_moves_and_closes_by_keyboard(visit: Visit) -> None:
    page = visit.page
    page.locator(".flip").first.focus()
    page.keyboard.press("Enter")
    dialog = page.locator("dialog[open]")
    first = dialog.locator("h3").inner_text()
    assert dialog.locator("[role=img], img").count() == 2
    page.wait_for_function("[...document.images].every((it) => it.complete && it.naturalWidth > 0)")
    assert dialog.locator("svg[role=img]").evaluate("it => it.querySelector('use').getBBox().width") == 256
    assert "right" in dialog.inner_text()
    assert "wrong" in dialog.inner_text()
    page.keyboard.press("ArrowRight")
    assert dialog.locator("h3").inner_text() != first or page.locator(".flip").count() == 1
    page.keyboard.press("ArrowLeft")
    assert dialog.locator("h3").inner_text() == first
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    assert page.evaluate("document.activeElement.className") == "flip"


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_screen_and_no_figure_text_overlaps(browser: Any, report: Path, width: int) -> None:
    visit = Visit(browser, report, viewport={"width": width, "height": 900})
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    overlaps = visit.page.evaluate(
        """() => [...document.querySelectorAll(".drawing svg")].flatMap((svg) => {
            const boxes = [...svg.querySelectorAll("text")].map((it) => [it.textContent, it.getBoundingClientRect()]);
            return boxes.flatMap(([one, a], i) => boxes.slice(i + 1)
                .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1
                                && a.top < b.bottom - 2 && b.top < a.bottom - 2)
                .map(([two]) => `${one} / ${two}`));
        })"""
    )
    assert overlaps == []
    visit.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Any, report: Path, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("no axe-core: npm install --no-save --prefix .venv/axe axe-core@4")
    visit = Visit(browser, report, color_scheme=scheme, bypass_csp=True)
    visit.page.evaluate(AXE.read_text())
    found = visit.page.evaluate("axe.run()")
    visit.page.locator(".flip").first.click()
    found["violations"] += visit.page.evaluate("axe.run('dialog')")["violations"]
    serious = [one["id"] for one in found["violations"] if one["impact"] in ("serious", "critical")]
    assert serious == []
    assert len(found["passes"]) > 10
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
