"""Building sources through a network, in this process or in a process for each device."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from unswayed.jobs import Outcome, run_tasks
from unswayed.jobs.prefetch import prefetch
from unswayed.jobs.waiting import counting_waits
from unswayed.rendering.backgrounds import Removal
from unswayed.rendering.layers import Renderer
from unswayed.rendering.removal import find_removal

from .plan import Plan
from .prepare import Preparation, Prepared
from .render import Summary, give_up, render_stream

# A renderer gets this many batches per call: with fewer calls its batches are less often partly empty at the end.
BATCHES = 8


@runtime_checkable
class Counting(Protocol):
    """A renderer that says how many passes a picture takes and when one is done."""

    on_passes: Callable[[int], None] | None

    def passes(self, start: float) -> int: ...


class NetworkDescriber:
    """The worker that opens the renderer on a device and returns the benchmark's card, and each start's passes."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __call__(self, _: object, device: str) -> tuple[dict[str, Any], dict[float, int]]:
        plan = self.plan.on(device)
        renderer = plan.open_renderer()
        return plan.card(renderer, plan.open_removal()), {start: passes_of(renderer, start) for start in plan.starts}


class NetworkBuilder:
    """The worker that opens the renderer on its device and builds the sources that it is given there."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def stream(self, ids: Iterable[str], device: str) -> Iterator[Outcome[str, Summary]]:
        plan = self.plan.on(device)
        renderer = plan.open_renderer()
        passes: dict[str, int] = {}

        def count(prepared: Prepared | None) -> None:
            if prepared is not None:
                passes[prepared.source_id] = prepared_passes(renderer, prepared)

        for summary in through_network(plan, renderer, plan.open_removal(), ids, count):
            yield Outcome(summary.source_id, replace(summary, passes=passes.pop(summary.source_id, 0)))


def through_network(
    plan: Plan,
    renderer: Renderer,
    removal: Removal,
    ids: Iterable[str],
    on_prepared: Callable[[Prepared | None], None],
) -> Generator[Summary, None, None]:
    """Build the sources: workers prepare them in advance, and the renderer's batches mix several sources."""
    described, settings = renderer.describe(), plan.settings
    on_cpu, shares_network = described.get("device") == "cpu", "network" in find_removal(settings.removal)[0].facts
    workers = settings.workers or _preparers(on_cpu, settings.per_gpu)
    at_once = int(described.get("batch_size") or 1)
    group = at_once if at_once == 1 else BATCHES * at_once
    given_up: list[Summary] = []
    again = Preparation(plan, removal) if settings.quality == "strict" else None

    def prepared() -> Generator[Prepared, None, None]:
        # One process for itself would open the removal's network a second time and run it on one thread.
        for outcome in run_tasks(Preparation(plan, removal), ids, workers, apart=not shares_network):
            on_prepared(outcome.result)
            if outcome.result is not None:
                yield outcome.result
            else:
                given_up.append(give_up(plan, outcome.task, str(outcome.failure)))

    # If the network uses the same cores, or also removes the objects, preparing in advance would slow it down.
    count = group // (len(plan.recipe.items) * settings.runs) + 2
    with contextlib.closing(prepared() if on_cpu or shares_network else prefetch(prepared(), count)) as sources:
        for summary in render_stream(plan.root, renderer, group, counting_waits(sources), again=again):
            yield summary
            while given_up:
                yield given_up.pop()
    yield from given_up


def passes_of(renderer: Renderer, start: float) -> int:
    """How many passes of a network a picture with this start takes."""
    return renderer.passes(start) if isinstance(renderer, Counting) else 0


def prepared_passes(renderer: Renderer, prepared: Prepared) -> int:
    """How many passes of a network the pictures of a source take."""
    return sum(passes_of(renderer, layers.start) for layers in prepared.layers.values())


def _preparers(on_cpu: bool, per_gpu: int) -> int:
    """How many processes prepare pictures for a network: a few for a GPU, one for the CPU."""
    if on_cpu:
        return 1
    import torch

    return max(1, min(4, (os.cpu_count() or 1) // (max(1, torch.cuda.device_count()) * per_gpu) - 1))
