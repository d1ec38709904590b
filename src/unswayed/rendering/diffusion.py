"""The renderer that blends an object into its background with a diffusion network.

renderer = open_diffusion(network="compact", steps=20)
answers = renderer.render(batch)          # Layers in, Rendered or Refused out, in order
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor

from unswayed.choices import GuidanceName, Precision, SamplerName, check_choice
from unswayed.errors import UserError
from unswayed.jobs.resources import Threads, shrinking
from unswayed.jobs.settings import choose_device

from .layers import Layers, Refused, Rendered, composite
from .networks import Network, loading
from .sampling.guidance import NamedGuide, open_guide, too_few
from .sampling.loop import Job, Settings, denoise_all
from .sampling.samplers import SAMPLERS, Sampler, find_sampler, visited

# Below this many pictures at once compiling (about a minute) costs more than it saves.
COMPILE_FROM = 8
# The width in pixels of the band around an object in which it is blended with a background that is kept.
BAND = 8
# A regenerated background is drawn anew from this timestep down, its fine texture; above it, it only changes by what
# the guidance does.
RISE_FROM = 60


@dataclass(eq=False)
class Diffusion:
    """Pictures by diffusion. `network` runs (compiled or not), `exact` is the same network, never compiled.

    Only batch_size changes: it is halved when memory runs out.
    """

    network: Network
    exact: Network
    steps: int
    sampler: str
    guide: NamedGuide | None
    batch_size: int
    precision: str
    guidance: GuidanceName = "calibrated"

    def __post_init__(self) -> None:
        self.threads = Threads(self._one_pass)

    def _one_pass(self) -> None:
        """One forward pass to measure the best number of threads; does nothing for a GPU."""
        if self.network.device.type == "cpu":
            with torch.no_grad():
                labels = None if self.exact.classes is None else torch.zeros(1, dtype=torch.int64)
                self.exact(torch.zeros(1, 3, self.size, self.size), 0.0, labels)

    @property
    def size(self) -> int:
        return self.network.size

    def render(
        self, batch: Sequence[Layers], on_passes: Callable[[int], None] | None = None
    ) -> list[Rendered | Refused]:
        """One answer per picture: blended, pasted if its start is 0, or refused with a reason.

        on_passes: called after every pass of the network with the number of pictures in it.
        """
        answers = [self._without_network(layers) for layers in batch]
        denoised = iter(self._denoise([batch[i] for i, answer in enumerate(answers) if answer is None], on_passes))
        return [next(denoised) if answer is None else answer for answer in answers]

    def describe(self) -> dict[str, Any]:
        """The renderer's entry in benchmark.json."""
        return {
            "renderer": "diffusion",
            "network": self.exact.describe(),
            "steps": self.steps,
            "sampler": self.sampler,
            "guidance": self.guidance,
            "guide": None if self.guide is None else self.guide.describe(),
            "device": self.network.device.type,
            "precision": self.precision,
            "batch_size": self.batch_size,
        }

    def _without_network(self, layers: Layers) -> Rendered | Refused | None:
        """The answer for a picture that needs no network or that the network cannot make; else None."""
        if layers.background.shape[0] != self.size:
            self.exact.check_size(layers.background.shape[0])
        if layers.start <= 0:
            return Rendered(composite(layers.object, layers.alpha, layers.background))
        guidance = layers.guidance
        if guidance is not None and len(self._levels(layers.start)) < 2:
            return Refused(too_few(layers.start, self.steps, self.sampler, self.exact.beta_schedule))
        if guidance is not None and guidance.kind == "adversarial":
            if self.guide is None:
                return Refused("adversarial guidance needs a guide, e.g. --guide lite:2")
            if layers.label is None or not self.guide.knows(layers.label):
                return Refused(f"adversarial guidance needs a label that {self.guide.name} knows, not {layers.label}")
        if self.exact.classes is not None and (layers.label is None or not 0 <= layers.label < self.exact.classes):
            return Refused(
                f"the network {self.exact.name} needs one of its {self.exact.classes} classes, not {layers.label}"
            )
        return None

    def _keeps_background(self, layers: Layers) -> bool:
        """Whether the background is a given picture that stays as it is, except around the object."""
        return self.exact.fills and self.guidance == "calibrated" and layers.needs_network is None

    def _rising(self, start: float) -> np.ndarray:
        """The levels at which a regenerated background is compared with its x̂0, from the cleanest up."""
        levels = self._levels(start)[::-1]
        found = (
            (levels >= RISE_FROM)
            & (levels < levels[-1])
            & (self.guidance == "calibrated" and not SAMPLERS[self.sampler].stochastic)
        )
        return levels[found]

    def passes(self, start: float, regenerated: bool = False) -> int:
        """How many passes of the network a picture with this start takes; regenerated: the background is its own."""
        if start <= 0:
            return 0
        return len(self._levels(start)) + (len(self._rising(start)) if regenerated else 0)

    def _levels(self, start: float) -> np.ndarray:
        """The timesteps that a picture with this start visits."""
        return visited(start, self.steps, SAMPLERS[self.sampler].spacing, self.exact.beta_schedule)

    def _job(self, layers: Layers) -> Job:
        object_, background = as_tensor(layers.object), as_tensor(layers.background)
        # Each pixel is blended fully or not at all: a mix of two independent noises has less variance than either.
        mask = torch.from_numpy((layers.alpha > 0.5).astype(np.float32))[None]
        first, kept = background, object_
        rising = np.empty(0, np.int64)
        if self.guidance == "calibrated":
            # As published, noise is added to the background; ours to the picture with its object.
            first = torch.lerp(background, object_, mask)
            if self._keeps_background(layers):
                kept, mask = first, torch.from_numpy((~around(layers.alpha)).astype(np.float32))[None]
            elif layers.needs_network is not None:
                rising = self._rising(layers.start)
        job = Job(first, kept, mask, self._levels(layers.start), layers.start, self.steps, layers.seed, rising=rising)
        guided = {} if layers.guidance is None else vars(layers.guidance)
        return replace(job, label=layers.label, **guided)

    def _denoise(self, batch: Sequence[Layers], on_passes: Callable[[int], None] | None) -> list[Rendered | Refused]:
        if not batch:
            return []
        jobs = [self._job(layers) for layers in batch]
        guide = None if self.guide is None else self.guide.logits
        watch = None if on_passes is None else lambda busy, *_: on_passes(len(busy))
        settings = Settings(SAMPLERS[self.sampler], self.guidance, guide, self.exact, watch)
        done: dict[int, Future[Rendered | Refused]] = {}

        def run(slots: int) -> None:
            waiting = [i for i in range(len(jobs)) if i not in done]
            self.threads.adjust()
            for position, x0 in denoise_all(self.network, [jobs[i] for i in waiting], slots, settings):
                done[waiting[position]] = finishing.submit(self._finish, batch[waiting[position]], *_fetched(x0))
                self.threads.adjust()

        # Pictures are finished in a thread, so that the GPU does not wait.
        with ThreadPoolExecutor(1, thread_name_prefix="finish") as finishing, self.threads:
            _, self.batch_size = shrinking(run, self.batch_size, lambda: loading.out_of_memory(self.exact, self.size))
            return [done[i].result() for i in range(len(jobs))]

    def _finish(self, layers: Layers, x0: Tensor, arrived: Any = None) -> Rendered | Refused:
        if arrived is not None:
            arrived.synchronize()
        guide = self.guide if layers.guidance is not None and layers.guidance.kind == "adversarial" else None
        if not bool(torch.isfinite(x0).all()):
            who = "the network" if guide is None else f"the network, or the guide {guide.name},"
            return Refused(f"{who} returned NaN or infinity", status="failed")
        picture = (x0.clamp(-1, 1).permute(1, 2, 0).numpy() + 1) * 127.5
        measures: dict[str, Any] = {"passes": self.passes(layers.start, layers.needs_network is not None)}
        if layers.guidance is not None:
            measures["guidance"] = self.guidance
        if guide is not None:
            measures["guide"] = guide.name
        if self._keeps_background(layers):
            picture = np.where(around(layers.alpha)[..., None], picture, layers.background)
        return Rendered(composite(layers.object, layers.alpha, picture), measures, generated=True)


def open_diffusion(
    network: str | Network = "compact",
    steps: int | None = None,
    sampler: SamplerName | None = None,
    guide: Any = None,
    device: str | None = None,
    batch_size: int | None = None,
    precision: Precision | None = None,
    compile: bool | None = None,
    guidance: GuidanceName | None = None,
    size: int | None = None,
    network_facts: Mapping[str, str | int | float] | None = None,
) -> Diffusion:
    """The diffusion renderer, its network on the device.

    steps: over the whole schedule, the sampler's default if None (a picture takes start · steps of them); sampler: auto
    if None, which is `dpm` below 50 steps and where no number is given, otherwise `ancestral`; guide: the classifier
    that adversarial guidance attacks (a model's name, a classifier, or a callable); compile: by default on a GPU with 8
    or more pictures at once; guidance: that of the network if None. As published (`paper`, `released`) it needs the
    ancestral sampler, the only one that has the variance by which λ is multiplied.
    """
    if steps is not None and not 1 <= steps <= 1000:
        raise UserError(f"steps is {steps}", allowed="1 to 1000")
    target = choose_device(device)
    kind = loading.choose_precision(precision, target)
    loaded = loading.load_network(network, size=size, **(network_facts or {}))
    guided, chosen = _settled(loaded, steps, sampler, guidance)
    with loading.loading_onto_device(f"the network {loaded.name}", target):
        exact = loaded.on(target, loading.PRECISIONS[kind])
    pictures = loading.choose_batch_size(exact, exact.size, batch_size)
    compiled = (target.type == "cuda" and pictures >= COMPILE_FROM) if compile is None else compile
    module: Any = torch.compile(exact.module, dynamic=False) if compiled else exact.module
    running = replace(exact, module=module)
    with loading.loading_onto_device("the guide", target):
        opened = None if guide is None else open_guide(guide, target, exact.size)
    return Diffusion(running, exact, steps or chosen.default, chosen.name, opened, pictures, kind, guided)


def _settled(
    network: Network, steps: int | None, sampler: SamplerName | None, guidance: GuidanceName | None
) -> tuple[GuidanceName, Sampler]:
    """The guidance and the sampler; what is not given depends on the network and on the other of the two."""
    given = None if sampler in (None, "auto") else find_sampler(sampler).name
    settled = guidance or (network.guidance if given in (None, "ancestral") else "calibrated")
    check_choice("guidance", settled, GuidanceName)
    if settled == "calibrated":
        return settled, find_sampler(given or "auto", steps)
    if given not in (None, "ancestral"):
        raise UserError(
            f"the guidance '{settled}' follows the paper, which uses the ancestral sampler, not {given}",
            allowed="--sampler ancestral, or --guidance calibrated",
        )
    return settled, SAMPLERS["ancestral"]


def _fetched(picture: Tensor) -> tuple[Tensor, Any]:
    """The picture in main memory and, from a GPU, the event that marks the end of the copy."""
    if picture.device.type != "cuda":
        return picture.cpu(), None
    here = torch.empty(picture.shape, pin_memory=True).copy_(picture, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()
    return here, arrived


def around(alpha: np.ndarray) -> np.ndarray:
    """(S, S) bool: the pixels within BAND of the object, without the object itself."""
    object_ = (alpha > 0.5).astype(np.uint8)
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * BAND + 1, 2 * BAND + 1))
    return (cv2.dilate(object_, kernel) > object_) | ((alpha > 0) & (object_ == 0))


def as_tensor(picture: np.ndarray) -> Tensor:
    """(S, S, 3) uint8 -> (3, S, S) float32 in [−1, 1]."""
    # A photograph that already has this size may be read-only; torch warns about that, so it is copied.
    return torch.from_numpy(np.require(picture, requirements=["C", "W"])).permute(2, 0, 1).float() / 127.5 - 1
