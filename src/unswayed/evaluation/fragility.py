"""`unswayed.fragility`: how small a change of each attribute of one photograph already changes a model's prediction."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from unswayed.edits import Edit
from unswayed.edits.composition import Removal
from unswayed.masks.segment import Box
from unswayed.models.classifier import Classifier
from unswayed.models.opening import open_model
from unswayed.rendering.layers import Renderer
from unswayed.rendering.photograph import Request, compose, exact_mask, read_scene, render_chain
from unswayed.rendering.removal import RememberedRemoval
from unswayed.rendering.settings import removal_of
from unswayed.scene import Scene, frame
from unswayed.sources.pictures import PictureLike

from .smallest import SmallestChange, Strip, Subject, directions, find_direction, fragility_profile, predictor


def fragility(
    image: PictureLike | Scene,
    mask: PictureLike | Box | None = None,
    *,
    models: Sequence[str | Classifier] = ("lite:0",),
    changes: Sequence[str] | None = None,
    renderer: str = "paste",
    steps: int | None = None,
    seed: int = 0,
    device: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[SmallestChange]:
    """Return the smallest change that changes the prediction, for each change and each model.

    image, mask, seed: as for `unswayed.edit`. models: specs of `unswayed models`, or opened ones. changes: names such
    as `object smaller`, all of them if None. renderer: `paste` needs no network. steps: of diffusion. progress: called
    with the number of results that are done and in total.

    >>> from unswayed.sources import open_source
    >>> [smallest] = fragility(open_source("sample")["koala"], changes=["object blurred"])
    >>> smallest.turn.level, smallest.turn.name, round(smallest.share, 2)
    (5.0, 'langur', 0.16)
    """
    scene = read_scene(image, mask)
    request = Request((), renderer=renderer, steps=steps, seed=seed, label=scene.label, device=device)
    chosen = list(directions().values()) if changes is None else [find_direction(name) for name in changes]
    opened = [open_model(model, device=device) if isinstance(model, str) else model for model in models]
    results = []
    for result in fragility_profile(subject_of(request, scene), map(predictor, opened), chosen):
        results.append(result)
        if progress is not None:
            progress(len(results), len(chosen) * len(opened))
    return results


def subject_of(
    request: Request, scene: Scene, renderer: Renderer | None = None, remove: Removal | None = None
) -> Subject:
    """Return the scene as a subject; request: all settings but the chain; renderer, remove: open ones to use."""
    exact = replace(scene, mask=exact_mask(scene.mask))
    used, remove = renderer or request.open_renderer(), remove or RememberedRemoval(removal_of(request))

    def make(chain: tuple[Edit, ...]) -> np.ndarray:
        asked = replace(request, chain=chain)
        if not chain:
            return compose(asked, exact, remove)[1].background
        return render_chain(asked, exact, used, remove)[2].image

    return Subject(make, frame(scene, request.frame).pixel_rate)


LINE = 15  # pixels of one line of text
SECONDS, LAST = 0.5, 1.5


def gif(strip: Strip) -> bytes:
    """Return the strip as a GIF that repeats: one frame per picture, the last one shown longer."""
    font = ImageFont.load_default(size=12)
    frames = []
    for still in strip.stills:
        side = still.image.shape[0]
        frame = Image.new("RGB", (still.image.shape[1], side + 2 * LINE + 6), "white")
        frame.paste(Image.fromarray(np.ascontiguousarray(still.image)))
        pen = ImageDraw.Draw(frame)
        lines = (strip.describe(still), f"{still.name}, {100 * still.probability:.0f} %")
        for number, text in enumerate(lines):
            color = "#000000" if number == 0 or still.best == strip.before.best else "#b3261e"
            pen.text((4, side + 2 + number * LINE), text, fill=color, font=font)
        frames.append(frame)
    stream = io.BytesIO()
    shown = [round(1000 * SECONDS)] * (len(frames) - 1) + [round(1000 * LAST)]
    frames[0].save(stream, "GIF", save_all=True, append_images=frames[1:], duration=shown, loop=0)
    return stream.getvalue()
