"""Building a benchmark from a source and a recipe: pictures, masks, rows and a manifest; a stopped build resumes."""

from __future__ import annotations

import contextlib
import functools
import math
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from pathlib import Path

from unswayed.choices import OneLine, takes
from unswayed.edits.recipes import Recipe, open_recipe
from unswayed.errors import UserError
from unswayed.files.locks import alone
from unswayed.files.storage import place_of, refresh
from unswayed.jobs import ENGINES, engine_of, run_tasks
from unswayed.jobs.monitor import Monitor, View
from unswayed.jobs.processes import preload, start_server
from unswayed.jobs.scheduling import Here
from unswayed.masks.checks import exchanged_masks, mask_record, origins_of, warning_summary
from unswayed.rendering.layers import Removal, Renderer, forecast
from unswayed.rendering.settings import RENDERER_OPTIONS, removal_of
from unswayed.sources import Source, open_source
from unswayed.sources.source import repeated_photographs

from .agreement import check_model, measured_agreement
from .plan import Plan, labels_hash, only_run, record_facts, settle_card
from .quality import is_invalid, write_mask_sheet
from .render import (
    Described,
    NetworkBuilder,
    SourceBuilder,
    Summary,
    describe_network,
    described,
    give_up,
    sweep,
    through_network,
)
from .rows import (
    CACHE,
    CARD,
    CARD_LOCK,
    FAILED,
    OK,
    ORIGINAL_EDIT,
    SOURCE_EDIT,
    counts,
    finished_sources,
    read_rows,
    write_manifest,
    write_rows,
)
from .settings import BuildSettings


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


@dataclass(frozen=True, repr=False)
class BuildResult(OneLine):
    """The result of a build: rows by status over the whole benchmark, or over the shard, and for this run alone the
    sources that were made, the seconds it took, the seconds of each stage and the CPU seconds of the workers that
    prepare and write, both summed over workers; classes: how many
    scenes each has; warnings: what looks wrong about masks and labels, one line each; invalid: pictures that are there
    although their validity is below one half; left_out: those that `quality="strict"` left out because of it;
    unfinished: sources that other shards have still to build, so that there is no manifest yet."""

    root: Path
    counts: dict[str, int]
    sources: int
    made: int = 0
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    cpu: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    invalid: int = 0
    left_out: int = 0
    unfinished: int = 0


class _Run:
    """One run of a build, which tells the monitor and the caller how far it is.

    planned: passes of the network for one source; passes, all_passes: done, and in total as far as that is known.
    """

    def __init__(
        self,
        plan: Plan,
        opened: Renderer | None,
        monitor: Monitor,
        progress: Callable[[Progress], None] | None,
        say: Callable[[str], None] | None,
    ) -> None:
        self.plan, self.opened, self.monitor, self.progress, self.say = plan, opened, monitor, progress, say
        self.part = plan.settings.part(plan.source.ids)
        self.done = self.planned = self.passes = self.all_passes = 0
        self.counts = Counter(counts(()))

    def build(self) -> BuildResult:
        started, plan, root = time.monotonic(), self.plan, self.plan.root
        if plan.settings.agreement is not None:
            check_model(plan.settings.agreement, plan.settings.device)
        (card, passes), make = self._maker()
        with alone(root / CARD_LOCK, wait=60):
            refresh(root)
            settle_card(root, card, plan.source)
        ours = None if plan.settings.shard is None else set(self.part)
        sweep(root, ours)
        rows = {source_id: read_rows(root, source_id) for source_id in finished_sources(root).intersection(self.part)}
        missing = {source_id: plan.missing(source_id, its) for source_id, its in rows.items()}
        # Those of which nothing is there come first: they take the longest.
        waiting = sorted(
            (source_id for source_id in self.part if missing.get(source_id, 1)),
            key=lambda source_id: -missing.get(source_id, math.inf),
        )
        self.done = len(self.part) - len(waiting)
        self.counts.update(row.status for source_id in rows.keys() - set(waiting) for row in rows[source_id])
        runs = {edit: plan.settings.runs if drawn else 1 for edit, drawn in plan.draws.items()}
        self.planned = sum(passes[start] * runs[edit] for edit, start in plan.recipe.starts.items())
        self.all_passes = len(waiting) * self.planned
        self.tell()
        stages, cpu = defaultdict[str, float](float), 0.0
        with contextlib.closing(make(waiting)) as summaries:
            for summary in summaries:
                for stage, seconds in summary.seconds.items():
                    stages[stage] += seconds
                cpu += summary.cpu
                self.tell(summary)
                self.monitor.check_folder(CARD)
        self.monitor.check_folder(CARD)
        refresh(root)  # for rows that other machines have added
        sweep(root, ours)  # what workers left that died in this run
        built = _finish(plan, self.part)
        return replace(built, made=len(waiting), seconds=time.monotonic() - started, stages=dict(stages), cpu=cpu)

    def tell(self, summary: Summary | None = None) -> None:
        """Pass on how far the run is; summary: of the source that was just finished."""
        if summary is not None:
            self.done += 1
            self.counts.update(summary.counts)
            self.all_passes += summary.passes - self.planned  # now those of the pictures that were possible for it
        passes = (min(self.passes, self.all_passes), self.all_passes) if self.all_passes else None
        made, sources = dict(self.counts), len(self.part)
        note = ", ".join(f"{number} {status}" for status, number in made.items() if number and status != FAILED)
        if passes:
            note = f"{self.done} of {sources} scenes; {note}"
        self.monitor.count(*(passes or (self.done, sources)), failed=made[FAILED], note=note)
        if self.progress is not None:
            self.progress(Progress(self.done, sources, made, passes, summary))

    def _maker(self) -> tuple[Described, Callable[[list[str]], Generator[Summary, None, None]]]:
        """What the renderer says of the benchmark, and the function that makes the sources."""
        plan, settings = self.plan, self.plan.settings
        devices = engine_of(settings).places(settings) if plan.network and self.opened is None else []
        if len(devices) > 1 or (devices and not _here_possible(settings)):
            # A process of its own opens the renderer on a device to describe it.
            [outcome] = run_tasks(describe_network, [plan], settings=settings, devices=devices[:1], apart=True)
            if outcome.result is None:
                raise UserError(f"the network could not be opened on {devices[0]}: {outcome.failure}")
            return outcome.result, functools.partial(self._on_devices, devices)
        plan = plan.on(devices[0]) if devices else plan
        renderer, removal = self.opened or plan.open_renderer(), removal_of(settings)
        make = self._here if plan.network else self._by_source
        return described(plan, renderer, removal), functools.partial(make, plan, renderer, removal)

    def _by_source(
        self, plan: Plan, _: Renderer, removal: Removal, waiting: list[str]
    ) -> Generator[Summary, None, None]:
        """Build the sources without a network, each in one worker process, which opens its own renderer."""
        # A process takes a second to start, so few photographs do not get one for each core.
        workers = plan.settings.workers
        if workers is None:
            workers = max(1, min(engine_of(plan.settings).cores(plan.settings), len(waiting) // 16))
        builder, watch = SourceBuilder(plan, removal), self.monitor.watch
        for outcome in run_tasks(builder, waiting, workers, plan.settings, apart=True, watch=watch):
            yield outcome.result or give_up(plan, outcome.task, str(outcome.failure))

    def _here(
        self, plan: Plan, renderer: Renderer, removal: Removal, waiting: list[str]
    ) -> Generator[Summary, None, None]:
        """Build the sources with the network in this process; progress is reported after passes, ten times a second."""
        if self.say is not None and (text := forecast(renderer, self.all_passes)):
            self.say(text)
        device = str(renderer.describe().get("device"))
        here, told = Here(device, device, self.monitor.watch), 0.0

        def count(pictures: int) -> None:
            nonlocal told
            self.passes += pictures
            if time.monotonic() - told > 0.1:  # a GPU makes a hundred passes a second, and waits for what is done here
                told = time.monotonic()
                here.tell()
                self.tell()

        for summary in through_network(plan, renderer, removal, waiting, count):
            here.tell(finished=1)
            yield summary

    def _on_devices(self, devices: list[str], waiting: list[str]) -> Generator[Summary, None, None]:
        """Build the sources with one process for each device, those with the most pictures first."""
        plan, watch = self.plan, self.monitor.watch
        for outcome in run_tasks(NetworkBuilder(plan), waiting, settings=plan.settings, devices=devices, watch=watch):
            summary = outcome.result or give_up(plan, outcome.task, str(outcome.failure))
            self.passes += summary.passes
            yield summary


def _finish(plan: Plan, part: list[str]) -> BuildResult:
    """Write the manifest if no source is missing, and sum up all rows, or those of this part."""
    root, source, ids = plan.root, plan.source, plan.source.ids
    unfinished = len(set(ids) - finished_sources(root))
    built = part if unfinished else ids
    rows = [row for source_id in built for row in read_rows(root, source_id)]
    made = {
        edit: [row for row in rows if (row.edit, row.status) == (edit, OK)] for edit in (SOURCE_EDIT, ORIGINAL_EDIT)
    }
    notes = {row.source_id: row.notes for row in made[SOURCE_EDIT]}
    originals = [(row.source_id, (row.sha256, row.mask_sha256), row.label) for row in made[ORIGINAL_EDIT]]
    failures: dict[str, str] = {}
    for row in rows:
        if row.status == FAILED:
            failures.setdefault(row.source_id, str(row.reason))
    if plan.settings.agreement is not None and not unfinished:
        before, (rows, facts) = rows, measured_agreement(root, rows, plan.settings.agreement, plan.settings.device)
        for source_id in {new.source_id for old, new in zip(before, rows, strict=True) if old != new}:
            write_rows(root, source_id, [row for row in rows if row.source_id == source_id])
        if facts:
            record_facts(root, agreement=facts)
    origins = origins_of({row.source_id: row.values for row in made[SOURCE_EDIT]})
    masks = mask_record(origins, len(notes))
    warnings = *source.remarks, *warning_summary(notes, origins), *exchanged_masks(source, notes)
    result = BuildResult(
        root=root,
        counts=counts([row.status for row in rows]),
        sources=len(built),
        failures=failures,
        classes=source.class_counts,
        warnings=(*warnings, *repeated_photographs(originals)),
        invalid=sum(is_invalid(row) and row.path is not None for row in rows),
        left_out=sum(is_invalid(row) and row.path is None for row in rows),
        unfinished=unfinished,
    )
    if not unfinished:
        write_manifest(root, rows)
        labels = labels_hash((row.source_id, row.label) for row in rows)
        record_facts(root, masks=masks, labels_sha256=labels)
        write_mask_sheet(root, rows, origins)
        shutil.rmtree(root / CACHE, ignore_errors=True)
    return result


@takes(BuildSettings)
def build(
    source: str | Source,
    output: str | Path,
    settings: BuildSettings,
    *,
    opened: Renderer | None = None,
    progress: Callable[[Progress], None] | None = None,
    show: Callable[[View], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> BuildResult:
    """Build a benchmark of `source` in the folder `output`; settings: a `BuildSettings`, or its fields as keywords.

    >>> import tempfile
    >>> built = build("sample", tempfile.mkdtemp() + "/bench", recipe="size-0.1", renderer="paste", limit=1)
    >>> built.counts["ok"], built.failures
    (4, {})

    The same call again resumes the build: finished sources are kept, failed ones are tried again. A call with more
    edits, runs or scenes adds them to the existing benchmark. If nothing is added, the bytes of the result depend on
    neither the interruption nor `batch_size`, `workers` and the engine. A folder that holds another benchmark is
    refused. Without a network (`renderer="paste"`) `workers` processes build whole sources. With one, `workers`
    processes prepare pictures for each device; several devices have a process each, a single one is used here. Shards
    of one build may run at the same time, and the one that finishes last writes the manifest.

    opened: an open renderer (`unswayed.rendering.open_renderer`) that has a network, so that several builds share
    one network; the settings that it was opened with must then be unset. progress: called when a source is done, and
    after every pass of a network; show: with the state of the whole run, workers included; say: with how long a
    pipeline will take without a GPU, before it begins.
    """
    if opened is not None:
        settings = replace(settings, guide=_settled(opened, settings))
    root = place_of(output).expanduser()
    scenes = source if isinstance(source, Source) else open_source(source)
    selected = scenes.select(
        settings.limit, settings.classes, sample=settings.sample, per_class=settings.per_class, seed=settings.seed
    )
    recipe = settings.recipe if isinstance(settings.recipe, Recipe) else open_recipe(settings.recipe)
    plan = Plan(root, selected, recipe, settings)
    unit = "passes" if plan.network else "scenes"
    with only_run(root, settings.shard), Monitor(root, "build", unit, show) as monitor:
        start_server(preload(SourceBuilder))
        return _Run(plan, opened, monitor, progress, say).build()


def _settled(renderer: Renderer, settings: BuildSettings) -> str:
    """Return the guide of an open renderer; refuse settings that were fixed when it was opened."""
    described = renderer.describe()
    if described["renderer"] == "paste":
        raise UserError("the open renderer has no network", allowed='BuildSettings(renderer="paste") instead')
    given = [name for name in (*RENDERER_OPTIONS, "batch_size") if getattr(settings, name) is not None]
    if not _here_possible(settings):
        given = ["engine", *given]
    if given:
        raise UserError(
            f"{', '.join(given)} cannot be set for a renderer that is already open",
            allowed="these settings in the call of open_renderer",
        )
    guide = described.get("guide")
    return "none" if guide is None else str(guide["name"])


def _here_possible(settings: BuildSettings) -> bool:
    """Whether the engine may run the network in this process."""
    return bool(ENGINES.part(settings.engine).facts.get("this_process"))
