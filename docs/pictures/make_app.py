"""The screenshots of docs/app.md: `python docs/pictures/make_app.py`, with Playwright and Chromium."""

from __future__ import annotations

from camera import camera, keep, shot

from unswayed.views.app import AppSettings
from unswayed.views.app.page import served


def main() -> None:
    with served(AppSettings(models=["lite:0", "lite:2"])) as (address, _), camera(1300, 850) as page:
        page.goto(address)
        page.wait_for_selector("#answers .turned")
        page.wait_for_timeout(1000)  # fonts and the outline of the page
        keep(shot(page), "app-edit.jpg", width=1100)
        page.click("#search")
        page.wait_for_selector("#found .film .words")
        page.locator("#found").evaluate("part => part.scrollIntoView({block: 'end'})")
        page.wait_for_timeout(500)
        keep(shot(page), "app-smallest.jpg", width=1100)
        page.get_by_role("tab", name="Browse").click()
        page.wait_for_selector("#flips button")
        page.locator("#flips button").first.click()
        page.wait_for_selector("#flip img[alt^='heat map']")
        page.evaluate("scrollTo(0, 0)")
        page.mouse.move(1, 1)
        page.wait_for_timeout(1000)
        keep(shot(page, full_page=True), "app-browse.jpg", width=1000, height=1500)
        page.get_by_role("tab", name="Compare").click()
        page.wait_for_selector(".dumbbell li")
        page.wait_for_timeout(500)
        keep(shot(page, full_page=True), "app-compare.jpg", width=1000, height=1150)


if __name__ == "__main__":
    main()
