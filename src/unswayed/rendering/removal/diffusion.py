"""Object removal by diffusion: the hole is sampled from noise and the known pixels are blended in at every level.

Repeatedly adding noise and denoising again makes the hole agree with its surroundings (RePaint, Lugmayr et al. 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unswayed.edits.composition import Impossible
from unswayed.errors import BadPicture, UserError
from unswayed.jobs.resources import shrinking
from unswayed.jobs.settings import choose_device

from ..networks import Network
from ..networks.loading import PRECISIONS, choose_precision, loading_onto_device, out_of_memory
from ..sampling import Schedule, as_seeds, normal, predicted_x0, step_sigma
from ..sampling.samplers import sample_ancestral
from . import hole_of

_FIRST, _STEP, _KNOWN, _UP = 0, 1, 2, 3


def jump_levels(steps: int, jump: int, resamples: int) -> list[int]:
    """The levels visited, noisiest first: down to 0, going `jump` back up `resamples` − 1 times at every `jump` levels.

    >>> jump_levels(5, 2, 2)
    [4, 3, 2, 3, 4, 3, 2, 1, 0, 1, 2, 1, 0]
    """
    if jump < 1 or resamples < 1:
        raise UserError(f"jump is {jump}, resamples {resamples}", allowed="1 or more")
    remaining = dict.fromkeys(range(0, steps - jump, jump), resamples - 1)
    visited = [steps - 1]
    while visited[-1] > 0:
        visited.append(visited[-1] - 1)
        if remaining.get(visited[-1], 0) > 0:
            remaining[visited[-1]] -= 1
            visited.extend(range(visited[-1] + 1, visited[-1] + jump + 1))
    return visited


@torch.no_grad()
def inpaint(
    network: Network,
    pictures: Tensor,
    holes: Tensor,
    seeds: Sequence[int],
    steps: int = 50,
    jump: int = 5,
    resamples: int = 3,
    labels: Tensor | None = None,
) -> Tensor:
    """Pictures (N, 3, S, S) in [−1, 1] with the holes (N, 1, S, S) in {0, 1} sampled and the rest unchanged.

    steps: respaced steps of the whole schedule, each but the first visited `resamples` times; labels: (N,) classes,
    for a class-conditional network.
    """
    schedule = Schedule.respaced(steps, network.beta_schedule)
    alpha_bar = schedule.alpha_bar
    device = network.device
    keys = as_seeds(seeds, device)
    pictures, holes = pictures.to(device), holes.to(device)
    shape = pictures.shape[1:]
    path = jump_levels(steps, jump, resamples)
    x_t = _known(pictures, alpha_bar[path[0]], normal(keys, _FIRST, shape), holes)
    x0 = pictures
    for draw, (now, then) in enumerate(zip(path, [*path[1:], -1], strict=True)):
        if then > now:
            share = alpha_bar[then] / alpha_bar[now]
            x_t = np.sqrt(share) * x_t + np.sqrt(1 - share) * normal(keys, 4 * draw + _UP, shape)
            continue
        raw = network(x_t, float(schedule.timesteps[now]), labels)
        x0 = predicted_x0(raw[:, :3], x_t, torch.tensor(alpha_bar[now], device=device), network.prediction_type)
        if then < 0:
            break
        step = sample_ancestral(np.array([alpha_bar[now], alpha_bar[then]]))
        # Nothing keeps a hole within the range of pictures, so x̂0 is clipped at every step here.
        drawn = step.keep[0] * x_t + step.toward[0] * x0.clamp(-1, 1)
        numbers = {
            "alpha_bar": alpha_bar[now],
            **{name: getattr(step, name)[0] for name in ("toward", "sigma", "low", "high")},
        }
        columns = {name: torch.tensor(value, dtype=torch.float32, device=device) for name, value in numbers.items()}
        sigma, _ = step_sigma(network, columns, network.variance_output(raw))
        drawn = drawn + sigma * normal(keys, 4 * draw + _STEP, shape)
        known = np.sqrt(alpha_bar[then]) * pictures + np.sqrt(1 - alpha_bar[then]) * normal(
            keys, 4 * draw + _KNOWN, shape
        )
        x_t = torch.lerp(known, drawn, holes)
    return torch.lerp(pictures, x0.clamp(-1, 1), holes)


def _known(pictures: Tensor, alpha_bar: float, noise: Tensor, holes: Tensor) -> Tensor:
    """The picture at a noise level, with pure noise in its hole."""
    return np.sqrt(alpha_bar) * pictures * (1 - holes) + torch.where(holes > 0, noise, np.sqrt(1 - alpha_bar) * noise)


class DiffusionRemoval:
    """A callable (image (S, S, 3) uint8, mask (S, S), seed, label) -> (S, S, 3) uint8, changed only in the hole."""

    def __init__(
        self,
        network: str | Network | None = None,
        device: str | None = None,
        precision: str | None = None,
        **options: Any,
    ) -> None:
        """options: passed to `inpaint`."""
        from ..networks.loading import load_network

        target = choose_device(device)
        loaded = load_network("compact" if network is None else network)
        with loading_onto_device(f"the network {loaded.name}", target):
            self.network = loaded.on(target, PRECISIONS[choose_precision(precision, target)])
        self.options = options
        digest = (self.network.weights_hash or "unknown")[:12]
        self.name = f"diffusion-{self.network.name}-{digest}" + "".join(f"-{k}{v}" for k, v in sorted(options.items()))

    def __call__(self, image: np.ndarray, mask: np.ndarray, seed: int = 0, label: int | None = None) -> np.ndarray:
        return self.remove([image], [mask], [seed], [label])[0]

    def remove(
        self,
        images: Sequence[np.ndarray],
        masks: Sequence[np.ndarray],
        seeds: Sequence[int],
        labels: Sequence[int | None] = (),
    ) -> list[np.ndarray]:
        """Several pictures in one batch; labels: the scenes' classes, for a class-conditional network."""
        from ..diffusion import as_tensor

        for image in images:
            self.network.check_size(image.shape[0])
        holes = np.stack([hole_of(mask) for mask in masks])
        pictures = torch.stack([as_tensor(image) for image in images])
        classes = None if self.network.classes is None else self._known(labels or [None] * len(images))
        filled = self._filled(pictures, torch.from_numpy(holes)[:, None].float(), seeds, classes)
        if not bool(torch.isfinite(filled).all()):
            raise BadPicture(f"the network {self.network.name} returned NaN or infinity while removing an object")
        arrays = np.rint((filled.permute(0, 2, 3, 1).cpu().numpy() + 1) * 127.5).clip(0, 255).astype(np.uint8)
        return [np.where(h[..., None], a, i) for h, a, i in zip(holes, arrays, images, strict=True)]

    def _filled(self, pictures: Tensor, holes: Tensor, seeds: Sequence[int], classes: Tensor | None) -> Tensor:
        """The filled pictures, in batches as large as memory allows."""

        def run(batch: int) -> Tensor:
            parts = (slice(first, first + batch) for first in range(0, len(pictures), batch))
            return torch.cat([
                inpaint(self.network, pictures[part], holes[part], seeds[part],
                        labels=None if classes is None else classes[part], **self.options).cpu()
                for part in parts
            ])  # fmt: skip

        size = pictures.shape[-1]
        return shrinking(run, len(pictures), lambda: out_of_memory(self.network, size))[0]

    def _known(self, labels: Sequence[int | None]) -> Tensor:
        """The labels as a tensor for the network; raises Impossible for a label that the network does not have."""
        known = range(self.network.classes or 0)
        for label in labels:
            if label not in known:
                raise Impossible(
                    f"the network {self.network.name} needs one of its {len(known)} classes to remove an object, "
                    f"not {label}"
                )
        return torch.tensor(labels, dtype=torch.int64, device=self.network.device)
