"""Making the pictures and rows of one source in a worker; a network renders in a process for many of them.

Pictures and masks are written to temporary files first; all of a source are then synced and renamed at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from unswayed.edits.recipes import Start
from unswayed.files.storage import upload
from unswayed.files.whole import PART, explained, open_beside
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

# A temporary file, and the path next to it that it gets when it is settled.
Waiting = tuple[Path, Path]


def write_beside(path: Path, data: bytes) -> Waiting:
    """Write `data` to a temporary file next to `path`, without a sync, so this is quick and may run in any thread."""
    with explained(path):
        part, file = open_beside(path)
        try:
            with file:
                file.write(data)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise
    return part, path


def settle(files: Iterable[Waiting]) -> None:
    """Sync every file to the disk, upload it if its path lies in a working copy, then rename every file to its path.

    The files are synced in parallel because the file system then writes them together, in a tenth of the time. Files
    that refer to these are written (and synced) after this returns.
    """
    waiting = list(files)
    if not waiting:
        return
    with ThreadPoolExecutor(min(8, len(waiting)), thread_name_prefix="settle") as pool:
        list(pool.map(_sync, waiting))
    for part, path in waiting:
        with explained(path):
            os.replace(part, path)


def _sync(file: Waiting) -> None:
    part, path = file
    with explained(path):
        handle = os.open(part, os.O_RDWR)  # Windows flushes no file that is only read
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        upload(part, path)


def sweep(root: Path, ids: Collection[str] | None = None) -> None:
    """Remove the temporary files that a killed run left; ids: only those of these sources."""
    for part in root.rglob(f".*{PART}"):
        # Its name begins with a dot and the id of its source, which may have dots itself.
        words = part.name[1:].split(".")
        if ids is None or any(".".join(words[:count]) in ids for count in range(1, len(words))):
            with contextlib.suppress(OSError):
                part.unlink()


@dataclass(frozen=True)
class FinishedRow:
    """A row with its hashes, its temporary files, and the seconds spent on encoding, writing and judging."""

    row: Row
    files: tuple[Waiting, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)


def write(root: Path, picture: PreparedPicture, answer: Rendering | Refusal | None) -> FinishedRow:
    """Write the picture and its mask, or the bytes of its file, to temporary files, or put a refusal into the row.

    Its validity is measured unless the row already has it, or there is no evidence to measure it with.
    """
    row, layers, evidence = picture.row, picture.layers, picture.evidence
    if isinstance(answer, Refusal):
        return FinishedRow(replace(row, status=answer.status, reason=answer.reason))
    began = time.perf_counter()
    if picture.data is not None:
        row = replace(row, sha256=hashlib.sha256(picture.data).hexdigest())
        file = write_beside(root / str(row.path), picture.data)
        return FinishedRow(row, (file,), {"write": time.perf_counter() - began})
    if answer is None or layers is None:
        return FinishedRow(row)
    if evidence is not None:
        if row.validity is None:
            row = judged(row, layers, answer, evidence)
        row = replace(row, measures={**answer.measures, **background_measures(answer.image, layers.mask)})
    else:
        row = replace(row, measures=dict(answer.measures))
    judged_at = time.perf_counter()
    levels = mask_levels(layers.mask)
    image, mask = png(answer.image), png(levels)
    encoded_at = time.perf_counter()
    row = replace(
        row,
        path=picture_path(row.edit, row.source_id, row.run),
        sha256=hashlib.sha256(image).hexdigest(),
        mask_path=picture_path(row.edit, row.source_id, row.run, folder=MASKS),
        mask_sha256=hashlib.sha256(mask).hexdigest(),
        pixel_rate=written_rate(levels),
    )
    files = write_beside(root / str(row.path), image), write_beside(root / str(row.mask_path), mask)
    seconds = {"judge": judged_at - began, "encode": encoded_at - judged_at, "write": time.perf_counter() - encoded_at}
    return FinishedRow(row, files, seconds)


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
        self,
        plan: Plan,
        removal: Removal | None = None,
        service: Address | None = None,
        opened: Renderer | None = None,
    ) -> None:
        self.plan, self.removal, self.service, self.opened = plan, removal, service, opened

    def __getstate__(self) -> dict[str, object]:
        # Another process loads its own removal.
        return {"plan": self.plan, "removal": None, "service": self.service, "opened": None}

    def __call__(self, source_id: str) -> Summary:
        began, root = time.process_time(), self.plan.root
        prepared = self.preparation(source_id)
        pictures = [picture for picture in prepared.pictures if picture.layers is not None]
        started = time.perf_counter()
        answers = render_safely(self.renderer, [picture.layers for picture in pictures if picture.layers is not None])
        if self.plan.settings.quality == "strict":
            answers = rerolled(self.preparation, self.renderer, pictures, answers)
        rendered = time.perf_counter() - started
        answered = {id(picture): answer for picture, answer in zip(pictures, answers, strict=True)}
        written = [write(root, picture, answered.get(id(picture))) for picture in prepared.pictures]
        started = time.perf_counter()
        settle(part for each in written for part in each.files)
        rows = [each.row for each in written]
        write_rows(root, source_id, rows)
        seconds: defaultdict[str, float] = defaultdict(float, prepared.seconds)
        for spent in (
            *(each.seconds for each in written),
            {"render": rendered, "write": time.perf_counter() - started},
        ):
            for stage in spent:
                seconds[stage] += spent[stage]
        passes = sum(int(row.measures.get("passes", 0)) for row in rows)
        cpu = time.process_time() - began
        return Summary(source_id, counts(row.status for row in rows), dict(seconds), passes, cpu)

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


def rerolled(
    preparation: Preparation,
    renderer: Renderer,
    pictures: Sequence[PreparedPicture],
    answers: Sequence[Rendering | Refusal],
) -> list[Rendering | Refusal]:
    """The answers, each invalid picture made again with its next seeds; what stays invalid is refused with its reasons.

    The pictures become those of the last try.
    """
    answers, tries = list(answers), preparation.plan.settings.tries
    waiting, attempt = list(range(len(answers))), 0
    while True:
        invalid = []
        for number in waiting:
            picture, answer = pictures[number], answers[number]
            if isinstance(answer, Rendering) and picture.layers is not None and picture.evidence is not None:
                picture.row = judged(picture.row, picture.layers, answer, picture.evidence)
                if is_invalid(picture.row):
                    answers[number] = left_out(picture.row, attempt)
                    invalid.append(number)
        if attempt == tries:
            return answers
        attempt += 1
        waiting = [number for number in invalid if preparation.again(pictures[number], attempt)]
        if not waiting:
            return answers
        layers = [again for number in waiting if (again := pictures[number].layers) is not None]
        for number, answer in zip(waiting, render_safely(renderer, layers), strict=True):
            answers[number] = answer


def give_up(plan: Plan, source_id: str, reason: str) -> Summary:
    """Write the rows of a source whose worker died or failed, all failed with that reason."""
    rows = plan.unmade(source_id, FAILED, reason)
    write_rows(plan.root, source_id, rows)
    return Summary(source_id, counts(row.status for row in rows))


def describe_network(plan: Plan, device: str) -> tuple[Card, dict[Start, int]]:
    """Open the renderer on a device and return the benchmark's card, and each start's passes."""
    plan = plan.on(device)
    renderer = plan.open_renderer()
    starts = plan.recipe.starts().values()
    return plan.card(renderer, removal_of(plan.settings)), {start: passes_of(renderer, start) for start in starts}


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
    plan: Plan,
    renderer: Renderer,
    removal: Removal,
    ids: Iterable[str],
    on_passes: Callable[[int], None] | None = None,
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


def passes_of(renderer: Renderer, start: Start) -> int:
    """How many passes of a network a picture with this start takes."""
    return renderer.passes(*start) if isinstance(renderer, NetworkRenderer) else 0


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
