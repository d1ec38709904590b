"""Searches, sweeps and fragility profiles: their panel, and their filmstrips and bars as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import gradio as gr
import numpy as np
from markupsafe import Markup

from unswayed.edits import Edit
from unswayed.errors import UserError
from unswayed.evaluation.fragility import subject_of
from unswayed.evaluation.smallest import (
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
from unswayed.rendering.photograph import render_chain
from unswayed.scene import frame
from unswayed.views.report.pictures import data_address
from unswayed.views.text import percent, plural, tag

from . import figures
from .controls import Group, Value, chosen_chain
from .photographs import Photograph
from .result_panel import HEAVY, PRIVATE, Component, Shared, connect_cancel
from .stage import framed, needs_network, request_of, write_gif
from .studio import Canceled, Report, Step, Studio

THUMBNAIL = 96
MEANING = (
    "A bar shows how far an attribute was changed until the prediction changed: 0 % is the photograph, 100 % the end "
    "of the attribute's range. The shorter the bar, the more fragile the prediction. Levels between those tried may "
    "change it earlier."
)
CURVE = ("The curve is the probability of", "from 0 to 100 %; an orange diamond is another prediction.")


def filmstrip(strip: Strip, model: str, said: str, shown: Still | None = None) -> Markup:
    """Return pictures to scrub over, under the curve of the probability that the first prediction keeps.

    said: the result in a sentence; shown: the picture that is shown first, by default the last one.
    """
    stills, before = strip.stills, strip.before
    place = len(stills) - 1 if shown is None else stills.index(shown)
    shares = [min(max(strip.direction.share(still.level, before.level), 0.0), 1.0) for still in stills]
    words = [_words(strip, still) for still in stills]
    points = [
        tag(
            "span",
            class_="point" if still.best == before.best else "point turned",
            style=f"left: {100 * share:.2f}%; top: {100 * (1 - still.kept):.2f}%",
        )
        for still, share in zip(stills, shares, strict=True)
    ]
    line = " ".join(
        f"{100 * share:.2f},{100 * (1 - still.kept):.2f}" for still, share in zip(stills, shares, strict=True)
    )
    drawn = Markup(
        '<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true"><polyline points="{}"/></svg>'
    ).format(line)
    now = tag("span", class_="now", style=f"left: {100 * shares[place]:.2f}%")
    name = f"Probability of “{before.name}” from {percent(before.kept, 0)} to {percent(stills[-1].kept, 0)}"
    curve = tag("div", drawn, *points, now, class_="curve", role="img", aria_label=name)
    ends = (tag("span", "unchanged"), tag("span", strip.direction.describe(strip.direction.change.extreme)))
    frames = [
        tag(
            "img",
            src=data_address(still.image),
            alt="",
            draggable="false",
            data_share=f"{100 * at:.2f}",
            data_words=text,
        )
        for still, at, text in zip(stills, shares, words, strict=True)
    ]
    slider = tag(
        "input",
        type="range",
        min=0,
        max=len(stills) - 1,
        step=1,
        value=place,
        aria_label="picture of the filmstrip",
        aria_valuetext=words[place],
    )
    big = tag("img", src=data_address(stills[place].image), alt=words[place], class_="big", draggable="false")
    return tag(
        "section",
        tag("p", tag("b", f"{model}, {strip.direction.name}: "), said, role="status"),
        tag(
            "p",
            f"Probability of “{before.name}”, from 0 to 100 %; an orange diamond is another prediction.",
            class_="quiet",
        ),
        curve,
        tag("div", *ends, class_="ends quiet"),
        tag("div", *frames, class_="thumbs", aria_hidden="true"),
        slider,
        tag("figure", big, tag("figcaption", words[place], aria_live="polite")),
        class_="film",
    )


def found_film(found: SmallestChange) -> Markup:
    """Return the result of a search as a filmstrip that shows the turn, or the last picture that was tried."""
    return filmstrip(found.strip, found.model, found.sentence, found.turn)


def swept_film(strip: Strip, model: str) -> Markup:
    """Return a sweep as a filmstrip that shows its last picture."""
    levels = strip.stills[1:]
    turned = sum(still.best != strip.before.best for still in levels)
    said = f"{plural(len(levels), 'level')}; the prediction is another one at {turned} of them." if levels else ""
    if strip.impossible is not None:
        said += f" {'Some levels were not' if levels else 'No level was'} possible: {strip.impossible}."
    return filmstrip(strip, model, said.strip())


def _words(strip: Strip, still: Still) -> str:
    said = f"{strip.describe(still)}: {still.name}, {percent(still.probability, 0)}"
    kept = "" if still.best == strip.before.best else f"; {strip.before.name} {percent(still.kept, 0)}"
    return said + kept


def profile_bars(found: Sequence[SmallestChange], total: int) -> Markup:
    """Return the profile: one bar for each change and model; when all `total` are there, the most fragile first."""
    if not found:
        return tag("section", tag("p", MEANING, class_="quiet"), class_="profile")
    by_change: dict[str, list[SmallestChange]] = {}
    for result in found:
        by_change.setdefault(result.direction.name, []).append(result)
    names = list(by_change)
    if len(found) == total:
        names.sort(key=lambda name: min(2.0 if result.share is None else result.share for result in by_change[name]))
    groups = [
        tag("li", tag("h4", name), tag("ul", *(tag("li", *_row(result)) for result in by_change[name])))
        for name in names
    ]
    fragile = sum(result.turn is not None for result in found)
    summary = f"The prediction changed in {fragile} of {len(found)} searches."
    return tag(
        "section",
        tag("p", MEANING, class_="quiet"),
        tag("p", summary, role="status") if len(found) == total else None,
        tag("ol", *groups),
        class_="profile",
    )


def _row(found: SmallestChange) -> list[Markup]:
    turn, share = found.turn, found.share
    if share is None:
        said, bar = found.short, tag("span", class_="bar steady", aria_hidden="true")
    else:
        said = f"{percent(share, 0)}: {found.short}"
        bar = tag("span", tag("span", style=f"width: {100 * share:.2f}%"), class_="bar", aria_hidden="true")
    last = turn or found.strip.stills[-1]
    button = tag(
        "button",
        tag("img", src=data_address(last.image, THUMBNAIL), alt=""),
        type="button",
        data_change=found.direction.name,
        data_model=found.model,
        aria_label=f"pictures of {found.direction.name}, {found.model}",
    )
    return [button, tag("span", found.model, class_="model"), bar, tag("span", said, class_="said")]


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
    pasted = None if steps is not None else subject_of(request, scene)

    def make(edits: tuple[Edit, ...]) -> np.ndarray:
        check()
        if not edits:
            return framed(photograph)
        if pasted is not None:
            return pasted.make(edits)
        asked = replace(request, chain=edits)
        return studio.rendered(
            asked, lambda renderer: render_chain(asked, scene, renderer)[2].image, lambda *_: check()
        )

    return Subject(make, frame(scene).pixel_rate)


DIFFUSION = "diffusion"
SMALLEST, SWEEP = "smallest", "sweep"
CANCELED = "Canceled."


@dataclass(frozen=True, eq=False)
class SearchPanel:
    """The components of the panel."""

    direction: Component
    means: Component
    searching: Component
    sweeping: Component
    profiling: Component
    cancel: Component
    working: Component
    found: Component
    gif: Component
    profile: Component


def search_panel() -> SearchPanel:
    """Build the panel inside the open gradio context."""
    gr.HTML("<h2>4 · How little changes the prediction?</h2>")
    with gr.Row():
        direction = gr.Dropdown(
            list(directions()), value=next(iter(directions())), label="change to try", elem_id="direction"
        )
        means = gr.Radio(["paste preview", DIFFUSION], value="paste preview", label="rendered by")
    with gr.Row():
        searching = gr.Button("Find the smallest change", elem_id="search", min_width=120)
        sweeping = gr.Button("Sweep over all levels", elem_id="sweep", min_width=120)
        profiling = gr.Button("Fragility profile: all changes", elem_id="fragility", min_width=120)
        cancel = gr.Button("Cancel", variant="stop", visible=False, elem_id="cancel-search", min_width=80)
    gr.HTML(
        "<p class='quiet'>Search and sweep ask the first chosen model and keep the other changes that are switched on. "
        "The profile asks all chosen models and starts from the photograph itself.</p>"
    )
    working = gr.HTML(elem_id="searching")
    scripts = resources.files(__package__)
    found = gr.HTML(elem_id="found", js_on_load=scripts.joinpath("filmstrip.js").read_text(encoding="utf-8"))
    gif = gr.DownloadButton("Download GIF", visible=False, elem_id="download-gif", size="sm")
    profile = gr.HTML(elem_id="profile", js_on_load=scripts.joinpath("profile.js").read_text(encoding="utf-8"))
    return SearchPanel(direction, means, searching, sweeping, profiling, cancel, working, found, gif, profile)


def connect_search(panel: SearchPanel, shared: Shared, steps: Component) -> None:
    """Connect the panel's events; steps: the component with the number of diffusion steps."""
    photograph, *others = shared.chosen
    given = [photograph, panel.means, steps, shared.models, *others]
    bar = [panel.working, panel.cancel]
    quiet: dict[str, Any] = {**HEAVY, "show_progress": "hidden"}

    def asked(request: gr.Request, photograph: Photograph, means: str, steps: float, models: Any, *rest: Any) -> _Asked:
        count = int(steps) if means == DIFFUSION else None
        picture, seed, *flat = rest
        visitor = str(request.session_hash)
        return _Asked(shared.studio, shared.groups, visitor, photograph, count, models, picture, seed, flat)

    def search(request: gr.Request, change: str, *given: Any) -> Iterator[tuple[object, ...]]:
        yield from filmed(asked(request, *given), SMALLEST, change)

    def swept(request: gr.Request, change: str, *given: Any) -> Iterator[tuple[object, ...]]:
        yield from filmed(asked(request, *given), SWEEP, change)

    def profiled(request: gr.Request, *given: Any) -> Iterator[tuple[object, ...]]:
        yield from fragile(asked(request, *given))

    def pressed(request: gr.Request, event: gr.EventData, *given: Any) -> Iterator[tuple[object, ...]]:
        change, model = (str(getattr(event, name, "")) for name in ("change", "model"))
        yield from filmed(asked(request, *given), SMALLEST, change, model)

    film = [panel.found, panel.gif, *bar]
    panel.searching.click(search, [panel.direction, *given], film, api_name="smallest_change", **quiet)
    panel.sweeping.click(swept, [panel.direction, *given], film, api_name="sweep", **quiet)
    panel.profiling.click(profiled, given, [panel.profile, *bar], api_name="fragility", **quiet)
    panel.profile.select(pressed, given, film, **PRIVATE, **quiet).then(
        None, None, None, js="() => document.getElementById('found').scrollIntoView({ block: 'start' })", **PRIVATE
    )
    connect_cancel(panel.cancel, shared.studio)


@dataclass(frozen=True, eq=False)
class _Asked:
    """What a visitor asks for; steps: of diffusion, None for pasting; flat: the values of the controls."""

    studio: Studio
    groups: Sequence[Group]
    visitor: str
    photograph: Photograph
    steps: int | None
    models: Sequence[str]
    picture: str | None
    seed: float
    flat: Sequence[Value]

    @property
    def chain(self) -> tuple[Edit, ...]:
        """Return the edits that are switched on."""
        return chosen_chain(self.groups, self.picture, self.flat)

    def subject(self, report: Report, chain: tuple[Edit, ...] = ()) -> Subject:
        """Return the photograph as the subject of a search; chain: the edits that stay switched on."""
        if not self.models:
            raise UserError("no model is chosen", allowed="one of the list of models")
        seed = int(self.seed or 0)
        return subject(self.studio, self.photograph, chain, seed=seed, steps=self.steps, check=report.check)


def filmed(asked: _Asked, kind: str, change: str, model: str | None = None) -> Iterator[tuple[object, ...]]:
    """Yield the progress of a search or a sweep, then its filmstrip: film, GIF, bar, Cancel.

    model: of a bar of the profile, which starts from the photograph itself; None for the first chosen one.
    """

    def work(report: Report) -> tuple[SmallestChange | Strip, str]:
        direction, chain = find_direction(change), asked.chain if model is None else ()
        photograph, name = asked.subject(report, chain), model or asked.models[0]
        look = find_smallest if kind == SMALLEST else change_strip
        return look(photograph, asked.studio.predictor(name), direction, chain, progress=report), name

    def told(step: Step) -> tuple[object, ...]:
        return gr.skip(), gr.skip(), figures.progress(step, "pictures"), gr.Button(visible=True)

    yield gr.skip(), gr.skip(), figures.message("Searching …"), gr.Button(visible=True)
    try:
        found, name = yield from asked.studio.jobs.followed(asked.visitor, work, told)
        strip = found.strip if isinstance(found, SmallestChange) else found
        film = found_film(found) if isinstance(found, SmallestChange) else swept_film(found, name)
        button = gr.DownloadButton(value=write_gif(strip, asked.photograph), visible=True)
        yield film, button, "", gr.Button(visible=False)
    except Canceled:
        yield gr.skip(), gr.skip(), figures.message(CANCELED), gr.Button(visible=False)
    except UserError as error:
        yield "", gr.DownloadButton(visible=False), figures.message(str(error), "problem"), gr.Button(visible=False)


def fragile(asked: _Asked) -> Iterator[tuple[object, ...]]:
    """Yield the fragility profile as far as it is known: bars, progress, Cancel."""
    total = len(directions()) * len(asked.models)
    done: list[SmallestChange] = []

    def work(report: Report) -> None:
        models = [asked.studio.predictor(name) for name in asked.models]
        for found in fragility_profile(asked.subject(report), models, directions().values()):
            done.append(found)
            report(len(done), total)

    def told(step: Step) -> tuple[object, ...]:
        return profile_bars(done[: step.done], total), figures.progress(step, "searches"), gr.Button(visible=True)

    yield profile_bars((), total), figures.message("Searching …"), gr.Button(visible=True)
    try:
        yield from asked.studio.jobs.followed(asked.visitor, work, told)
        yield gr.skip(), "", gr.Button(visible=False)
    except Canceled:
        yield gr.skip(), figures.message(f"Canceled after {len(done)} of {total} searches."), gr.Button(visible=False)
    except UserError as error:
        yield "", figures.message(str(error), "problem"), gr.Button(visible=False)
