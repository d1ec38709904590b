"""A strip of pictures as an animated GIF, each picture with its level and prediction below it."""

from __future__ import annotations

import io

import numpy as np

from .smallest import Strip

LINE = 15  # pixels of one line of text
SECONDS, LAST = 0.5, 1.5


def gif(strip: Strip) -> bytes:
    """Return the strip as a GIF that repeats: one frame per picture, the last one shown longer."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size=12)
    frames = []
    for still in strip.stills:
        side = still.image.shape[0]
        frame = Image.new("RGB", (still.image.shape[1], side + 2 * LINE + 6), "white")
        frame.paste(Image.fromarray(np.ascontiguousarray(still.image)))
        pen = ImageDraw.Draw(frame)
        lines = (strip.describe(still), f"{still.name}, {100 * still.probability:.0f} %")
        for place, text in enumerate(lines):
            color = "#000000" if place == 0 or still.best == strip.before.best else "#b3261e"
            pen.text((4, side + 2 + place * LINE), text, fill=color, font=font)
        frames.append(frame)
    stream = io.BytesIO()
    shown = [round(1000 * SECONDS)] * (len(frames) - 1) + [round(1000 * LAST)]
    frames[0].save(stream, "GIF", save_all=True, append_images=frames[1:], duration=shown, loop=0)
    return stream.getvalue()
