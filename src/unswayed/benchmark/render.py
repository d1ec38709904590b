"""Rendering prepared sources into finished rows: one source at a time, or in a network's batches that mix sources.

Pictures and masks are written to temporary files first; all of a source are then synced and renamed at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from unswayed.edits.recipes import Start
from unswayed.errors import UserError
from unswayed.files.storage import upload
from unswayed.files.whole import PART, explained, open_beside
from unswayed.jobs import Outcome, run_tasks
from unswayed.jobs.resources import prefetch
from unswayed.jobs.scheduling import counting_waits
from unswayed.rendering.backgrounds import Removal
from unswayed.rendering.layers import NetworkRenderer, Refused, Rendered, Renderer, mask_levels, png, written_rate
from unswayed.rendering.settings import removal_of

from .card import Card
from .measures import background_measures
from .plan import Plan
from .prepare import Preparation, Prepared, PreparedPicture, row_reason
from .quality import is_invalid, judged, left_out
from .rows import FAILED, MASKS, Row, counts, picture_path, write_rows

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
        handle = os.open(part, os.O_RDONLY)
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
class Written:
    """A row with its hashes, its temporary files, and the seconds spent on encoding, writing and judging."""

    row: Row
    files: tuple[Waiting, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)


def write_picture(root: Path, picture: PreparedPicture, answer: Rendered | Refused) -> Written:
    """Write the picture and its mask to temporary files, or put the renderer's refusal into the row.

    Its validity is measured unless the row already has it, or there is no evidence to measure it with.
    """
    row, layers, evidence = picture.row, picture.layers, picture.evidence
    assert layers is not None
    if isinstance(answer, Refused):
        return Written(replace(row, status=answer.status, reason=answer.reason))
    began = time.perf_counter()
    if evidence is not None and row.validity is None:
        row = judged(row, layers, answer, evidence)
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
        measures={**answer.measures, **({} if evidence is None else background_measures(answer.image, layers.mask))},
    )
    files = write_beside(root / str(row.path), image), write_beside(root / str(row.mask_path), mask)
    seconds = {"judge": judged_at - began, "encode": encoded_at - judged_at, "write": time.perf_counter() - encoded_at}
    return Written(row, files, seconds)


def write_file(root: Path, row: Row, data: bytes) -> Written:
    """Write unchanged bytes to a temporary file."""
    started = time.perf_counter()
    waiting = write_beside(root / str(row.path), data)
    row = replace(row, sha256=hashlib.sha256(data).hexdigest())
    return Written(row, (waiting,), {"write": time.perf_counter() - started})


@dataclass(frozen=True)
class Summary:
    """The result of one source: the number of rows of each status, the seconds of each stage, and the passes of a
    network where another process made them."""

    source_id: str
    counts: dict[str, int]
    seconds: dict[str, float]
    passes: int = 0


class SourceBuilder:
    """The function that workers call with a source's id: it makes and writes all its pictures and returns a summary."""

    def __init__(self, plan: Plan, removal: Removal | None = None) -> None:
        self.plan, self.preparation = plan, Preparation(plan, removal)

    def __call__(self, source_id: str) -> Summary:
        again = self.preparation if self.plan.settings.quality == "strict" else None
        prepared, group = [self.preparation(source_id)], self.plan.settings.batch_size or 16
        [summary] = render_stream(self.plan.root, self.renderer, group, prepared, writers=1, again=again)
        return summary

    @cached_property
    def renderer(self) -> Renderer:
        return self.plan.open_renderer()


@dataclass
class _OpenSource:
    """A source whose pictures are being rendered; written: by their numbers; waiting: how many are not yet."""

    prepared: Prepared
    written: dict[int, Future[Written]] = field(default_factory=dict)
    waiting: int = 0
    rendered: float = 0.0

    def finish(self, root: Path) -> Summary:
        """Wait for the source's files, rename them and write its row file."""
        written = {number: future.result() for number, future in self.written.items()}
        pictures = enumerate(self.prepared.pictures)
        rows = [written[number].row if number in written else picture.row for number, picture in pictures]
        started = time.perf_counter()
        settle(part for file in written.values() for part in file.files)
        write_rows(root, self.prepared.source_id, rows)
        stages = {"render": self.rendered, "write": time.perf_counter() - started}
        for stage in ("encode", "judge", "write"):
            stages[stage] = stages.get(stage, 0.0) + sum(file.seconds.get(stage, 0.0) for file in written.values())
        stages["judge"] += self.prepared.seconds.get("judge", 0.0)
        seconds = {**self.prepared.seconds, **stages}
        return Summary(self.prepared.source_id, counts(row.status for row in rows), seconds)


class _Stream:
    """Pictures that wait for the renderer, and sources whose files are being written."""

    def __init__(self, root: Path, renderer: Renderer, pool: ThreadPoolExecutor, again: Preparation | None) -> None:
        self.root, self.renderer, self.pool, self.again = root, renderer, pool, again
        self.queue: deque[tuple[_OpenSource, int]] = deque()
        self.finishing: deque[Future[Summary]] = deque()

    def add(self, prepared: Prepared) -> None:
        source = _OpenSource(prepared)
        for number, picture in enumerate(prepared.pictures):
            if picture.data is not None:
                source.written[number] = self.pool.submit(write_file, self.root, picture.row, picture.data)
            elif picture.layers is not None:
                self.queue.append((source, number))
                source.waiting += 1
        self._finish_if_complete(source)

    def render(self, count: int) -> None:
        batch = [self.queue.popleft() for _ in range(min(count, len(self.queue)))]
        pictures = [source.prepared.pictures[number] for source, number in batch]
        started = time.perf_counter()
        answers = render_safely(self.renderer, pictures)
        if self.again is not None:
            answers = rerolled(self.again, self.renderer, pictures, answers)
        share = (time.perf_counter() - started) / len(batch)
        for (source, number), picture, answer in zip(batch, pictures, answers, strict=True):
            source.written[number] = self.pool.submit(write_picture, self.root, picture, answer)
            source.waiting -= 1
            source.rendered += share
            self._finish_if_complete(source)

    def _finish_if_complete(self, source: _OpenSource) -> None:
        if not source.waiting:
            # Its pictures were submitted before this and a pool starts tasks in order, so there is no deadlock.
            self.finishing.append(self.pool.submit(source.finish, self.root))

    def finished(self, most: int) -> Iterator[Summary]:
        """The sources that are finished; waits where more than `most` are not."""
        while self.finishing and (self.finishing[0].done() or len(self.finishing) > most):
            yield self.finishing.popleft().result()


def render_stream(
    root: Path,
    renderer: Renderer,
    group: int,
    sources: Iterable[Prepared],
    writers: int = 2,
    again: Preparation | None = None,
) -> Iterator[Summary]:
    """Yield summaries as sources are finished; the renderer gets `group` pictures, of any sources, at a time.

    It runs in this thread and waits only for `sources`; PNGs are encoded and written by `writers` threads.
    again: makes invalid pictures again; None leaves them unchanged.
    """
    with ThreadPoolExecutor(writers, thread_name_prefix="write") as pool:
        stream = _Stream(root, renderer, pool, again)
        try:
            for prepared in sources:
                stream.add(prepared)
                while len(stream.queue) >= group:
                    stream.render(group)
                yield from stream.finished(most=4 * group)
            while stream.queue:
                stream.render(group)
            yield from stream.finished(most=0)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def render_safely(renderer: Renderer, pictures: Sequence[PreparedPicture]) -> list[Rendered | Refused]:
    """Return the renderer's results; if a batch fails, its pictures are tried one by one and bad ones marked failed.

    A user's mistake (no memory for a single picture, a broken network) ends the run instead.
    """
    try:
        return renderer.render([picture.layers for picture in pictures if picture.layers is not None])
    except UserError:
        raise
    except Exception as error:
        if len(pictures) > 1:
            return [answer for picture in pictures for answer in render_safely(renderer, [picture])]
        return [Refused(row_reason(error), status=FAILED)]


def rerolled(
    preparation: Preparation,
    renderer: Renderer,
    pictures: Sequence[PreparedPicture],
    answers: Sequence[Rendered | Refused],
) -> list[Rendered | Refused]:
    """The answers, each invalid picture made again with its next seeds; what stays invalid is refused with its reasons.

    The pictures become those of the last try.
    """
    answers, tries = list(answers), preparation.plan.settings.tries
    waiting, attempt = list(range(len(answers))), 0
    while True:
        invalid = []
        for number in waiting:
            picture, answer = pictures[number], answers[number]
            if isinstance(answer, Rendered) and picture.layers is not None and picture.evidence is not None:
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
        made = render_safely(renderer, [pictures[number] for number in waiting])
        for number, answer in zip(waiting, made, strict=True):
            answers[number] = answer


def give_up(plan: Plan, source_id: str, reason: str) -> Summary:
    """Write the rows of a source whose worker died or failed, all failed with that reason."""
    rows = plan.unmade(source_id, FAILED, reason)
    write_rows(plan.root, source_id, rows)
    return Summary(source_id, counts(row.status for row in rows), {})


# A renderer gets this many batches per call: with fewer calls its batches are less often partly empty at the end.
BATCHES = 8


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
        passes: dict[str, int] = {}
        for summary in through_network(plan, renderer, removal_of(plan.settings), ids, passes.__setitem__):
            yield Outcome(summary.source_id, replace(summary, passes=passes.pop(summary.source_id)))


def through_network(
    plan: Plan,
    renderer: Renderer,
    removal: Removal,
    ids: Iterable[str],
    on_prepared: Callable[[str, int], None],
) -> Generator[Summary, None, None]:
    """Build the sources: workers prepare them in advance, and the renderer's batches mix several sources.

    on_prepared: called with a source and the passes of the network that its pictures take.
    """
    described, settings = renderer.describe(), plan.settings
    on_cpu = described.get("device") == "cpu"
    workers = settings.workers or _preparers(on_cpu, settings.per_gpu)
    at_once = int(described.get("batch_size") or 1)
    group = at_once if at_once == 1 else BATCHES * at_once
    given_up: list[Summary] = []
    again = Preparation(plan, removal) if settings.quality == "strict" else None

    def prepared() -> Generator[Prepared, None, None]:
        # In processes of their own, so that a picture that crashes its decoder costs only itself.
        for outcome in run_tasks(Preparation(plan, removal), ids, workers, apart=True):
            pictures = () if outcome.result is None else outcome.result.pictures
            layers = [picture.layers for picture in pictures if picture.layers is not None]
            starts = [(each.start, each.needs_network is not None) for each in layers]
            on_prepared(outcome.task, sum(passes_of(renderer, start) for start in starts))
            if outcome.result is not None:
                yield outcome.result
            else:
                given_up.append(give_up(plan, outcome.task, str(outcome.failure)))

    # If the network uses the same cores, preparing in advance would slow it down.
    count = group // (len(plan.recipe.items) * settings.runs) + 2
    with contextlib.closing(prepared() if on_cpu else prefetch(prepared(), count)) as sources:
        for summary in render_stream(plan.root, renderer, group, counting_waits(sources), again=again):
            yield summary
            while given_up:
                yield given_up.pop()
    yield from given_up


def passes_of(renderer: Renderer, start: Start) -> int:
    """How many passes of a network a picture with this start takes."""
    return renderer.passes(*start) if isinstance(renderer, NetworkRenderer) else 0


def _preparers(on_cpu: bool, per_gpu: int) -> int:
    """How many processes prepare pictures for a network: a few for a GPU, one for the CPU."""
    if on_cpu:
        return 1
    import torch

    return max(1, min(4, (os.cpu_count() or 1) // (max(1, torch.cuda.device_count()) * per_gpu) - 1))
