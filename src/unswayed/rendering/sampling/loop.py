"""The blended loop of ImageNet-E's algorithms 1 and 2, for pictures that each have their own noise levels.

A batch has a fixed number of slots. Each slot holds one picture at its own noise level; when a picture is done, the
next one takes its slot, so every pass of the network is full for any mixture of starts, and its shape never changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from unswayed.choices import GuidanceName

from ..networks import Network
from ..uploads import uploaded
from . import Schedule, as_seeds, normal, predicted_x0, step_sigma
from . import guidance as guiding
from .samplers import SAMPLERS, Sampler


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
    watch: Callable[[Sequence[object], Sequence[int], Tensor, Tensor], None] | None = None


Key = TypeVar("Key")
Take = Callable[[], tuple[Key, Job] | None]


# Numbers of the noise draws: 0 for the first x_t; then, per step, one for the sampler and one for the object.
_FIRST, _STEP, _OBJECT = 0, 1, 2
# A GPU asks a guide about so many pictures at a time: it takes seconds to choose its kernels for another number.
GUIDED = 16
_COLUMNS = (
    "timestep", "alpha_bar", "keep", "toward", "memory", "sigma", "push", "low", "high", "object_alpha_bar"
)  # fmt: skip


@functools.lru_cache(maxsize=256)
def levels_table(
    timesteps: tuple[int, ...],
    rising: tuple[int, ...],
    kind: str | None,
    start: float,
    steps: int,
    beta: str,
    sampler: str,
    guidance: GuidanceName,
) -> np.ndarray:
    """(K, 10) float64: for each pass of one picture its timestep, its ᾱ and the sampler's numbers (_COLUMNS)."""
    full = Schedule.respaced(1000, beta).alpha_bar
    alpha_bar = full[list(timesteps)]
    numbers = SAMPLERS[sampler].steps(alpha_bar)
    published, scale = guidance != "calibrated", 0.0
    if published:
        scale = 1.0  # even where an edit is not guided, since the released code's range loss is always on
    elif kind is not None:
        scale = guiding.calibration(kind, start, steps, sampler, beta)
    table = np.zeros((len(alpha_bar), len(_COLUMNS)))
    table[:, 0], table[:, 1] = timesteps, alpha_bar
    # Paper and released code blend the object at the level of this step, ours at the level of the next.
    object_alpha_bar = alpha_bar[:-1] if published else alpha_bar[1:]
    table[:-1, 2:] = np.stack([*(getattr(numbers, name) for name in _COLUMNS[2:-1]), object_alpha_bar], axis=1)
    table[:, _COLUMNS.index("push")] *= scale
    levels = full[[*rising, timesteps[0]]]
    keep = np.sqrt((1 - levels[1:]) / (1 - levels[:-1]))
    rise = np.zeros((len(rising), len(_COLUMNS)))
    rise[:, 0], rise[:, 1], rise[:, 9] = rising, levels[:-1], levels[1:]
    rise[:, 2], rise[:, 3] = keep, np.sqrt(levels[1:]) - keep * np.sqrt(levels[:-1])
    return np.concatenate([rise, table])


def denoise_all(network: Network, jobs: Sequence[Job], slots: int, settings: Settings) -> Iterator[tuple[int, Tensor]]:
    """(position in `jobs`, last x̂0 (3, S, S) float32, not clipped) of each picture when it is done."""
    waiting = iter(enumerate(jobs))
    return denoise(network, lambda: next(waiting, None), slots, settings)


@torch.no_grad()
def denoise(network: Network, take: Take[Key], slots: int, settings: Settings) -> Iterator[tuple[Key, Tensor]]:
    """(key, last x̂0 (3, S, S) float32, not clipped) of each picture when it is done.

    take: is called whenever a slot is free, for the next key and job, or None if there is none at the moment; the
    loop ends when it returns None and every slot is empty. Empty slots repeat a busy slot's numbers.
    """
    state: _State | None = None
    keys: dict[int, Key] = {}  # of the slots that are busy
    while True:
        while (state is None or state.free) and (taken := take()) is not None:
            key, job = taken
            state = state or _State(slots, job.first.shape[-1], network.device)
            levels = tuple(job.timesteps.tolist()), tuple(job.rising.tolist())
            facts = job.kind, job.start, job.steps, network.beta_schedule, settings.sampler.name, settings.guidance
            keys[state.enter(job, levels_table(*levels, *facts))] = key
        if state is None or not state.busy:
            return
        numbers = state.numbers()
        labels = None if network.classes is None else state.labels
        raw = network(state.x_t, numbers["timestep"].flatten(), labels, state.known if network.fills else None)
        x0 = predicted_x0(raw[:, :3], state.x_t, numbers["alpha_bar"], network.prediction_type)
        state.correct(x0)
        busy, done = state.busy, [slot for slot in state.busy if state.step[slot] == len(state.table[slot]) - 1]
        if settings.watch is not None:
            settings.watch([keys[slot] for slot in busy], [state.step[slot] for slot in busy], state.x_t, x0)
        for slot in done:
            yield keys.pop(slot), x0[slot].clone()
        if len(done) < len(busy):
            _advance(network, state, numbers, x0, network.variance_output(raw), settings)
        state.leave(done)


class _State:
    """The slots: tensors on the device, and the job, table of levels and step of each slot."""

    def __init__(self, slots: int, size: int, device: torch.device) -> None:
        shape = (slots, 3, size, size)
        self.device = device
        # What x̂0 lacked at each rising level of a slot's picture.
        self.lacking = torch.zeros((slots, 0, *shape[1:]), device=device)
        self.first, self.eps, self.x_t, self.previous_x0, self.object = (
            torch.zeros(shape, device=device) for _ in range(5)
        )
        self.mask = torch.zeros((slots, 1, size, size), device=device)
        self.known = torch.zeros((slots, 4, size, size), device=device)
        self.seeds, self.labels = (torch.zeros(slots, dtype=torch.int64, device=device) for _ in range(2))
        self.job: list[Job | None] = [None] * slots
        self.table: list[np.ndarray] = [np.empty(0)] * slots
        self.step = [0] * slots

    @property
    def busy(self) -> list[int]:
        return [slot for slot, job in enumerate(self.job) if job is not None]

    @property
    def free(self) -> bool:
        return None in self.job

    def enter(self, job: Job, table: np.ndarray) -> int:
        """Put a picture with its first noise into a free slot, and return which one that is."""
        slot, alpha_bar = self.job.index(None), table[0, 1]
        self.job[slot], self.table[slot], self.step[slot] = job, table, 0
        missing = len(job.rising) - self.lacking.shape[1]
        if missing > 0:
            more = self.lacking.new_zeros((len(self.job), missing, *self.x_t.shape[1:]))
            self.lacking = torch.cat([self.lacking, more], dim=1)
        label = 0 if job.label is None else int(job.label)
        self.seeds[slot], self.labels[slot] = self.upload([*as_seeds([job.seed]).tolist(), label], torch.int64).unbind()
        self.object[slot] = self.upload(job.object, torch.float32)
        self.mask[slot] = self.upload(job.mask, torch.float32)
        torch.mul(self.object[slot], self.mask[slot], out=self.known[slot, :3])
        self.known[slot, 3:] = self.mask[slot]
        self.previous_x0[slot] = 0
        self.eps[slot] = normal(self.seeds[slot : slot + 1], _FIRST, self.x_t.shape[1:])[0]
        self.first[slot] = self.upload(job.first, torch.float32)
        self.x_t[slot] = np.sqrt(alpha_bar) * self.first[slot] + np.sqrt(1 - alpha_bar) * self.eps[slot]
        return slot

    def correct(self, x0: Tensor) -> None:
        """Make x̂0 the picture itself on the way up and at the top, and add what it lacked there on the way down."""
        places = [(slot, self.step[slot], len(job.rising)) for slot, job in enumerate(self.job) if job is not None]
        up = [(slot, step) for slot, step, levels in places if step < levels]
        top = [slot for slot, step, levels in places if levels and step <= levels]
        down = [(slot, 2 * levels - step) for slot, step, levels in places if levels < step <= 2 * levels]
        if up:
            rows, steps = self.upload(up, torch.int64).unbind(1)
            self.lacking[rows, steps] = self.first[rows] - x0[rows]
        if top:
            rows = self.upload(top, torch.int64)
            x0[rows] = self.first[rows]
        if down:
            rows, steps = self.upload(down, torch.int64).unbind(1)
            x0[rows] += self.lacking[rows, steps]

    def numbers(self) -> dict[str, Tensor]:
        """The current row of every slot's table as columns (slots, 1, 1, 1) float32; empty slots repeat a busy one."""
        spare = self.busy[0]
        sources = [spare if job is None else slot for slot, job in enumerate(self.job)]
        rows = [self.table[slot][self.step[slot]] for slot in sources]
        columns = self.upload(np.stack(rows, axis=1), torch.float32)
        return {name: column.view(-1, 1, 1, 1) for name, column in zip(_COLUMNS, columns, strict=True)}

    def upload(self, values: Sequence[object] | np.ndarray | Tensor, dtype: torch.dtype) -> Tensor:
        """Numbers copied to the device without waiting: a blocking copy in every step would leave the GPU idle."""
        return uploaded(torch.as_tensor(values, dtype=dtype), self.device)

    def draw(self, purpose: int) -> Tensor:
        """New noise (slots, 3, S, S) for this step of every slot."""
        draws = self.upload([2 * step + purpose for step in self.step], torch.int64)
        return normal(self.seeds, draws, self.x_t.shape[1:])

    def guided(self, kind: str, band: str | None = None) -> dict[int, float]:
        """Slots that are pushed in this step by guidance of this kind and band, with their strengths."""
        pushed = _COLUMNS.index("push")
        return {
            slot: job.strength
            for slot, job in enumerate(self.job)
            if job is not None
            and (job.kind, job.band) == (kind, band or job.band)
            and self.table[slot][self.step[slot], pushed]
        }

    def leave(self, done: Sequence[int]) -> None:
        for slot in self.busy:
            self.step[slot] += 1
        for slot in done:
            self.job[slot], self.step[slot] = None, 0


def _advance(
    network: Network,
    state: _State,
    numbers: dict[str, Tensor],
    x0: Tensor,
    variance_output: Tensor | None,
    settings: Settings,
) -> None:
    """Move every slot one step on: guide it, step, and blend the object in at the new level."""
    # Second-order samplers follow the drift closely enough that a learned variance would count it twice.
    sigma, ratio = step_sigma(network, numbers, variance_output if settings.sampler.by_variance else None)
    push = _push(network, state, numbers, x0, settings)
    target = x0 + numbers["memory"] * (x0 - state.previous_x0)
    if push is not None:
        # Algorithm 1's mean + λ·Σ·∇ is x̂0 moved by λ·Σ/toward·∇: the table holds it for the posterior's variance.
        moved = numbers["push"] * push
        target = target + (moved if ratio is None else ratio * moved) * (1 - state.mask)
    x_t = numbers["keep"] * state.x_t + numbers["toward"] * target
    eps = state.eps
    if settings.sampler.stochastic:
        x_t, eps = x_t + sigma * state.draw(_STEP), state.draw(_OBJECT)
    alpha_bar = numbers["object_alpha_bar"]
    state.x_t = torch.lerp(x_t, alpha_bar.sqrt() * state.object + (1 - alpha_bar).sqrt() * eps, state.mask)
    state.previous_x0 = x0


def _push(network: Network, state: _State, numbers: dict[str, Tensor], x0: Tensor, settings: Settings) -> Tensor | None:
    """Strength × ∇ for every slot, (slots, 3, S, S), or None if no slot is guided."""
    total: Tensor | None = None
    calibrated = settings.guidance == "calibrated"
    pushes: list[tuple[dict[int, float], Callable[[Tensor, Tensor], guiding.Push]]] = []

    def complexity(band: str) -> Callable[[Tensor, Tensor], guiding.Push]:
        return lambda rows, strength: guiding.complexity(strength, band, calibrated)

    if settings.guidance == "released":
        total = _through(settings.exact or network, state, numbers)
    else:
        pushes += [(state.guided("complexity", band), complexity(band)) for band in guiding.BANDS]
    if attacked := state.guided("adversarial"):
        assert settings.guide is not None
        attack = functools.partial(guiding.adversarial, settings.guide, length=guiding.LENGTH if calibrated else None)
        slots = list(attacked.items())
        for first in range(0, len(slots), GUIDED):
            part = dict(slots[first : first + GUIDED])
            pushes.append((part, lambda rows, strength: attack(state.labels[rows], strength)))
    for chosen, push in pushes:
        if chosen:
            count, seen = len(chosen), padded(list(chosen), state.device)
            rows = state.upload(seen, torch.int64)
            strength = state.upload([chosen[slot] for slot in seen], torch.float32)
            total = torch.zeros_like(x0) if total is None else total
            total = total.index_add(0, rows[:count], push(rows, strength)(x0[rows])[:count])
    return total


def padded(slots: list[int], device: torch.device) -> list[int]:
    """The slots, on a GPU padded to a power of two by repeating the last: it searches for kernels for every shape."""
    missing = max(GUIDED, 1 << (len(slots) - 1).bit_length()) - len(slots) if device.type == "cuda" else 0
    return slots + slots[-1:] * missing


def _through(network: Network, state: _State, numbers: dict[str, Tensor]) -> Tensor:
    strength = torch.tensor(
        [job.strength if job and job.kind == "complexity" else 0.0 for job in state.job], device=state.device
    )
    bands = [job.band if job else "all" for job in state.job]
    labels = None if network.classes is None else state.labels

    def denoise(x_t: Tensor) -> Tensor:
        raw = network(x_t, numbers["timestep"].flatten(), labels)
        return predicted_x0(raw[:, :3], x_t, numbers["alpha_bar"], network.prediction_type)

    return guiding.through_network(denoise, state.x_t, strength, bands)
