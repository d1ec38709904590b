"""The renderer that blends an object into its background with a diffusion network.

renderer = open_diffusion(network="compact", steps=20)
answers = renderer.render(batch)          # Layers in, `Rendering` or `Refusal` out, in order
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unswayed.choices import GuidanceName, Precision, SamplerName, check_choice
from unswayed.errors import UserError
from unswayed.jobs import choose_device
from unswayed.jobs.resources import Threads, one_thread, shrinking

from .layers import Key, Layers, NetworkRenderer, Refusal, Rendering, composite
from .networks import Network, loading
from .sampling.guidance import NamedGuide, open_guide, too_few
from .sampling.loop import Job, Settings, denoise
from .sampling.samplers import SAMPLERS, Sampler, find_sampler, visited
from .uploads import uploaded

# Compiling takes about a minute. With fewer pictures at once, or less work in all (parameters × pictures × steps), it
# costs more than it saves.
COMPILE_FROM, WORTH_COMPILING = 8, 2e13
# The width in pixels of the band around an object in which it is blended with a background that is kept.
BAND = 8
# A regenerated background is drawn anew from this timestep down, its fine texture; above it, it only changes by what
# the guidance does.
RISE_FROM = 60


@dataclass(eq=False)
class Diffusion(NetworkRenderer):
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

    def stream(
        self, take: Callable[[], tuple[Key, Layers] | None], on_passes: Callable[[int], None] | None = None
    ) -> Iterator[tuple[Key, Rendering | Refusal]]:
        """(key, answer) of each picture as soon as it is there: blended, pasted if its start is 0, or refused.

        take: returns the next picture with its key whenever there is room for one, or None if none is waiting. When it
        does and no picture is left, the stream ends.
        """
        guide = None if self.guide is None else self.guide.logits
        watch = None if on_passes is None else lambda busy, *_: on_passes(len(busy))
        settings = Settings(SAMPLERS[self.sampler], self.guidance, guide, self.exact, watch)
        begun: dict[Key, _PictureInProgress] = {}
        again: list[tuple[Key, Layers]] = []
        ready: deque[tuple[Key, Callable[[bool], Rendering | Refusal | None]]] = deque()
        slots, passes = 0, iter(list[tuple[Key, Tensor]]())

        def next_job() -> tuple[Key, Job] | None:
            while (taken := again.pop() if again else take()) is not None:
                key, layers = taken
                answer = self._without_network(layers)
                if answer is None:
                    begun[key] = self._begin(layers)
                    return key, begun[key].job
                ready.append((key, functools.partial(lambda known, wait: known, answer)))
            return None

        def next_picture(number: int) -> bool:
            """Whether there was one more picture; with another number of slots, what is unfinished begins again."""
            nonlocal slots, passes
            if number != slots:
                again.extend((key, picture.layers) for key, picture in begun.items())
                begun.clear()
                slots, passes = number, denoise(self.network, next_job, number, settings)
            if self.network.device.type == "cpu":  # beside a GPU, one thread is right and has been set
                self.threads.adjust()
            for key, x0 in passes:
                ready.append((key, self._finish(begun.pop(key), x0)))
                return True
            return False

        with one_thread() if self.network.device.type == "cuda" else self.threads:
            going = True
            while going or ready:
                if going:
                    going, self.batch_size = shrinking(
                        next_picture, self.batch_size, lambda: loading.out_of_memory(self.exact, self.size)
                    )
                # What was copied from a GPU arrives while it makes the next pictures.
                while ready and (answer := ready[0][1](not going)) is not None:
                    yield ready.popleft()[0], answer

    def describe(self) -> dict[str, object]:
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

    def _without_network(self, layers: Layers) -> Rendering | Refusal | None:
        """The answer for a picture that needs no network or that the network cannot make; else None."""
        if layers.background.shape[0] != self.size:
            self.exact.check_size(layers.background.shape[0])
        if layers.start <= 0:
            return Rendering(composite(layers.object, layers.alpha, layers.background))
        if layers.words is not None:
            return Refusal(f"this network reads no words: {layers.needs_network}")
        guidance = layers.guidance
        if guidance is not None and len(self._levels(layers.start)) < 2:
            return Refusal(too_few(layers.start, self.steps, self.sampler, self.exact.beta_schedule))
        if guidance is not None and guidance.kind == "adversarial":
            if self.guide is None:
                return Refusal("adversarial guidance needs a guide, e.g. --guide lite:2")
            if layers.label is None or not self.guide.knows(layers.label):
                return Refusal(f"adversarial guidance needs a label that {self.guide.name} knows, not {layers.label}")
        if self.exact.classes is not None and (layers.label is None or not 0 <= layers.label < self.exact.classes):
            return Refusal(
                f"the network {self.exact.name} needs one of its {self.exact.classes} classes, not {layers.label}"
            )
        return None

    def _rising(self, start: float) -> np.ndarray:
        """The levels at which a regenerated background is compared with its x̂0, from the cleanest up."""
        levels = self._levels(start)[::-1]
        trained = (
            (levels >= RISE_FROM)
            & (levels < levels[-1])
            & (self.guidance == "calibrated" and not SAMPLERS[self.sampler].stochastic)
        )
        return levels[trained]

    def passes(self, start: float, regenerated: bool = False) -> int:
        """How many passes of the network a picture with this start takes; regenerated: the background is its own."""
        if start <= 0:
            return 0
        return len(self._levels(start)) + (len(self._rising(start)) if regenerated else 0)

    def _levels(self, start: float) -> np.ndarray:
        """The timesteps that a picture with this start visits."""
        return visited(start, self.steps, SAMPLERS[self.sampler].spacing, self.exact.beta_schedule)

    def _begin(self, layers: Layers) -> _PictureInProgress:
        """The picture on the device, with its job."""
        device = self.network.device
        object_, background, alpha = _uploaded(layers, device)
        whole, rest = as_floats(object_), as_floats(background)
        # Each pixel is blended fully or not at all: a mix of two independent noises has less variance than either.
        mask = (alpha > 0.5).float()
        first, kept, band = rest, whole, None
        rising = np.empty(0, np.int64)
        if self.guidance == "calibrated":
            # As published, noise is added to the background; ours to the picture with its object.
            first = torch.lerp(rest, whole, mask)
            if layers.needs_network is not None:
                rising = self._rising(layers.start)
            elif self.exact.fills:  # the background is a given picture that stays as it is, except around the object
                band = around(alpha)
                kept, mask = first, (~band).float()
        guided = {} if layers.guidance is None else vars(layers.guidance)
        levels = self._levels(layers.start)
        job = Job(first, kept, mask[None], levels, layers.start, self.steps, layers.seed, rising=rising)
        return _PictureInProgress(layers, replace(job, label=layers.label, **guided), object_, alpha, background, band)

    def _finish(self, begun: _PictureInProgress, x0: Tensor) -> Callable[[bool], Rendering | Refusal | None]:
        """A function that returns the answer; from a GPU None until it has arrived, unless it is called with True."""
        layers, pixels = begun.layers, begun.blended(x0)
        arrived = None
        if pixels.device.type == "cuda":
            pixels = torch.empty(pixels.shape, dtype=pixels.dtype, pin_memory=True).copy_(pixels, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        guide = self.guide if layers.guidance is not None and layers.guidance.kind == "adversarial" else None
        measures: dict[str, object] = {"passes": self.passes(*layers.passes_by)}
        if layers.guidance is not None:
            measures["guidance"] = self.guidance
        if guide is not None:
            measures["guide"] = guide.name

        def answer(wait: bool) -> Rendering | Refusal | None:
            if arrived is not None and wait:
                arrived.synchronize()
            elif arrived is not None and not arrived.query():
                return None
            if not pixels[-1]:
                who = "the network" if guide is None else f"the network, or the guide {guide.name},"
                return Refusal(f"{who} returned NaN or infinity", status="failed")
            return Rendering(pixels[:-1].view(self.size, self.size, 3).numpy(), measures, generated=True)

        return answer


@dataclass(frozen=True, eq=False)
class _PictureInProgress:
    """A picture that is being denoised, and what it is blended with, on the device.

    object, background: (S, S, 3) uint8; alpha: (S, S) float32; band: (S, S) bool, outside of which the background is
    kept, or None.
    """

    layers: Layers
    job: Job
    object: Tensor
    alpha: Tensor
    background: Tensor
    band: Tensor | None

    def blended(self, x0: Tensor) -> Tensor:
        """(3·S² + 1,) uint8: the pixels of x̂0 (3, S, S) with the object over them, and 1 if all numbers are finite.

        The same operations as `composite`, so the same bytes.
        """
        picture = (x0.clamp(-1, 1).permute(1, 2, 0) + 1) * 127.5
        if self.band is not None:
            picture = torch.where(self.band[..., None], picture, self.background.float())
        mixed = picture + self.alpha[..., None] * (self.object.float() - picture)
        finite = torch.isfinite(x0).all().to(torch.uint8).view(1)
        return torch.cat([mixed.round().nan_to_num().clamp(0, 255).to(torch.uint8).flatten(), finite])


def open_diffusion(
    network: str | Network = "compact",
    steps: int | None = None,
    sampler: SamplerName | None = None,
    guide: object = None,
    device: str | None = None,
    batch_size: int | None = None,
    precision: Precision | None = None,
    compile: bool | None = None,
    guidance: GuidanceName | None = None,
    size: int | None = None,
    network_facts: Mapping[str, str | int | float] | None = None,
    planned: int | None = None,
) -> Diffusion:
    """The diffusion renderer, its network on the device.

    steps: over the whole schedule, the sampler's default if None (a picture takes start · steps of them); sampler: auto
    if None, which is `dpm` below 50 steps and where no number is given, otherwise `ancestral`; guide: the classifier
    that adversarial guidance attacks (a model's name, a classifier, or a callable); compile: by default on a GPU with 8
    or more pictures at once if `planned`, the number of pictures to be made, is unknown or large; guidance: that of the
    network if None. As published (`paper`, `released`) it needs the ancestral sampler, the only one that has the
    variance by which λ is multiplied.
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
    if compile is None:
        parameters = sum(weight.numel() for weight in exact.module.parameters())
        worth = planned is None or parameters * planned * (steps or chosen.default) >= WORTH_COMPILING
        compile = target.type == "cuda" and pictures >= COMPILE_FROM and worth
    running = replace(exact, module=(loading.compiled if compile else loading.Recording)(exact.module))
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


def _uploaded(layers: Layers, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Object, background and alpha on the device; a GPU gets them in one piece and without waiting."""
    arrays = (layers.alpha.astype(np.float32, copy=False), layers.object, layers.background)
    pieces = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    alpha, *pixels = on_device(np.concatenate(pieces), device).split([len(piece) for piece in pieces])
    object_, background = (part.view(layers.background.shape) for part in pixels)
    return object_, background, alpha.view(torch.float32).view(layers.alpha.shape)


def on_device(array: np.ndarray, device: torch.device) -> Tensor:
    """The array on the device; a GPU gets it without waiting."""
    # A photograph that already has this size may be read-only; torch warns about that, so it is copied.
    here = torch.from_numpy(np.require(array, requirements=["C", "W"]))
    return uploaded(here, device)


@functools.cache
def _disk(device: torch.device) -> Tensor:
    """(1, 1, 2·BAND + 1, 2·BAND + 1) float32: 1 within BAND of the middle."""
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * BAND + 1, 2 * BAND + 1))
    return torch.from_numpy(kernel).float()[None, None].to(device)


def around(alpha: Tensor) -> Tensor:
    """(S, S) bool: the pixels within BAND of the object, without the object itself."""
    object_ = alpha > 0.5
    near = F.conv2d(object_.float()[None, None], _disk(alpha.device), padding=BAND)[0, 0] > 0.5
    return (near | (alpha > 0)) & ~object_


@functools.cache
def _levels_of(device: torch.device) -> Tensor:
    """(256,) float32 in [−1, 1]; a GPU would divide with another rounding."""
    return (torch.arange(256).float() / 127.5 - 1).to(device)


def as_floats(picture: Tensor) -> Tensor:
    """(S, S, 3) uint8 -> (3, S, S) float32 in [−1, 1]."""
    return _levels_of(picture.device)[picture.permute(2, 0, 1).int()]


def as_tensor(picture: np.ndarray, device: torch.device | None = None) -> Tensor:
    """(S, S, 3) uint8 -> (3, S, S) float32 in [−1, 1], on the device, or on the CPU if None."""
    return as_floats(on_device(picture, device or torch.device("cpu")))
