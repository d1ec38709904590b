"""Building a benchmark from a source and a recipe: pictures, masks, rows and a manifest; a stopped build resumes."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from unfazed.edits.items import Recipe
from unfazed.edits.recipes import open_recipe
from unfazed.engine import run_tasks
from unfazed.engine.prefetch import prefetch
from unfazed.errors import UserError
from unfazed.files import explained
from unfazed.locks import alone
from unfazed.rendering.backgrounds import Removal
from unfazed.rendering.layers import Renderer
from unfazed.rendering.removal.methods import find_removal
from unfazed.rendering.settings import RENDERER_OPTIONS
from unfazed.sources import Source, open_source
from unfazed.sources.mask_checks import warning_summary

from .card import settle_card
from .commit_files import sweep
from .layout import CACHE, CARD, LOCK, SOURCE_EDIT
from .mask_facts import record_masks
from .plan import Plan
from .prepare import Preparation, Prepared
from .quality import count_doubtful
from .render import SourceBuilder, Summary, render_stream
from .rows import FAILED, OK, Row, counts, finished_sources, read_rows, write_manifest, write_rows
from .settings import BuildSettings

# A renderer gets this many batches per call: with fewer calls its batches are less often partly empty at the end.
BATCHES = 8


@dataclass(frozen=True)
class Progress:
    """The progress of a build: sources done and in total, rows by status; passes: passes of the network done and in
    total, None without a network; `summary` is of the source just finished."""

    done: int
    total: int
    counts: dict[str, int]
    passes: tuple[int, int] | None = None
    summary: Summary | None = None

    @property
    def share(self) -> float:
        """Return how much of the build is done, in [0, 1]."""
        done, total = self.passes or (self.done, self.total)
        return done / total if total else 1.0


@dataclass(frozen=True)
class Built:
    """The result of a build: rows by status over the whole benchmark, and for this run alone the sources that were
    made, the seconds it took and the seconds of each stage, summed over workers; classes: how many scenes each has;
    warnings: what looks wrong about masks and labels, one line each; invalid: pictures that are there although their
    validity is below one half; left_out: those that `quality="strict"` left out because of it."""

    root: Path
    counts: dict[str, int]
    sources: int
    made: int
    seconds: float
    stages: dict[str, float]
    failures: dict[str, str]
    classes: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    invalid: int = 0
    left_out: int = 0


def build(
    source: str | Source,
    output: str | Path,
    settings: BuildSettings | None = None,
    *,
    renderer: Renderer | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Built:
    """Build a benchmark of `source` in the folder `output`.

    The same call again resumes the build: finished sources are kept, failed ones are tried again. A call with more
    edits, runs or scenes adds them to the existing benchmark. If nothing is added, the bytes of the result depend on
    neither the interruption nor `batch_size`, `workers` and `engine`. A folder that holds another benchmark is
    refused. Without a network (`renderer="paste"`) `workers` processes build whole sources; a network runs in this
    process, and `workers` processes prepare pictures for it.

    renderer: an open renderer (`unfazed.rendering.open_renderer`) that has a network, so that several builds share
    one network; the settings that it was opened with must then be unset. progress: called when a source is done, and
    after every pass of a network.
    """
    settings = BuildSettings() if settings is None else settings
    if renderer is not None:
        settings = replace(settings, guide=_settled(renderer, settings))
    scenes = source if isinstance(source, Source) else open_source(source)
    plan = Plan(
        root=Path(output).expanduser(),
        source=scenes.select(
            settings.limit,
            settings.classes,
            sample=settings.sample,
            per_class=settings.per_class,
            seed=settings.seed,
        ),
        recipe=settings.recipe if isinstance(settings.recipe, Recipe) else open_recipe(settings.recipe),
        settings=settings,
    )
    with explained(plan.root):
        plan.root.mkdir(parents=True, exist_ok=True)
    busy = UserError(f"another run is building in {plan.root}", run=f"unfazed status {plan.root}")
    with alone(plan.root / LOCK, busy):
        return _build(plan, renderer, progress or (lambda progress: None))


def _settled(renderer: Renderer, settings: BuildSettings) -> str:
    """Return the guide of an open renderer; refuse settings that were fixed when it was opened."""
    described = renderer.describe()
    if described["renderer"] == "paste":
        raise UserError("the open renderer has no network", allowed='BuildSettings(renderer="paste") instead')
    given = [name for name in (*RENDERER_OPTIONS, "batch_size") if getattr(settings, name) is not None]
    if given:
        raise UserError(
            f"{', '.join(given)} cannot be set for a renderer that is already open",
            allowed="these settings in the call of open_renderer",
        )
    guide = described.get("guide")
    return "none" if guide is None else str(guide["name"])


def _build(
    plan: Plan,
    opened: Renderer | None,
    report: Callable[[Progress], None],
) -> Built:
    started = time.monotonic()
    renderer, removal = opened or plan.open_renderer(), plan.open_removal()
    settle_card(plan.root, plan.card(renderer, removal), plan.source.ids)
    sweep(plan.root)
    rows = {one: read_rows(plan.root, one) for one in finished_sources(plan.root) if one in plan.source}
    done = {one for one, its in rows.items() if not plan.missing(one, its)}
    waiting = [one for one in plan.source.ids if one not in done]
    totals = Counter(counts(row for one in done for row in rows[one]))
    passes = _Passes(plan, renderer, len(waiting))
    now = Progress(len(done), len(plan.source), dict(totals), passes.counted)
    report(now)
    stages: Counter[str] = Counter()
    if plan.has_network:
        summaries = _through_network(plan, renderer, removal, waiting, passes)
    else:
        summaries = _by_source(SourceBuilder(plan, removal), waiting)
    with contextlib.closing(summaries), passes.watched(lambda counted: report(replace(now, passes=counted))):
        for number, summary in enumerate(summaries, start=len(done) + 1):
            totals.update(summary.counts)
            stages.update(summary.seconds)  # type: ignore[arg-type]
            now = Progress(number, len(plan.source), dict(totals), passes.counted)
            report(replace(now, summary=summary))
    if not (plan.root / CARD).is_file():
        raise UserError(
            f"the folder {plan.root} was moved or deleted during the build", run="the same command again, with -o"
        )
    everything = [row for one in plan.source.ids for row in read_rows(plan.root, one)]
    write_manifest(plan.root, everything)
    notes = _notes(everything)
    record_masks(plan.root, everything, notes)
    shutil.rmtree(plan.root / CACHE, ignore_errors=True)
    doubtful = count_doubtful(everything)
    return Built(
        root=plan.root,
        counts=counts(everything),
        sources=len(plan.source),
        made=len(waiting),
        seconds=time.monotonic() - started,
        stages={name: float(value) for name, value in stages.items()},
        failures=_failures(everything),
        classes=plan.source.class_counts,
        warnings=(*plan.source.remarks, *warning_summary(notes)),
        invalid=doubtful["invalid"],
        left_out=doubtful["left out"],
    )


class _Passes:
    """The passes of the network that a build has made and will make, as far as that is known."""

    def __init__(self, plan: Plan, renderer: Renderer, waiting: int) -> None:
        self.renderer = renderer
        self.done = 0
        runs = [plan.settings.runs if plan.has_draws(item) else 1 for item in plan.recipe.items]
        starts = [max((edit.blends_from for edit in item.chain), default=0.0) for item in plan.recipe.items]
        self.planned = sum(count * self._of(start) for count, start in zip(runs, starts, strict=True))
        self.total = waiting * self.planned

    def _of(self, start: float) -> int:
        return self.renderer.passes(start) if isinstance(self.renderer, _Counting) else 0

    @property
    def counted(self) -> tuple[int, int] | None:
        return (min(self.done, self.total), self.total) if self.total else None

    def prepared(self, source: Prepared | None) -> None:
        """Replace the planned passes of a source by those of the pictures that are possible for it."""
        real = 0 if source is None else sum(self._of(layers.start) for layers in source.layers.values())
        self.total += real - self.planned

    @contextlib.contextmanager
    def watched(self, report: Callable[[tuple[int, int] | None], None]) -> Iterator[None]:
        """Call `report` after every pass."""
        if not isinstance(self.renderer, _Counting):
            yield
            return

        def count(pictures: int) -> None:
            self.done += pictures
            report(self.counted)

        before, self.renderer.on_passes = self.renderer.on_passes, count
        try:
            yield
        finally:
            self.renderer.on_passes = before


@runtime_checkable
class _Counting(Protocol):
    """A renderer that says how many passes a picture takes and when one is done."""

    on_passes: Callable[[int], None] | None

    def passes(self, start: float) -> int: ...


def _by_source(builder: SourceBuilder, waiting: list[str]) -> Generator[Summary, None, None]:
    """Build the sources, each in one worker process."""
    settings = builder.plan.settings
    for outcome in run_tasks(builder, waiting, settings.workers or 1, settings, apart=True):
        yield outcome.result or _given_up(builder.plan, outcome.task, str(outcome.failure))


def _through_network(
    plan: Plan,
    renderer: Renderer,
    removal: Removal,
    waiting: list[str],
    passes: _Passes,
) -> Generator[Summary, None, None]:
    """Build the sources: workers prepare them in advance, and the renderer's batches mix several sources."""
    described, settings = renderer.describe(), plan.settings
    workers = settings.workers or _preparers(described)
    at_once = int(described.get("batch_size") or 1)
    group = at_once if at_once == 1 else BATCHES * at_once
    given_up: list[Summary] = []
    again = Preparation(plan, removal) if settings.quality == "strict" else None

    def prepared() -> Generator[Prepared, None, None]:
        for outcome in run_tasks(Preparation(plan, removal), waiting, workers):
            passes.prepared(outcome.result)
            if outcome.result is not None:
                yield outcome.result
            else:
                given_up.append(_given_up(plan, outcome.task, str(outcome.failure)))

    # If the network uses the same cores, or also removes the objects, preparing in advance would slow it down.
    alone = described.get("device") == "cpu" or find_removal(settings.removal)[0].takes_network
    count = group // (len(plan.recipe.items) * settings.runs) + 2
    with contextlib.closing(prepared() if alone else prefetch(prepared(), count)) as sources:
        for summary in render_stream(plan.root, renderer, group, sources, again=again):
            yield summary
            while given_up:
                yield given_up.pop()
    yield from given_up


def _given_up(plan: Plan, source_id: str, reason: str) -> Summary:
    """Write the rows of a source whose worker died, all failed with that reason."""
    rows = Preparation(plan).all_rows(source_id, FAILED, reason)
    write_rows(plan.root, source_id, rows)
    return Summary(source_id, counts(rows), {})


def _preparers(described: Mapping[str, Any]) -> int:
    """Return how many processes prepare pictures for a network: a few for a GPU, only this one for the CPU."""
    return 1 if described.get("device") == "cpu" else max(1, min(4, (os.cpu_count() or 1) - 2))


def _failures(rows: list[Row]) -> dict[str, str]:
    """Return the sources with failed rows, each with its first reason."""
    found: dict[str, str] = {}
    for row in rows:
        if row.status == FAILED:
            found.setdefault(row.source_id, str(row.reason))
    return found


def _notes(rows: list[Row]) -> dict[str, list[str]]:
    """Return the notes about each photograph that was used, by source."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.edit == SOURCE_EDIT and row.status == OK:
            found[row.source_id] = row.notes
    return found
