"""The README's moving picture: an object is dragged smaller in the app until the answer changes, then a cell of a
report is pressed and a flip of it opens.

python docs/pictures/make_film.py demo/pets/report.html, after make_report.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from camera import HERE, camera, shot
from PIL import Image, ImageDraw

from unswayed.views.app import AppSettings
from unswayed.views.app.page import served

SCENE, CORNER, END = "chicken", 2, 0.25  # END: the share of the object's sides that is left
STEPS, FRAME, HOLD = 18, 110, 1500  # milliseconds
WIDE, HIGH, SHOWN = 960, 584, 760
TALL = 800  # of the window in which the app is shown; the frames begin at the stage
# The picture of the last move has come, and the bars beside it say what the stage says.
ANSWERED = """() => {
  const [, name, share] = document.querySelector('#pictures .verdict b').innerText.match(/^(.*) ([0-9]+) %$/);
  const bar = document.querySelector('#answers .pair > div:last-child li');
  return document.querySelector('#pictures .canvas').dataset.serial === String(JSON.parse(window.unswayedWanted).serial)
    && bar?.querySelector('.name').innerText.startsWith(name)
    && Math.abs(parseFloat(bar.querySelector('.share').innerText) - Number(share)) < 0.6;
}"""
ARROW = ((0, 0), (0, 17), (4, 13), (7, 20), (10, 19), (7, 12), (12, 12))
Frames = list[tuple[Image.Image, int]]


def pointed(image: Image.Image, x: float, y: float) -> Image.Image:
    """The picture with a mouse pointer, which screenshots do not contain."""
    arrow = [(x + across, y + down) for across, down in ARROW]
    ImageDraw.Draw(image).polygon(arrow, fill="white", outline="black", width=1)
    return image


def middle(page: Any, selector: str) -> tuple[float, float]:
    box = page.locator(selector).first.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def dragged(page: Any, address: str) -> Frames:
    """The object of a photograph is made smaller by one of its corners."""
    page.goto(address)
    page.wait_for_selector("#answers .turned")
    page.click(f".samples [data-sample='{SCENE}']")
    page.wait_for_selector(f"#pictures img.after[alt^='{SCENE}']")
    if page.locator("#pictures .chip.all").count():
        page.click("#pictures .chip.all")
        page.wait_for_selector("#pictures .chip", state="detached")
    page.wait_for_selector("#answers .held")
    page.set_viewport_size({"width": WIDE, "height": TALL})
    page.mouse.move(1, 1)
    page.wait_for_timeout(1000)
    top = page.locator("#pictures").bounding_box()["y"] - 12
    view = {"clip": {"x": 0, "y": top, "width": WIDE, "height": HIGH}}

    def taken(x: float, y: float) -> Image.Image:
        return pointed(shot(page, **view), x, y - top)

    frames: Frames = [(shot(page, **view), HOLD)]
    page.hover("#pictures .canvas")
    corner = middle(page, f"#pictures .grip.scale[data-corner='{CORNER}']")
    page.mouse.move(*corner)
    page.wait_for_timeout(400)
    frames.append((taken(*corner), 600))
    center = page.evaluate(
        """() => { const box = document.querySelector('#pictures .canvas').getBoundingClientRect();
        const corners = JSON.parse(document.querySelector('#pictures .canvas').dataset.place).corners;
        return [0, 1].map((axis) => [box.left, box.top][axis] + [box.width, box.height][axis]
          * corners.reduce((sum, corner) => sum + corner[axis], 0) / 4); }"""
    )
    page.mouse.down()
    for step in range(1, STEPS + 1):
        share = END ** (step / STEPS)
        x, y = (middle + share * (start - middle) for start, middle in zip(corner, center, strict=True))
        page.mouse.move(x, y)
        page.wait_for_function(ANSWERED)
        page.wait_for_timeout(60)
        frames.append((taken(x, y), FRAME))
    page.mouse.up()
    page.mouse.move(1, 1)
    page.wait_for_selector("#answers .turned")
    page.wait_for_timeout(1000)
    return [*frames, (shot(page, **view), 2 * HOLD)]


def pressed(page: Any, report: Path) -> Frames:
    """The report of some hundred photographs: its first screen, a cell that shows its flips, one of them enlarged."""
    page.set_viewport_size({"width": WIDE, "height": HIGH})
    page.goto(report.resolve().as_uri())
    frames: Frames = [(shot(page), 2 * HOLD)]
    cell = ".matrix tbody tr:first-child td:nth-of-type(2) button"
    page.locator(".matrix-scroll").first.evaluate("part => part.scrollIntoView({block: 'start'})")
    page.evaluate("scrollBy(0, -16)")
    place = middle(page, cell)
    page.mouse.move(*place)
    frames.append((pointed(shot(page), *place), 800))
    page.mouse.down()
    page.mouse.up()
    page.wait_for_selector("#chosen .in-place")
    place = middle(page, cell)  # the flips may have come into sight
    frames.append((pointed(shot(page), *place), HOLD))
    flip = "#chosen .in-place li:nth-child(2) button"
    place = middle(page, flip)
    page.mouse.move(*place)
    frames.append((pointed(shot(page), *place), 600))
    page.locator(flip).click()
    page.wait_for_selector("dialog[open]")
    return [*frames, (shot(page), 2 * HOLD)]


def with_palette(frames: Frames) -> Frames:
    """The frames in one palette, reduced, so that what stands still costs nothing."""
    size = (SHOWN, round(SHOWN * HIGH / WIDE))
    small = [(frame.resize(size, Image.Resampling.LANCZOS), wait) for frame, wait in frames]
    mosaic = Image.new("RGB", (size[0], 3 * size[1]))
    for place, index in enumerate((0, len(small) // 2, -1)):
        mosaic.paste(small[index][0], (0, place * size[1]))
    palette = mosaic.quantize(255, Image.Quantize.MEDIANCUT)
    return [(frame.quantize(palette=palette, dither=Image.Dither.NONE), wait) for frame, wait in small]


def main(report: Path) -> None:
    with served(AppSettings(models=["lite:0"])) as (address, _), camera(WIDE, HIGH) as page:
        frames = with_palette(dragged(page, address)) + with_palette(pressed(page, report))
    images, waits = zip(*frames, strict=True)
    images[0].save(
        HERE / "readme-film.gif", save_all=True, append_images=images[1:], duration=list(waits), loop=0, optimize=True
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
