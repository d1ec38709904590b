"""The blended loop of ImageNet-E's algorithms 1 and 2, for pictures that each have their own noise levels.

A batch has a fixed number of slots. Each slot holds one picture at its own noise level; when a picture is done, the
next one takes its slot, so every pass of the network is full for any mixture of starts, and its shape never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unswayed.choices import GuidanceName

from ..networks import Network
from . import Schedule, as_seeds, normal, predicted_x0, step_sigma
from . import guidance as guiding
from .samplers import Sampler


@dataclass(frozen=True, eq=False)
class Job:
    """One picture to be blended, at size S.

    first: (3, S, S) float32 in [−1, 1], the picture that noise is added to; object: the pixels to keep, the same shape;
    mask: (1, S, S) float32, 1 = kept; timesteps: (K,), `samplers.visited` of start and steps; seed: of this picture
    alone; kind: of guidance, or None; strength: λ or scale; band; label: the true class or None; rising: (R,), the
    last levels of `timesteps` but the first, from the cleanest up, visited before: at each of them the network sees the
    picture with its noise, and what its x̂0 lacks there is added to x̂0 on the way down. So an unguided picture comes
    back as it was down to the cleanest of these levels, and a guided one changes only by what the guidance does.
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
    rising: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, eq=False)
class Settings:
    """How jobs are denoised; guide: pictures in [0, 1] -> logits; exact: the uncompiled network, for gradients.

    guidance: `calibrated`; `paper`, with λ as it is and nothing capped; `released`, also through the network.
    """

    sampler: Sampler
    guidance: GuidanceName = "calibrated"
    guide: guiding.Guide | None = None
    exact: Network | None = None
    watch: Callable[[Sequence[int], Sequence[int], Tensor, Tensor], None] | None = None


# Numbers of the noise draws: 0 for the first x_t; then, per step, one for the sampler and one for the object.
_FIRST, _STEP, _OBJECT = 0, 1, 2
_COLUMNS = (
    "timestep", "alpha_bar", "keep", "toward", "memory", "sigma", "push", "low", "high", "object_alpha_bar"
)  # fmt: skip


def levels_table(job: Job, network: Network, settings: Settings) -> np.ndarray:
    """(K, 10) float64: for each pass of one picture its timestep, its ᾱ and the sampler's numbers (_COLUMNS)."""
    alpha_bar = Schedule.respaced(1000, network.beta_schedule).alpha_bar[job.timesteps]
    steps = settings.sampler.steps(alpha_bar)
    published, scale = settings.guidance != "calibrated", 0.0
    if published:
        scale = 1.0  # even where an edit is not guided, since the released code's range loss is always on
    elif job.kind is not None:
        scale = guiding.calibration(job.kind, job.start, job.steps, settings.sampler.name, network.beta_schedule)
    table = np.zeros((len(alpha_bar), len(_COLUMNS)))
    table[:, 0], table[:, 1] = job.timesteps, alpha_bar
    # Paper and released code blend the object at the level of this step, ours at the level of the next.
    object_alpha_bar = alpha_bar[:-1] if published else alpha_bar[1:]
    numbers = [getattr(steps, name) for name in _COLUMNS[2:-1]]
    table[:-1, 2:] = np.stack([*numbers, object_alpha_bar], axis=1)
    table[:, _COLUMNS.index("push")] *= scale
    if len(job.rising) == 0:
        return table
    levels = Schedule.respaced(1000, network.beta_schedule).alpha_bar[[*job.rising, job.timesteps[0]]]
    keep = np.sqrt((1 - levels[1:]) / (1 - levels[:-1]))
    rise = np.zeros((len(job.rising), len(_COLUMNS)))
    rise[:, 0], rise[:, 1], rise[:, 9] = job.rising, levels[:-1], levels[1:]
    rise[:, 2], rise[:, 3] = keep, np.sqrt(levels[1:]) - keep * np.sqrt(levels[:-1])
    return np.concatenate([rise, table])


@torch.no_grad()
def denoise_all(network: Network, jobs: Sequence[Job], slots: int, settings: Settings) -> Iterator[tuple[int, Tensor]]:
    """(position in `jobs`, last x̂0 (3, S, S) float32, not clipped) of each picture when it is done.

    The longest jobs run first, so that few slots are empty at the end. Empty slots repeat a busy slot's numbers.
    """
    waiting = sorted(
        range(len(jobs)), key=lambda i: (-len(jobs[i].timesteps) - len(jobs[i].rising), str(jobs[i].kind), i)
    )[::-1]
    tables = {i: levels_table(jobs[i], network, settings) for i in waiting}
    state = _State(slots, jobs[0].first.shape[-1], network.device, max(len(job.rising) for job in jobs))
    while waiting or state.busy:
        for free in [slot for slot, job in enumerate(state.job) if job < 0][: len(waiting)]:
            job = waiting.pop()
            state.enter(free, job, jobs[job], tables[job][0, 1])
        numbers = state.numbers(tables)
        labels = None if network.classes is None else state.labels
        known = torch.cat([state.object * state.mask, state.mask], dim=1) if network.fills else None
        raw = network(state.x_t, numbers["timestep"].flatten(), labels, known)
        x0 = predicted_x0(raw[:, :3], state.x_t, numbers["alpha_bar"], network.prediction_type)
        state.correct(x0, jobs)
        done = [slot for slot in state.busy if state.step[slot] == len(tables[state.job[slot]]) - 1]
        if settings.watch is not None:
            settings.watch([state.job[s] for s in state.busy], [state.step[s] for s in state.busy], state.x_t, x0)
        for slot in done:
            yield state.job[slot], x0[slot].clone()
        if len(done) < len(state.busy):
            _advance(network, state, numbers, x0, network.variance_output(raw), jobs, settings)
        state.leave(done)


class _State:
    """The slots: tensors on the device, and the job and step of each slot."""

    def __init__(self, slots: int, size: int, device: torch.device, rising: int = 0) -> None:
        shape = (slots, 3, size, size)
        self.device = device
        # What x̂0 lacked at each rising level of a slot's picture.
        self.lacking = torch.zeros((slots, rising, 3, size, size), device=device)
        self.first = torch.zeros(shape, device=device)
        self.x_t = torch.zeros(shape, device=device)
        self.previous_x0 = torch.zeros(shape, device=device)
        self.object = torch.zeros(shape, device=device)
        self.mask = torch.zeros((slots, 1, size, size), device=device)
        self.seeds = torch.zeros(slots, dtype=torch.int64, device=device)
        self.labels = torch.zeros(slots, dtype=torch.int64, device=device)
        self.job = [-1] * slots
        self.step = [0] * slots

    @property
    def busy(self) -> list[int]:
        return [slot for slot, job in enumerate(self.job) if job >= 0]

    def enter(self, slot: int, position: int, job: Job, alpha_bar: float) -> None:
        self.job[slot], self.step[slot] = position, 0
        self.seeds[slot] = self.upload(as_seeds([job.seed])[0], torch.int64)
        self.labels[slot] = 0 if job.label is None else job.label
        self.object[slot] = self.upload(job.object, torch.float32)
        self.mask[slot] = self.upload(job.mask, torch.float32)
        self.previous_x0[slot] = 0
        eps = normal(self.seeds[slot : slot + 1], _FIRST, self.x_t.shape[1:])[0]
        self.first[slot] = self.upload(job.first, torch.float32)
        self.x_t[slot] = np.sqrt(alpha_bar) * self.first[slot] + np.sqrt(1 - alpha_bar) * eps

    def correct(self, x0: Tensor, jobs: Sequence[Job]) -> None:
        """Make x̂0 the picture itself on the way up and at the top, and add what it lacked there on the way down."""
        for slot in self.busy:
            levels, step = len(jobs[self.job[slot]].rising), self.step[slot]
            if step < levels:
                torch.sub(self.first[slot], x0[slot], out=self.lacking[slot, step])
            if levels and step <= levels:
                x0[slot] = self.first[slot]
            elif levels < step <= 2 * levels:
                x0[slot] += self.lacking[slot, 2 * levels - step]

    def numbers(self, tables: dict[int, np.ndarray]) -> dict[str, Tensor]:
        """The current row of every slot's table as columns (slots, 1, 1, 1) float32; empty slots repeat a busy one."""
        spare = self.busy[0]
        rows = [tables[self.job[s]][self.step[s]] if self.job[s] >= 0 else tables[self.job[spare]][self.step[spare]]
                for s in range(len(self.job))]  # fmt: skip
        columns = self.upload(np.stack(rows, axis=1), torch.float32)
        return {name: column.view(-1, 1, 1, 1) for name, column in zip(_COLUMNS, columns, strict=True)}

    def upload(self, values: Sequence[Any] | np.ndarray | Tensor, dtype: torch.dtype) -> Tensor:
        """Numbers copied to the device without waiting: a blocking copy in every step would leave the GPU idle."""
        here = torch.as_tensor(values, dtype=dtype)
        if self.device.type == "cuda" and here.device.type == "cpu":
            here = here.pin_memory()
        return here.to(self.device, non_blocking=True)

    def draw(self, purpose: int) -> Tensor:
        """Noise (slots, 3, S, S) for this step of every slot."""
        draws = self.upload([2 * step + purpose for step in self.step], torch.int64)
        return normal(self.seeds, draws if purpose else 0, self.x_t.shape[1:])

    def leave(self, done: Sequence[int]) -> None:
        for slot in self.busy:
            self.step[slot] += 1
        for slot in done:
            self.job[slot], self.step[slot] = -1, 0


def _advance(
    network: Network,
    state: _State,
    numbers: dict[str, Tensor],
    x0: Tensor,
    variance_output: Tensor | None,
    jobs: Sequence[Job],
    settings: Settings,
) -> None:
    """Move every slot one step on: guide it, step, and blend the object in at the new level."""
    # Second-order samplers follow the drift closely enough that a learned variance would count it twice.
    sigma, ratio = step_sigma(network, numbers, variance_output if settings.sampler.by_variance else None)
    push = _push(network, state, numbers, x0, jobs, settings)
    target = x0 + numbers["memory"] * (x0 - state.previous_x0)
    if push is not None:
        # Algorithm 1's mean + λ·Σ·∇ is x̂0 moved by λ·Σ/toward·∇: the table holds it for the posterior's variance.
        moved = numbers["push"] * push
        target = target + (moved if ratio is None else ratio * moved) * (1 - state.mask)
    x_t = numbers["keep"] * state.x_t + numbers["toward"] * target
    if settings.sampler.stochastic:
        x_t = x_t + sigma * state.draw(_STEP)
    eps = state.draw(_OBJECT if settings.sampler.stochastic else _FIRST)
    alpha_bar = numbers["object_alpha_bar"]
    state.x_t = torch.lerp(x_t, alpha_bar.sqrt() * state.object + (1 - alpha_bar).sqrt() * eps, state.mask)
    state.previous_x0 = x0


def _push(
    network: Network, state: _State, numbers: dict[str, Tensor], x0: Tensor, jobs: Sequence[Job], settings: Settings
) -> Tensor | None:
    """Strength × ∇ for every slot, (slots, 3, S, S), or None if no slot is guided."""
    current = [jobs[job] if job >= 0 else None for job in state.job]
    total: Tensor | None = None
    if settings.guidance == "released":
        total = _through(settings.exact or network, state, numbers, current)
    else:
        for band in guiding.BANDS:
            chosen = [job.strength if job and job.kind == "complexity" and job.band == band else 0.0 for job in current]
            if any(chosen):
                slope = guiding.SLOPE if settings.guidance == "calibrated" else 0.0
                push = guiding.complexity(state.upload(chosen, torch.float32), band, slope)(x0)
                total = push if total is None else total + push
    attacked = {slot: job.strength for slot, job in enumerate(current) if job and job.kind == "adversarial"}
    if attacked:
        assert settings.guide is not None
        count, seen = len(attacked), padded(list(attacked), state.device)
        rows = state.upload(seen, torch.int64)
        scale = state.upload([attacked[slot] for slot in seen], torch.float32)
        limit = guiding.LIMIT if settings.guidance == "calibrated" else None
        push = guiding.adversarial(settings.guide, state.labels[rows], scale, limit)(x0[rows])
        total = torch.zeros_like(x0) if total is None else total
        total = total.index_add(0, rows[:count], push[:count])
    return total


def padded(slots: list[int], device: torch.device) -> list[int]:
    """The slots, on a GPU padded to a power of two by repeating the last: it searches for kernels for every shape."""
    missing = (1 << (len(slots) - 1).bit_length()) - len(slots) if device.type == "cuda" else 0
    return slots + slots[-1:] * missing


def _through(network: Network, state: _State, numbers: dict[str, Tensor], current: Sequence[Job | None]) -> Tensor:
    strength = torch.tensor(
        [job.strength if job and job.kind == "complexity" else 0.0 for job in current], device=state.device
    )
    bands = [job.band if job else "all" for job in current]
    labels = None if network.classes is None else state.labels

    def denoise(x_t: Tensor) -> Tensor:
        raw = network(x_t, numbers["timestep"].flatten(), labels)
        return predicted_x0(raw[:, :3], x_t, numbers["alpha_bar"], network.prediction_type)

    return guiding.through_network(denoise, state.x_t, strength, bands)
