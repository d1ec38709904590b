"""Object removal by diffusion: a network that sees the known pixels draws what is behind the object.

First the mean of everything that could be there, from one pass at the noisiest level: it continues light and color and
invents no new object, as fills from pure noise often do. Then its texture, by noising the hole part of the way and
denoising it.

`PipelineRemoval` uses a pipeline of diffusers instead: in-painting draws the hole, an instruction asks for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import cv2
import numpy as np
import torch
from torch import Tensor

from unswayed.errors import BadPicture, UserError
from unswayed.files.whole import canonical
from unswayed.jobs import choose_device
from unswayed.jobs.resources import shrinking

from ..editors.folders import IN_PAINTING
from ..editors.pipelines import EditRequest, call_of, open_pipeline, parse
from ..layers import Refusal
from ..networks import TIMESTEPS, Network
from ..networks.loading import PRECISIONS, Recording, choose_precision, load_network, loading_onto_device, out_of_memory
from ..sampling import Schedule, as_seeds, normal, predicted_x0
from ..sampling.loop import Job, Settings, denoise_all
from ..sampling.samplers import SAMPLERS, visited
from . import hole_of

STEPS, START = 24, 0.7
MULTIPLE = 16  # of the side of the pictures that a compact network takes


@torch.no_grad()
def fill_holes(network: Network, pictures: Tensor, holes: Tensor, seeds: Sequence[int], start: float = START) -> Tensor:
    """Pictures (N, 3, S, S) in [−1, 1] with the holes (N, 1, S, S) in {0, 1} drawn and the rest unchanged."""
    pictures, known = pictures.to(network.device), 1 - holes.to(network.device)
    alpha_bar = torch.tensor(Schedule.respaced(TIMESTEPS, network.beta_schedule).alpha_bar[-1], device=network.device)
    noise = normal(as_seeds(seeds, network.device), 0, pictures.shape[1:])
    x_t = (alpha_bar.sqrt() * pictures * known + (1 - alpha_bar).sqrt() * noise).float()
    raw = network(x_t, TIMESTEPS - 1.0, None, torch.cat([pictures * known, known], dim=1))
    mean = predicted_x0(raw[:, :3], x_t, alpha_bar, network.prediction_type).float().clamp(-1, 1)
    first = torch.lerp(mean, pictures, known)
    sampler = SAMPLERS["dpm"]
    levels = visited(start, STEPS, sampler.spacing, network.beta_schedule)
    jobs = [
        Job(begun, picture, rest, levels, start, STEPS, seed)
        for begun, picture, rest, seed in zip(first, pictures, known, seeds, strict=True)
    ]
    drawn = dict(denoise_all(network, jobs, len(jobs), Settings(sampler)))
    return torch.lerp(torch.stack([drawn[i] for i in range(len(jobs))]).clamp(-1, 1), pictures, known)


class DiffusionRemoval:
    """A callable (image (S, S, 3) uint8, mask (S, S), seed, label) -> (S, S, 3) uint8, changed only in the hole."""

    def __init__(
        self, network: str | Network = "compact", device: str | None = None, precision: str | None = None
    ) -> None:
        target = choose_device(device)
        loaded = load_network(network)
        if not loaded.fills:
            raise UserError(
                f"the network {loaded.name} cannot fill holes: it does not see the known pixels",
                allowed="compact, or a folder that train-network wrote",
                run="--removal diffusion",
            )
        with loading_onto_device(f"the network {loaded.name}", target):
            exact = loaded.on(target, PRECISIONS[choose_precision(precision, target)])
        self.network = replace(exact, module=Recording(exact.module))
        self.name = f"diffusion-{self.network.name}-{(self.network.weights_hash or 'unknown')[:12]}"

    def __call__(self, image: np.ndarray, mask: np.ndarray, seed: int = 0, label: int | None = None) -> np.ndarray:
        return self.remove([image], [mask], [seed])[0]

    def remove(
        self, images: Sequence[np.ndarray], masks: Sequence[np.ndarray], seeds: Sequence[int]
    ) -> list[np.ndarray]:
        """Several pictures of one size, in batches as large as memory allows; on a CPU one by one."""
        from ..diffusion import as_tensor

        holes = [hole_of(mask) for mask in masks]
        size = images[0].shape[0]
        side = max(round(size / MULTIPLE), 2) * MULTIPLE
        pictures = torch.stack([as_tensor(_resized(image, side), self.network.device) for image in images])
        inside = torch.stack([torch.from_numpy(_resized(hole.astype(np.float32), side) > 0)[None] for hole in holes])

        def run(batch: int) -> Tensor:
            parts = [slice(first, first + batch) for first in range(0, len(images), batch)]
            return torch.cat([fill_holes(self.network, pictures[p], inside[p].float(), seeds[p]).cpu() for p in parts])

        most = 1 if self.network.device.type == "cpu" else len(images)
        filled = shrinking(run, most, lambda: out_of_memory(self.network, size))[0]
        if not bool(torch.isfinite(filled).all()):
            raise BadPicture(f"the network {self.network.name} returned NaN or infinity while removing an object")
        arrays = np.rint((filled.permute(0, 2, 3, 1).numpy() + 1) * 127.5).astype(np.uint8)
        return [
            np.where(hole[..., None], _resized(array, size), image)
            for hole, array, image in zip(holes, arrays, images, strict=True)
        ]


def _resized(picture: np.ndarray, side: int) -> np.ndarray:
    return picture if picture.shape[0] == side else cv2.resize(picture, (side, side), interpolation=cv2.INTER_LINEAR)


PROMPTS = {True: "the background alone, an empty place", False: "Remove the object. Keep the background as it is."}


class PipelineRemoval:
    """A callable (image (S, S, 3) uint8, mask (S, S), seed, label) -> (S, S, 3) uint8, changed only in the hole."""

    def __init__(self, detail: str = "", device: str | None = None) -> None:
        """detail: `NAME_OR_FOLDER?option=value`; `prompt=` is what is asked for in place of the object."""
        spec = parse(detail, "prompt")
        self.pipeline = open_pipeline(spec, device, None)
        self.call = call_of(self.pipeline, spec, None)
        self.prompt = spec.options.get("prompt", PROMPTS[self.pipeline.kind == IN_PAINTING])
        facts = self.pipeline.facts
        decisive = hashlib.sha256(canonical([facts, vars(self.call), self.prompt]).encode()).hexdigest()
        self.name = f"diffusers-{facts['class']}-{decisive[:12]}"

    def __call__(self, image: np.ndarray, mask: np.ndarray, seed: int = 0, label: int | None = None) -> np.ndarray:
        return self.remove([image], [mask], [seed])[0]

    def remove(
        self, images: Sequence[np.ndarray], masks: Sequence[np.ndarray], seeds: Sequence[int]
    ) -> list[np.ndarray]:
        """Several pictures of one size; one that is given more than once is made once."""
        made: dict[tuple[int, int], np.ndarray] = {}
        for image, mask, seed in zip(images, masks, seeds, strict=True):
            if (id(image), seed) not in made:
                hole = hole_of(mask)
                [drawn] = self.pipeline.draw([EditRequest(image, hole, self.prompt, None, seed)], self.call)
                if isinstance(drawn, Refusal):
                    raise BadPicture(drawn.reason)
                made[id(image), seed] = np.where(hole[..., None], drawn, image)
        return [made[id(image), seed] for image, seed in zip(images, seeds, strict=True)]
