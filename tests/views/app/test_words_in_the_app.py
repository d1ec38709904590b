"""Words in the app: a field for them, and a page that renders with a pipeline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gradio")

from command_line import refused
from tiny_pipelines import write_pipeline
from unswayed.edits.background import Background
from unswayed.rendering.photograph import replay
from unswayed.views.app.controls import PRESETS, chain_from, groups, preset_flat, values_from
from unswayed.views.app.photographs import open_sample
from unswayed.views.app.stage import preview, render
from unswayed.views.app.studio import ObjectPicture, Studio


def test_the_page_has_a_field_for_words_and_reads_it() -> None:
    shown = groups()
    fields = {control.key: control for group in shown for control in group.controls if control.text}
    assert set(fields) == {(edit, name) for edit in ("background", "object-words") for name in ("prompt", "negative")}
    assert fields["background", "prompt"].label == "words"
    flat = preset_flat(shown, PRESETS[0])
    assert "background" not in values_from(shown, flat)
    said = {"kind": "words", "prompt": "on a beach at sunset", "negative": "", "strength": 20.0, "band": "all"}
    assert chain_from({"background": said}) == (Background(kind="words", prompt="on a beach at sunset"),)
    assert chain_from({"background": said | {"kind": "checker"}}) == (Background(kind="checker"),)
    with refused("has no description yet"):
        chain_from({"background": said | {"prompt": " "}})


def test_words_are_rendered_with_the_pipeline_of_the_page(tmp_path: Path) -> None:
    folder = write_pipeline("sd-inpaint", tmp_path / "pipeline")
    studio, photograph = Studio(["lite:0"], device="cpu", renderer=f"diffusers:{folder}?size=64"), open_sample("dog")
    chain = (Background(kind="words", prompt="on a beach at sunset"),)
    assert "press Render" in preview(studio, photograph, chain).note
    told: list[tuple[int, int]] = []
    made, compared = render(studio, photograph, chain, steps=2, progress=lambda done, total: told.append((done, total)))
    assert told[0] == (0, 4) and told[-1] == (4, 4)  # the picture and its control
    inside = np.asarray(made.edited.mask) == 255
    assert (made.after.image[inside] == made.before.image[inside]).all()
    assert (made.after.image != made.before.image).any()
    assert isinstance(compared["control"], ObjectPicture) and (compared["control"].image != made.after.image).any()
    _, _, record = made.edited.save(tmp_path / "edited.png")
    assert (np.asarray(replay(record).image) == made.after.image).all()


def test_a_renderer_without_a_network_is_refused() -> None:
    with refused("the renderer paste has no network", allowed="diffusers:NAME_OR_FOLDER"):
        Studio(["lite:0"], renderer="paste")
