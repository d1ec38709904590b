"""Searches, sweeps and fragility profiles: their panel, and their filmstrips and bars as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import gradio as gr
import numpy as np
from markupsafe import Markup

from unswayed.edits import Edit
from unswayed.errors import UserError
from unswayed.evaluation.fragility import (
    SmallestChange,
    Still,
    Strip,
    Subject,
    change_strip,
    directions,
    find_direction,
    find_smallest,
    fragility_profile,
    subject_of,
)
from unswayed.rendering.photograph import render_chain
from unswayed.scene import frame
from unswayed.views.text import data_address, percent, plural

from . import figures
from .controls import Value
from .editor import HEAVY, PRIVATE, Component, Editor, EditorInputs, data, script
from .photographs import Photograph
from .stage import framed, needs_network, request_of, write_gif
from .studio import Canceled, Report, Step, Studio, remembered_removal

MEANING = (
    "A bar shows how far an attribute was changed until the prediction changed: 0 % is the photograph, 100 % the end "
    "of the attribute's range. The shorter the bar, the more fragile the prediction. Levels between those tried may "
    "change it earlier."
)


def filmstrip(strip: Strip, model: str, said: str, shown: Still | None = None) -> str:
    """Return the pictures of a search as JSON, which the page draws on one axis from no change to the end of the range.

    said: the result in a sentence; shown: the picture that is shown first, by default the last one.
    """
    before, stills = strip.before, []
    for still in strip.stills:
        share, turned = strip.direction.share(still.level, before.level), still.best != before.best
        words = f"{strip.describe(still)}: {still.name}, {percent(still.probability, 0)}"
        words += f"; {before.name} {percent(still.kept, 0)}" if turned else ""
        point = {"share": round(100 * min(max(share, 0.0), 1.0), 2), "down": round(100 * (1 - still.kept), 2)}
        stills.append(
            {**point, "turned": turned, "words": words.replace(" %", "\u00a0%"), "picture": data_address(still.image)}
        )
    film = {
        "title": f"{model}, {strip.direction.name}: ",
        "said": said,
        "curve": f"Probability of “{before.name}”, from 0 to 100 %; an orange diamond is another prediction.",
        "end": strip.direction.describe(strip.direction.change.extreme),
        "turn": len(stills) - 1 if shown is None else strip.stills.index(shown),
        "stills": stills,
    }
    return data(film)


def swept_film(strip: Strip, model: str) -> str:
    """Return a sweep as a filmstrip that shows its last picture."""
    levels = strip.stills[1:]
    turned = sum(still.best != strip.before.best for still in levels)
    said = f"{plural(len(levels), 'level')}; the prediction is another one at {turned} of them." if levels else ""
    if strip.impossible is not None:
        said += f" {'Some levels were not' if levels else 'No level was'} possible: {strip.impossible}."
    return filmstrip(strip, model, said.strip())


def profile_bars(results: Sequence[SmallestChange], total: int) -> Markup:
    """Return the profile: one bar for each change and model; when all `total` are there, the most fragile first."""
    by_change: dict[str, list[SmallestChange]] = {}
    for result in results:
        by_change.setdefault(result.direction.name, []).append(result)
    groups, summary = list(by_change.items()), ""
    if results and len(results) == total:
        groups.sort(key=lambda group: min(2.0 if result.share is None else result.share for result in group[1]))
        fragile = sum(result.turn is not None for result in results)
        summary = f"The prediction changed in {fragile} of {len(results)} searches."
    return figures.drawn("profile_bars", groups=dict(groups), meaning=MEANING, summary=summary)


def subject(
    studio: Studio,
    photograph: Photograph,
    chain: tuple[Edit, ...] = (),
    *,
    seed: int = 0,
    steps: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> Subject:
    """Return the photograph as a subject.

    chain: the edits that stay switched on; steps: of diffusion, None for the paste preview; check: called before each
    picture and each pass of the network; what it raises ends the search.
    """
    if steps is None and any(map(needs_network, chain)):
        raise UserError("the background needs a network and cannot be pasted", allowed="a search with diffusion")
    scene, request = photograph.scene, request_of((), photograph, seed, steps)
    remove = remembered_removal(request.removal)
    pasted = None if steps is not None else subject_of(request, scene, remove=remove)

    def make(edits: tuple[Edit, ...]) -> np.ndarray:
        check()
        if not edits:
            return framed(photograph).image
        if pasted is not None:
            return pasted.make(edits)
        asked = replace(request, chain=edits)
        return studio.rendered(
            asked, lambda renderer: render_chain(asked, scene, renderer, remove)[2].image, lambda *_: check()
        )

    return Subject(make, frame(scene).pixel_rate)


DIFFUSION = "diffusion"
Outputs = Iterator[tuple[object, ...]]
# The inputs of an event as the page sends them: photograph, how it is rendered, steps of diffusion, models, and the
# rest: the file of a background, the seed, the values of the controls.
Rest: TypeAlias = tuple[str | None, float | None, *tuple[Value, ...]]
Given: TypeAlias = tuple[Photograph, str, float, Sequence[str], *Rest]


def search_panel(editor: Editor) -> None:
    """Build the panel of searches, sweeps and profiles inside the open gradio context, and connect its events."""
    gr.HTML("<h2>Smallest change</h2>")
    with gr.Row():
        changes = list(directions())
        direction = gr.Dropdown(changes, value=changes[0], label="change to try", elem_id="direction", min_width=200)
        means = gr.Radio(["paste preview", DIFFUSION], value="paste preview", label="rendered by", min_width=200)
    with gr.Row():
        searching = gr.Button("Find the smallest change", elem_id="search", size="sm", min_width=120)
        sweeping = gr.Button("Sweep over all levels", elem_id="sweep", size="sm", min_width=120)
        profiling = gr.Button("Try all changes", elem_id="fragility", size="sm", min_width=120)
        cancel = editor.cancel_button("cancel-search")
    gr.HTML(
        "<p class='quiet'>The first two keep your other changes and ask the first model. The third starts from the "
        "photograph, makes one change at a time and asks every model.</p>"
    )
    working = gr.HTML(elem_id="searching")
    drawn = "<section class='film'></section>"
    strip = gr.HTML("null", elem_id="found", html_template=drawn, js_on_load=script("filmstrip.js"))
    gif = gr.DownloadButton("Download GIF", visible=False, elem_id="download-gif", size="sm")
    profile: Component = gr.HTML(elem_id="profile", js_on_load=script("profile.js"))

    def searched(request: gr.Request, change: str, *given: *Given) -> Outputs:
        yield from Search(editor, request, *given).filmed(True, change)

    def swept(request: gr.Request, change: str, *given: *Given) -> Outputs:
        yield from Search(editor, request, *given).filmed(False, change)

    def profiled(request: gr.Request, *given: *Given) -> Outputs:
        yield from Search(editor, request, *given).profiled()

    def pressed(request: gr.Request, event: gr.EventData, *given: *Given) -> Outputs:
        change, model = (str(getattr(event, name, "")) for name in ("change", "model"))
        yield from Search(editor, request, *given).filmed(True, change, model)

    models, photograph, *others = editor.given
    given = [photograph, means, editor.steps, models, *others]
    film = [strip, gif, working, cancel]
    quiet = {**HEAVY, "show_progress": "hidden"}
    searching.click(searched, [direction, *given], film, api_name="smallest_change", **quiet)
    sweeping.click(swept, [direction, *given], film, api_name="sweep", **quiet)
    profiling.click(profiled, given, [profile, working, cancel], api_name="fragility", **quiet)
    in_sight = "() => document.getElementById('found').scrollIntoView({ block: 'start' })"
    profile.select(pressed, given, film, **PRIVATE, **quiet).then(None, None, None, js=in_sight, **PRIVATE)


class Search:
    """What a visitor asks for, from the inputs of the panel; steps: of diffusion, None for pasting."""

    def __init__(
        self,
        editor: Editor,
        request: gr.Request,
        photograph: Photograph,
        means: str,
        steps: float,
        models: Sequence[str],
        *others: *Rest,
    ) -> None:
        self.editor, self.asked = editor, EditorInputs.of(models, photograph, *others)
        self.steps = int(steps) if means == DIFFUSION else None
        self.followed = partial(editor.studio.jobs.followed, str(request.session_hash))

    def subject(self, report: Report, chain: tuple[Edit, ...] = ()) -> Subject:
        """Return the photograph as the subject of a search; chain: the edits that stay switched on."""
        asked, studio = self.asked, self.editor.studio
        if not asked.models:
            raise UserError("no model is chosen", allowed="one of the list of models")
        return subject(studio, asked.photograph, chain, seed=asked.seed, steps=self.steps, check=report.check)

    def filmed(self, smallest: bool, change: str, model: str | None = None) -> Outputs:
        """Yield the progress of a search for the smallest change or of a sweep, then its film: film, GIF, bar, Cancel.

        model: of a bar of the profile, which starts from the photograph itself; None for the first chosen one.
        """

        def work(report: Report) -> tuple[str, Strip]:
            direction, chain = find_direction(change), self.editor.chain(self.asked) if model is None else ()
            photograph, name = self.subject(report, chain), model or self.asked.models[0]
            asked = self.editor.studio.predictor(name)
            if smallest:
                result = find_smallest(photograph, asked, direction, chain, progress=report)
                return filmstrip(result.strip, result.model, result.sentence, result.turn), result.strip
            strip = change_strip(photograph, asked, direction, chain, progress=report)
            return swept_film(strip, name), strip

        def told(step: Step) -> tuple[object, ...]:
            return gr.skip(), gr.skip(), figures.drawn("progress", step=step, unit="pictures"), gr.Button(visible=True)

        yield gr.skip(), gr.skip(), figures.message("Searching …"), gr.Button(visible=True)
        closed = gr.Button(visible=False)
        try:
            film, strip = yield from self.followed(work, told)
            yield film, gr.DownloadButton(value=write_gif(strip, self.asked.photograph), visible=True), "", closed
        except Canceled:
            yield gr.skip(), gr.skip(), figures.message("Canceled."), closed
        except UserError as error:
            yield "null", gr.DownloadButton(visible=False), figures.message(str(error), "problem"), closed

    def profiled(self) -> Outputs:
        """Yield the fragility profile as far as it is known: bars, progress, Cancel."""
        total, done = len(directions()) * len(self.asked.models), list[SmallestChange]()

        def work(report: Report) -> None:
            models = map(self.editor.studio.predictor, self.asked.models)
            for result in fragility_profile(self.subject(report), models, directions().values()):
                done.append(result)
                report(len(done), total)

        def told(step: Step) -> tuple[object, ...]:
            bar = figures.drawn("progress", step=step, unit="searches")
            return profile_bars(done[: step.done], total), bar, gr.Button(visible=True)

        yield profile_bars((), total), figures.message("Searching …"), gr.Button(visible=True)
        closed = gr.Button(visible=False)
        try:
            yield from self.followed(work, told)
            yield gr.skip(), "", closed
        except Canceled:
            yield gr.skip(), figures.message(f"Canceled after {len(done)} of {total} searches."), closed
        except UserError as error:
            yield "", figures.message(str(error), "problem"), closed
