"""Searches, sweeps and fragility profiles: their panel, and their filmstrips and bars as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
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
)
from unswayed.rendering.layers import Renderer
from unswayed.rendering.photograph import render_chain
from unswayed.scene import frame
from unswayed.views.text import data_address, percent, plural

from . import figures
from .controls import Value
from .editor import HEAVY, PRIVATE, Component, Editor, EditorInputs, Updates, data, script
from .photographs import Photograph
from .stage import framed, needs_network, request_of, write_gif
from .studio import Report, Step, Studio, remembered_removal

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
    paste = None if steps is not None else request.open_renderer()

    def make(edits: tuple[Edit, ...]) -> np.ndarray:
        check()
        if not edits:
            return framed(photograph).image
        asked = replace(request, chain=edits)

        def work(renderer: Renderer) -> np.ndarray:
            return render_chain(asked, scene, renderer, remove)[2].image

        return work(paste) if paste is not None else studio.rendered(asked, work, lambda *_: check())

    return Subject(make, frame(scene).pixel_rate)


DIFFUSION = "diffusion"
# The inputs of an event as the page sends them: photograph, how it is rendered, steps of diffusion, models, and the
# rest: the file of a background, the seed, the values of the controls.
Rest: TypeAlias = tuple[str | None, float | None, *tuple[Value, ...]]
Given: TypeAlias = tuple[Photograph, str, float, Sequence[str], *Rest]


class SearchPanel:
    """The panel of searches, sweeps and profiles, built inside the open gradio context, and what its events do."""

    def __init__(self, editor: Editor) -> None:
        self.editor, changes = editor, list(directions())
        gr.HTML("<h2>Smallest change</h2>")
        with gr.Row():
            direction = gr.Dropdown(
                changes, value=changes[0], label="change to try", elem_id="direction", min_width=200
            )
            means = gr.Radio(["paste preview", DIFFUSION], value="paste preview", label="rendered by", min_width=200)
        with gr.Row():
            searching = gr.Button("Find the smallest change", elem_id="search", size="sm", min_width=120)
            sweeping = gr.Button("Sweep over all levels", elem_id="sweep", size="sm", min_width=120)
            profiling = gr.Button("Try all changes", elem_id="fragility", size="sm", min_width=120)
            self.cancel = editor.cancel_button("cancel-search")
        gr.HTML(
            "<p class='quiet'>The first two keep your other changes and ask the first model. The third starts from the "
            "photograph, makes one change at a time and asks every model.</p>"
        )
        self.working: Component = gr.HTML(elem_id="searching")
        drawn = "<section class='film'></section>"
        self.film: Component = gr.HTML("null", elem_id="found", html_template=drawn, js_on_load=script("filmstrip.js"))
        self.gif: Component = gr.DownloadButton("Download GIF", visible=False, elem_id="download-gif", size="sm")
        self.profile: Component = gr.HTML(elem_id="profile", js_on_load=script("profile.js"))

        models, photograph, *others = editor.given
        given = [photograph, means, editor.steps, models, *others]
        film, quiet = [self.film, self.gif, self.working, self.cancel], {**HEAVY, "show_progress": "hidden"}
        searching.click(self.searched, [direction, *given], film, api_name="smallest_change", **quiet)
        sweeping.click(self.swept, [direction, *given], film, api_name="sweep", **quiet)
        bars = [self.profile, self.working, self.cancel]
        profiling.click(self.profiled, given, bars, api_name="fragility", **quiet)
        in_sight = "() => document.getElementById('found').scrollIntoView({ block: 'start' })"
        pressed = self.profile.select(self.pressed, given, film, **PRIVATE, **quiet)
        pressed.then(None, None, None, js=in_sight, **PRIVATE)

    def searched(self, request: gr.Request, change: str, *given: *Given) -> Iterator[Updates]:
        yield from self._filmed(request, given, True, change)

    def swept(self, request: gr.Request, change: str, *given: *Given) -> Iterator[Updates]:
        yield from self._filmed(request, given, False, change)

    def pressed(self, request: gr.Request, event: gr.EventData, *given: *Given) -> Iterator[Updates]:
        change, model = (str(getattr(event, name, "")) for name in ("change", "model"))
        yield from self._filmed(request, given, True, change, model)

    def _filmed(
        self, request: gr.Request, given: Given, smallest: bool, change: str, model: str | None = None
    ) -> Iterator[Updates]:
        """Yield the progress of a search for the smallest change or of a sweep, then its film and GIF.

        model: of a bar of the profile, which starts from the photograph itself; None for the first chosen one.
        """

        def work(report: Report) -> Updates:
            try:
                direction, asked = find_direction(change), _asked(*given)
                chain = self.editor.chain(asked) if model is None else ()
                photograph, name = self._subject(given, report, chain), model or asked.models[0]
                predictor = self.editor.studio.predictor(name)
                if smallest:
                    result = find_smallest(photograph, predictor, direction, chain, progress=report)
                    strip, film = result.strip, filmstrip(result.strip, result.model, result.sentence, result.turn)
                else:
                    strip = change_strip(photograph, predictor, direction, chain, progress=report)
                    film = swept_film(strip, name)
                path = write_gif(strip, asked.photograph)
            except UserError as error:
                problem = figures.message(str(error), "problem")
                return {self.film: "null", self.gif: gr.DownloadButton(visible=False), self.working: problem}
            return {self.film: film, self.gif: gr.DownloadButton(value=path, visible=True)}

        return self.editor.followed(request, work, self.working, self.cancel, "pictures")

    def profiled(self, request: gr.Request, *given: *Given) -> Iterator[Updates]:
        """Yield the fragility profile as far as it is known."""
        models, done = _asked(*given).models, list[SmallestChange]()
        total = len(directions()) * len(models)

        def work(report: Report) -> Updates:
            try:
                predictors = map(self.editor.studio.predictor, models)
                for result in fragility_profile(self._subject(given, report), predictors, directions().values()):
                    done.append(result)
                    report(len(done), total)
            except UserError as error:
                return {self.profile: "", self.working: figures.message(str(error), "problem")}
            return {}

        def seen(step: Step) -> Updates:
            return {self.profile: profile_bars(done[: step.done], total)}

        yield seen(Step(0, total, 0.0))
        canceled = f"Canceled after {{0.done}} of {total} searches."
        shown = self.working, self.cancel
        yield from self.editor.followed(request, work, *shown, "searches", canceled=canceled, seen=seen)

    def _subject(self, given: Given, report: Report, chain: tuple[Edit, ...] = ()) -> Subject:
        """Return the photograph as the subject of a search; chain: the edits that stay switched on."""
        asked, (_, means, steps, *_) = _asked(*given), given
        if not asked.models:
            raise UserError("no model is chosen", allowed="one of the list of models")
        used = int(steps) if means == DIFFUSION else None
        return subject(self.editor.studio, asked.photograph, chain, seed=asked.seed, steps=used, check=report.check)


def _asked(photograph: Photograph, _: str, __: float, models: Sequence[str], *others: *Rest) -> EditorInputs:
    return EditorInputs.of(models, photograph, *others)
