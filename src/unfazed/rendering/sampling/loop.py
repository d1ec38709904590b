"""The blended loop of ImageNet-E's algorithms 1 and 2, for pictures that each have their own levels.

A batch is a row of slots. Each slot holds one picture at its own noise level; when a picture is done the next takes its
slot, so every pass of the network is full whatever mixture of starts is asked for, and its shape never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unfazed.rendering.networks.network import Network

from . import guidance as guiding
from .denoise import step_deviation
from .noise import as_seeds, normal
from .prediction import predicted_start
from .samplers import Sampler
from .schedule import Schedule


@dataclass(frozen=True, eq=False)
class Job:
    """One picture to be blended, at size S.

    first: (3, S, S) float32 in [−1, 1], what is noised to begin with; object: the same of what is kept; mask: (1, S, S)
    float32, 1 = kept; timesteps: (K,), `samplers.visited` of start and steps; seed: of this picture alone; kind: of
    guidance, or None; strength: λ or scale; band; label: the true class or None.
    """

    first: Tensor
    object: Tensor
    mask: Tensor
    timesteps: np.ndarray
    start: float
    steps: int
    seed: int
    kind: str | None = None
    strength: float = 0.0
    band: str = "all"
    label: int | None = None


@dataclass(frozen=True, eq=False)
class Settings:
    """How jobs are denoised; guide: pictures in [0, 1] -> logits; exact: the network uncompiled, for gradients."""

    sampler: Sampler
    through_network: bool = False
    guide: guiding.Guide | None = None
    exact: Network | None = None
    watch: Callable[[Sequence[int], Sequence[int], Tensor, Tensor], None] | None = None


# Draws of noise: 0 begins a picture; then one a step for the sampler and one for the object.
_FIRST, _STEP, _OBJECT = 0, 1, 2
_COLUMNS = (
    "time", "left", "keep", "toward", "memory", "noise", "push", "low", "high", "object_left"
)  # fmt: skip


def levels_table(job: Job, network: Network, settings: Settings) -> np.ndarray:
    """(K, 10) float64: for each pass of one picture its network time, its ᾱ and the sampler's numbers (_COLUMNS)."""
    full = Schedule.respaced(1000, network.beta_schedule)
    left = full.alphas_cumprod[job.timesteps]
    steps = settings.sampler.steps(left)
    scale = 0.0
    if settings.through_network:
        scale = 1.0  # the released code's range loss is on whether an edit is guided or not
    elif job.kind is not None:
        scale = guiding.calibration(job.kind, job.start, job.steps, settings.sampler.name, network.beta_schedule)
    table = np.zeros((len(left), len(_COLUMNS)))
    table[:, 0], table[:, 1] = full.network_times[job.timesteps], left
    # The released code blends the object at the level that is left behind, ours at the one arrived at.
    object_left = left[:-1] if settings.through_network else left[1:]
    numbers = (
        steps.keep,
        steps.toward,
        steps.memory,
        steps.noise,
        scale * steps.push,
        steps.low,
        steps.high,
        object_left,
    )
    table[:-1, 2:] = np.stack(numbers, axis=1)
    return table


@torch.no_grad()
def denoise_all(network: Network, jobs: Sequence[Job], slots: int, settings: Settings) -> Iterator[tuple[int, Tensor]]:
    """(position in `jobs`, last x̂0 (3, S, S) float32, not clipped) of each picture as it is done.

    Longest first, so that what drains the slots at the end is short. Empty slots carry a copy along.
    """
    waiting = sorted(range(len(jobs)), key=lambda i: (-len(jobs[i].timesteps), str(jobs[i].kind), i))[::-1]
    tables = {i: levels_table(jobs[i], network, settings) for i in waiting}
    state = _State(slots, jobs[0].first.shape[-1], network.device)
    while waiting or state.busy:
        while waiting and (free := state.free_slot()) is not None:
            job = waiting.pop()
            state.enter(free, job, jobs[job], tables[job][0, 1])
        numbers = state.numbers(tables)
        start, spread = _predict(network, state, numbers)
        done = state.finished(tables)
        if settings.watch is not None:
            settings.watch([state.job[s] for s in state.busy], [state.step[s] for s in state.busy], state.x, start)
        for slot in done:
            yield state.job[slot], start[slot].clone()
        if len(done) < len(state.busy):
            _advance(network, state, numbers, start, spread, jobs, settings)
        state.leave(done)


class _State:
    """The slots: tensors on the device, and which job stands at which step in each."""

    def __init__(self, slots: int, size: int, device: torch.device) -> None:
        shape = (slots, 3, size, size)
        self.device = device
        self.x = torch.zeros(shape, device=device)
        self.previous = torch.zeros(shape, device=device)
        self.object = torch.zeros(shape, device=device)
        self.mask = torch.zeros((slots, 1, size, size), device=device)
        self.seeds = torch.zeros(slots, dtype=torch.int64, device=device)
        self.labels = torch.zeros(slots, dtype=torch.int64, device=device)
        self.job = [-1] * slots
        self.step = [0] * slots

    @property
    def busy(self) -> list[int]:
        return [slot for slot, job in enumerate(self.job) if job >= 0]

    def free_slot(self) -> int | None:
        return next((slot for slot, job in enumerate(self.job) if job < 0), None)

    def enter(self, slot: int, position: int, job: Job, left: float) -> None:
        self.job[slot], self.step[slot] = position, 0
        self.seeds[slot] = self.upload(as_seeds([job.seed])[0], torch.int64)
        self.labels[slot] = 0 if job.label is None else job.label
        self.object[slot] = self.upload(job.object, torch.float32)
        self.mask[slot] = self.upload(job.mask, torch.float32)
        self.previous[slot] = 0
        first = normal(self.seeds[slot : slot + 1], _FIRST, self.x.shape[1:])[0]
        self.x[slot] = np.sqrt(left) * self.upload(job.first, torch.float32) + np.sqrt(1 - left) * first

    def numbers(self, tables: dict[int, np.ndarray]) -> dict[str, Tensor]:
        """The current row of every slot's table as columns (slots, 1, 1, 1) float32; empty slots repeat a busy one."""
        spare = self.busy[0]
        rows = [tables[self.job[s]][self.step[s]] if self.job[s] >= 0 else tables[self.job[spare]][self.step[spare]]
                for s in range(len(self.job))]  # fmt: skip
        columns = self.upload(np.stack(rows, axis=1), torch.float32)
        return {name: column.view(-1, 1, 1, 1) for name, column in zip(_COLUMNS, columns, strict=True)}

    def upload(self, values: Sequence[Any] | np.ndarray | Tensor, dtype: torch.dtype) -> Tensor:
        """Numbers on the device, not waited for: a blocking copy a step would let a GPU run dry between passes."""
        here = torch.as_tensor(values, dtype=dtype)
        if self.device.type == "cuda":
            here = here.pin_memory()
        return here.to(self.device, non_blocking=True)

    def finished(self, tables: dict[int, np.ndarray]) -> list[int]:
        return [slot for slot in self.busy if self.step[slot] == len(tables[self.job[slot]]) - 1]

    def draw(self, purpose: int) -> Tensor:
        """Noise (slots, 3, S, S) for this step of every slot."""
        draws = self.upload([2 * step + purpose for step in self.step], torch.int64)
        return normal(self.seeds, draws if purpose else 0, self.x.shape[1:])

    def leave(self, done: Sequence[int]) -> None:
        for slot in self.busy:
            self.step[slot] += 1
        for slot in done:
            self.job[slot], self.step[slot] = -1, 0


def _predict(network: Network, state: _State, numbers: dict[str, Tensor]) -> tuple[Tensor, Tensor | None]:
    """x̂0, and the second half of the output where there is one."""
    labels = None if network.classes is None else state.labels
    raw = network(state.x, numbers["time"].flatten(), labels)
    start = predicted_start(raw[:, :3], state.x, numbers["left"], network.prediction_type)
    return start, network.spread(raw)


def _advance(
    network: Network,
    state: _State,
    numbers: dict[str, Tensor],
    start: Tensor,
    spread: Tensor | None,
    jobs: Sequence[Job],
    settings: Settings,
) -> None:
    """Every slot one step on: guided, stepped, and the object blended in at the new level."""
    # Second-order samplers follow the drift closely enough that a learned variance would count it twice.
    deviation, ratio = step_deviation(network, numbers, spread if settings.sampler.by_variance else None)
    push = _push(network, state, numbers, start, jobs, settings)
    towards = start + numbers["memory"] * (start - state.previous)
    if push is not None:
        # Algorithm 1's mean + λ·Σ·∇ is x̂0 moved by λ·Σ/toward·∇: the table holds it for the posterior's variance.
        moved = numbers["push"] * push
        if ratio is not None:
            moved = ratio * moved
        towards = towards + moved * (1 - state.mask)
    x = numbers["keep"] * state.x + numbers["toward"] * towards
    if settings.sampler.stochastic:
        x = x + deviation * state.draw(_STEP)
        kept = state.draw(_OBJECT)
    else:
        kept = state.draw(_FIRST)
    left = numbers["object_left"]
    state.x = torch.lerp(x, left.sqrt() * state.object + (1 - left).sqrt() * kept, state.mask)
    state.previous = start


def _push(
    network: Network,
    state: _State,
    numbers: dict[str, Tensor],
    start: Tensor,
    jobs: Sequence[Job],
    settings: Settings,
) -> Tensor | None:
    """Strength × ∇ for every slot, (slots, 3, S, S), or None where no slot is guided."""
    current = [jobs[job] if job >= 0 else None for job in state.job]
    total: Tensor | None = None
    if settings.through_network:
        total = _through(settings.exact or network, state, numbers, current)
    else:
        for band in guiding.BANDS:
            chosen = [job.strength if job and job.kind == "complexity" and job.band == band else 0.0 for job in current]
            if any(chosen):
                found = guiding.complexity(state.upload(chosen, torch.float32), band)(start)
                total = found if total is None else total + found
    attacked = [s for s, job in enumerate(current) if job and job.kind == "adversarial"]
    if attacked:
        assert settings.guide is not None
        seen = _padded(attacked, state)
        rows = state.upload(seen, torch.int64)
        scale = state.upload([current[s].strength for s in seen], torch.float32)  # type: ignore[union-attr]
        limit = None if settings.through_network else guiding.LIMIT
        found = guiding.adversarial(settings.guide, state.labels[rows], scale, limit)(start[rows])
        total = torch.zeros_like(start) if total is None else total
        total = total.index_add(0, rows[: len(attacked)], found[: len(attacked)])
    return total


def _padded(slots: list[int], state: _State) -> list[int]:
    """As many slots as the next power of two, the last one repeated: every new shape costs a GPU a search for kernels.

    A CPU would only compute more.
    """
    if state.device.type != "cuda":
        return slots
    return slots + slots[-1:] * ((1 << (len(slots) - 1).bit_length()) - len(slots))


def _through(network: Network, state: _State, numbers: dict[str, Tensor], current: Sequence[Job | None]) -> Tensor:
    strength = torch.tensor(
        [job.strength if job and job.kind == "complexity" else 0.0 for job in current], device=state.device
    )
    bands = [job.band if job else "all" for job in current]
    labels = None if network.classes is None else state.labels

    def denoise(x: Tensor) -> Tensor:
        raw = network(x, numbers["time"].flatten(), labels)
        return predicted_start(raw[:, :3], x, numbers["left"], network.prediction_type)

    return guiding.through_network(denoise, state.x, strength, bands)
