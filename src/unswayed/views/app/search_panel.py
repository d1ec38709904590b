"""The panel of searches: the smallest change that changes the prediction, a sweep, and the fragility profile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import gradio as gr

from unswayed.edits import Edit
from unswayed.errors import UserError
from unswayed.evaluation.changes import directions, find_direction
from unswayed.evaluation.smallest import Found, Strip, Subject, find_smallest, fragility_profile, sweep

from . import figures
from .controls import Group, chosen_chain
from .downloads import write_gif
from .events import HEAVY, PRIVATE, Shared
from .film_figures import found_film, profile_bars, swept_film
from .jobs import Canceled, Report, Step
from .photographs import Photograph
from .render_panel import connect_cancel
from .searches import subject
from .studio import Studio

DIFFUSION = "diffusion"
SMALLEST, SWEEP = "smallest", "sweep"
CANCELED = "Canceled."


@dataclass(frozen=True, eq=False)
class SearchPanel:
    """The components of the panel."""

    direction: Any
    means: Any
    searching: Any
    sweeping: Any
    profiling: Any
    cancel: Any
    working: Any
    found: Any
    gif: Any
    profile: Any


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


def connect_search(panel: SearchPanel, shared: Shared, steps: Any) -> None:
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

    def search(request: gr.Request, change: str, *given: Any) -> Iterator[tuple[Any, ...]]:
        yield from filmed(asked(request, *given), SMALLEST, change)

    def swept(request: gr.Request, change: str, *given: Any) -> Iterator[tuple[Any, ...]]:
        yield from filmed(asked(request, *given), SWEEP, change)

    def profiled(request: gr.Request, *given: Any) -> Iterator[tuple[Any, ...]]:
        yield from fragile(asked(request, *given))

    def pressed(request: gr.Request, event: gr.EventData, *given: Any) -> Iterator[tuple[Any, ...]]:
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
    flat: Sequence[Any]

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


def filmed(asked: _Asked, kind: str, change: str, model: str | None = None) -> Iterator[tuple[Any, ...]]:
    """Yield the progress of a search or a sweep, then its filmstrip: film, GIF, bar, Cancel.

    model: of a bar of the profile, which starts from the photograph itself; None for the first chosen one.
    """

    def work(report: Report) -> tuple[Found | Strip, str]:
        direction, chain = find_direction(change), asked.chain if model is None else ()
        one, name = asked.subject(report, chain), model or asked.models[0]
        look = find_smallest if kind == SMALLEST else sweep
        return look(one, asked.studio.predictor(name), direction, chain, progress=report), name

    def told(step: Step) -> tuple[Any, ...]:
        return gr.skip(), gr.skip(), figures.progress(step, "pictures"), gr.Button(visible=True)

    yield gr.skip(), gr.skip(), figures.message("Searching …"), gr.Button(visible=True)
    try:
        found, name = yield from asked.studio.jobs.followed(asked.visitor, work, told)
        strip = found.strip if isinstance(found, Found) else found
        film = found_film(found) if isinstance(found, Found) else swept_film(found, name)
        button = gr.DownloadButton(value=write_gif(strip, asked.photograph), visible=True)
        yield film, button, "", gr.Button(visible=False)
    except Canceled:
        yield gr.skip(), gr.skip(), figures.message(CANCELED), gr.Button(visible=False)
    except UserError as error:
        yield "", gr.DownloadButton(visible=False), figures.message(str(error), "problem"), gr.Button(visible=False)


def fragile(asked: _Asked) -> Iterator[tuple[Any, ...]]:
    """Yield the fragility profile as far as it is known: bars, progress, Cancel."""
    total = len(directions()) * len(asked.models)
    done: list[Found] = []

    def work(report: Report) -> None:
        models = [asked.studio.predictor(name) for name in asked.models]
        for found in fragility_profile(asked.subject(report), models, directions().values()):
            done.append(found)
            report(len(done), total)

    def told(step: Step) -> tuple[Any, ...]:
        return profile_bars(done[: step.done], total), figures.progress(step, "searches"), gr.Button(visible=True)

    yield profile_bars((), total), figures.message("Searching …"), gr.Button(visible=True)
    try:
        yield from asked.studio.jobs.followed(asked.visitor, work, told)
        yield gr.skip(), "", gr.Button(visible=False)
    except Canceled:
        yield gr.skip(), figures.message(f"Canceled after {len(done)} of {total} searches."), gr.Button(visible=False)
    except UserError as error:
        yield "", figures.message(str(error), "problem"), gr.Button(visible=False)
