"""Making the pictures and rows of one source in a worker; a network renders in a process for many of them.

Each picture and mask appears whole; the rows of a source, which name them, are written last.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from unswayed.edits.recipes import Start
from unswayed.files.whole import PART, write_bytes
from unswayed.jobs import Outcome, run_tasks
from unswayed.rendering.layers import (
    CountedRenderer,
    NetworkRenderer,
    Refusal,
    Removal,
    Renderer,
    Rendering,
    mask_levels,
    png,
    written_rate,
)
from unswayed.rendering.settings import removal_of

from .plan import Plan
from .prepare import Preparation, PreparedPicture
from .quality import background_measures, is_invalid, judged, left_out
from .rows import FAILED, MASKS, Card, Row, counts, picture_path, write_rows
from .serving import Address, Client, Service, render_safely

File = tuple[Path, bytes]
Timed = Callable[[str], AbstractContextManager[None]]


def sweep(root: Path, ids: Collection[str] | None = None) -> None:
    """Remove the temporary files that a killed run left; ids: only those of these sources."""
    for part in root.rglob(f".*{PART}"):
        # Its name begins with a dot and the id of its source, which may have dots itself.
        words = part.name[1:].split(".")
        if ids is None or any(".".join(words[:count]) in ids for count in range(1, len(words))):
            with contextlib.suppress(OSError):
                part.unlink()


def finished(
    root: Path, picture: PreparedPicture, answer: Rendering | Refusal | None, timed: Timed
) -> tuple[Row, tuple[File, ...]]:
    """The row with its hashes, and the files of the picture and its mask, or a copy of the source's; a refusal is put
    into the row.

    Its validity is measured unless the row already has it, or there is no evidence to measure it with.
    """
    row, layers, evidence = picture.row, picture.layers, picture.evidence
    if isinstance(answer, Refusal):
        return replace(row, status=answer.status, reason=answer.reason), ()
    if picture.data is not None:
        row = replace(row, sha256=hashlib.sha256(picture.data).hexdigest())
        return row, ((root / str(row.path), picture.data),)
    if answer is None or layers is None:
        return row, ()
    with timed("judge"):
        if evidence is not None and row.validity is None:
            row = judged(row, layers, answer, evidence)
        background = {} if evidence is None else background_measures(answer.image, layers.mask)
        row = replace(row, measures={**answer.measures, **background})
    with timed("encode"):
        levels = mask_levels(layers.mask)
        image, mask = png(answer.image), png(levels)
    row = replace(
        row,
        path=picture_path(row.edit, row.source_id, row.run),
        sha256=hashlib.sha256(image).hexdigest(),
        mask_path=picture_path(row.edit, row.source_id, row.run, folder=MASKS),
        mask_sha256=hashlib.sha256(mask).hexdigest(),
        pixel_rate=written_rate(levels),
    )
    return row, ((root / str(row.path), image), (root / str(row.mask_path), mask))


@dataclass(frozen=True)
class Summary:
    """The result of one source: the number of rows of each status, the seconds of each stage, the passes of a network,
    and the CPU seconds of the process that prepared and wrote its pictures."""

    source_id: str
    counts: dict[str, int]
    seconds: dict[str, float] = field(default_factory=dict)
    passes: int = 0
    cpu: float = 0.0


class SourceBuilder:
    """The function that workers call with a source's id: it makes and writes all its pictures and returns a summary.

    removal: the plan's, if it is already loaded and this process uses it; service: what renders in another process;
    opened: the renderer, if it is already open in this one.
    """

    imports = ("cv2", "unswayed.benchmark.warm")  # before the first task; the network is elsewhere

    def __init__(
        self, plan: Plan, removal: Removal | None = None, service: Address | None = None, opened: Renderer | None = None
    ) -> None:
        self.plan, self.removal, self.service, self.opened = plan, removal, service, opened

    def __getstate__(self) -> dict[str, object]:
        # Another process loads its own removal.
        return {"plan": self.plan, "removal": None, "service": self.service, "opened": None}

    def __call__(self, source_id: str) -> Summary:
        began, preparation = time.process_time(), self.preparation
        prepared, timed = preparation(source_id), preparation.timed
        pictures = [picture for picture in prepared if picture.layers is not None]
        with timed("render"):
            answers = render_safely(
                self.renderer, [picture.layers for picture in pictures if picture.layers is not None]
            )
        if self.plan.settings.quality == "strict":
            answers = self._rerolled(pictures, answers)
        answered = {id(picture): answer for picture, answer in zip(pictures, answers, strict=True)}
        made = [finished(self.plan.root, picture, answered.get(id(picture)), timed) for picture in prepared]
        rows, files = [row for row, _ in made], [file for _, files in made for file in files]
        with timed("write"):
            # In parallel, because the file system then syncs them together, in a tenth of the time.
            with ThreadPoolExecutor(8, thread_name_prefix="write") as pool:
                list(pool.map(lambda file: write_bytes(*file), files))
            write_rows(self.plan.root, source_id, rows)
        passes = sum(int(row.measures.get("passes", 0)) for row in rows)
        statuses, seconds = counts(row.status for row in rows), dict(preparation.seconds)
        return Summary(source_id, statuses, seconds, passes, time.process_time() - began)

    def _rerolled(
        self, pictures: Sequence[PreparedPicture], answers: list[Rendering | Refusal]
    ) -> list[Rendering | Refusal]:
        """The answers, each invalid picture made again with its next seeds; what stays invalid is refused with its
        reasons. The pictures become those of the last try."""
        waiting, tries, timed = list(range(len(answers))), self.plan.settings.tries, self.preparation.timed
        for attempt in range(tries + 1):
            invalid = []
            for number in waiting:
                picture, answer = pictures[number], answers[number]
                if isinstance(answer, Rendering) and picture.layers is not None and picture.evidence is not None:
                    with timed("judge"):
                        picture.row = judged(picture.row, picture.layers, answer, picture.evidence)
                    if is_invalid(picture.row):
                        answers[number] = left_out(picture.row, attempt)
                        invalid.append(number)
            again = self.preparation.again
            waiting = [number for number in invalid if attempt < tries and again(pictures[number], attempt + 1)]
            if not waiting:
                break
            layers = [made for number in waiting if (made := pictures[number].layers) is not None]
            with timed("render"):
                for number, answer in zip(waiting, render_safely(self.renderer, layers), strict=True):
                    answers[number] = answer
        return answers

    @cached_property
    def renderer(self) -> Renderer:
        if self.service is None:
            return self.opened or self.plan.open_renderer()
        os.nice(BEHIND)  # the process that feeds the GPU comes first
        return Client(self.service)

    @cached_property
    def preparation(self) -> Preparation:
        remote = self.service is not None and self.service.removal is not None
        return Preparation(self.plan, self.renderer if remote else self.removal)  # type: ignore[arg-type]


def give_up(plan: Plan, source_id: str, reason: str) -> Summary:
    """Write the rows of a source whose worker died or failed, all failed with that reason."""
    rows = plan.unmade(source_id, FAILED, reason)
    write_rows(plan.root, source_id, rows)
    return Summary(source_id, counts(row.status for row in rows))


Described = tuple[Card, dict[Start, int]]


def described(plan: Plan, renderer: Renderer, removal: Removal) -> Described:
    """The benchmark's card, and how many passes of a network a picture takes by its start."""
    starts = plan.recipe.starts.values()
    passes = {start: renderer.passes(*start) if isinstance(renderer, NetworkRenderer) else 0 for start in starts}
    return plan.card(renderer, removal), passes


def describe_network(plan: Plan, device: str) -> Described:
    """The same of the renderer that this process opens on a device."""
    plan = plan.on(device)
    return described(plan, plan.open_renderer(), removal_of(plan.settings))


class NetworkBuilder:
    """The worker that opens the renderer on its device and builds the sources that it is given there."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def stream(self, ids: Iterable[str], device: str) -> Iterator[Outcome[str, Summary]]:
        plan = self.plan.on(device)
        renderer = plan.open_renderer()
        for summary in through_network(plan, renderer, removal_of(plan.settings), ids):
            yield Outcome(summary.source_id, summary)


def through_network(
    plan: Plan, renderer: Renderer, removal: Removal, ids: Iterable[str], on_passes: Callable[[int], None] | None = None
) -> Generator[Summary, None, None]:
    """Build the sources: worker processes prepare and write them, this one renders their pictures in mixed batches.

    Where processes cannot share memory by a socket, which is on Windows, this one does everything.
    on_passes: called after every pass of the network with the number of pictures in it.
    """
    if not hasattr(socket, "AF_UNIX"):
        if on_passes is not None and isinstance(renderer, NetworkRenderer):
            renderer = CountedRenderer(renderer, on_passes)
        yield from map(SourceBuilder(plan, removal, opened=renderer), ids)
        return
    on_cpu = renderer.describe().get("device") == "cpu"
    workers = plan.settings.workers or _workers(on_cpu, plan.settings.per_gpu)
    with Service(renderer, removal, on_passes) as service:
        # In processes of their own, so that a picture that crashes its decoder costs only itself.
        outcomes = run_tasks(SourceBuilder(plan, service=service.address), ids, workers, apart=True)
        for outcome in service.run(outcomes):
            yield outcome.result or give_up(plan, outcome.task, str(outcome.failure))


# How much later than the process with the network its workers get a core.
BEHIND = 10
# Workers for each core of a GPU: while some wait for their pictures, others prepare and write theirs.
FOR_A_CORE, MOST = 3, 64


def _workers(on_cpu: bool, per_gpu: int) -> int:
    """How many processes prepare and write pictures for a network: two for the CPU, since it does both."""
    if on_cpu:
        return 2
    import torch

    share = (os.cpu_count() or 1) / (max(1, torch.cuda.device_count()) * per_gpu)
    return max(2, min(MOST, round(FOR_A_CORE * share)))
