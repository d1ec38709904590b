"""UniPC (Zhao et al. 2023) as diffusers has it, blended like our own samplers, for comparison with them.

The noise levels are those of the sampler `dpm`, the object is blended in after every step, and guidance has the
strength that `dpm` has at this number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from unswayed.rendering.diffusion import Diffusion
from unswayed.rendering.layers import Layers, Refusal, Rendering
from unswayed.rendering.sampling import Schedule, as_seeds, guidance, normal, predicted_x0
from unswayed.rendering.sampling.loop import Job


@dataclass(frozen=True, eq=False)
class UniPC:
    """Renders like `Diffusion`, whose network and settings it uses; `diffusion` must have the sampler `dpm`."""

    diffusion: Diffusion

    def render(self, batch: Sequence[Layers]) -> list[Rendering | Refusal]:
        """One answer per picture, in order; pictures with one start share a batch, since UniPC keeps one history."""
        answers: dict[int, Rendering | Refusal] = {}
        waiting: dict[float, list[int]] = {}
        for place, layers in enumerate(batch):
            refused = self.diffusion._without_network(layers)
            if refused is not None:
                answers[place] = refused
            elif layers.guidance is not None and layers.guidance.kind != "complexity":
                answers[place] = Refusal(f"UniPC is compared without {layers.guidance.kind} guidance")
            else:
                waiting.setdefault(layers.start, []).append(place)
        for places in waiting.values():
            for first in range(0, len(places), self.diffusion.batch_size):
                some = places[first : first + self.diffusion.batch_size]
                begun = [self.diffusion._begin(batch[place]) for place in some]
                pictures = self._denoise([picture.job for picture in begun])
                for place, picture, x0 in zip(some, begun, pictures, strict=True):
                    answers[place] = self.diffusion._finish(picture, x0)(True)
        return [answers[place] for place in range(len(batch))]

    @torch.no_grad()
    def _denoise(self, jobs: list[Job]) -> torch.Tensor:
        """The last x̂0 (N, 3, S, S) of jobs with the same noise levels; the batch is padded to its fixed shape."""
        network, count = self.diffusion.network, len(jobs)
        jobs = jobs + jobs[-1:] * (self.diffusion.batch_size - count)
        timesteps = jobs[0].timesteps
        alpha_bar = Schedule.respaced(1000, network.beta_schedule).alpha_bar[timesteps]
        object_, mask, first = (
            torch.stack([getattr(job, name) for job in jobs]).to(network.device) for name in ("object", "mask", "first")
        )
        eps = normal(as_seeds([job.seed for job in jobs], network.device), 0, first.shape[1:])
        strength = torch.tensor([job.strength for job in jobs], device=network.device)
        push = guidance.complexity(strength) if bool(strength.any()) else None
        scale = push and guidance.calibration(
            "complexity", jobs[0].start, self.diffusion.steps, "dpm", network.beta_schedule
        )
        scheduler = _scheduler(timesteps, alpha_bar)
        x_t = alpha_bar[0] ** 0.5 * first + (1 - alpha_bar[0]) ** 0.5 * eps
        for number, level in enumerate(alpha_bar):
            times = torch.full((len(jobs),), float(timesteps[number]), device=network.device)
            raw = network(x_t, times)
            x0 = predicted_x0(raw[:, :3], x_t, torch.as_tensor(level), network.prediction_type)
            if number == len(alpha_bar) - 1:
                break
            target = x0
            if push is not None:
                target = x0 + scale * (1 - level) / level**0.5 * push(x0) * (1 - mask)
            x_t = scheduler.step(target.float(), scheduler.timesteps[number], x_t).prev_sample
            then = alpha_bar[number + 1]
            x_t = torch.lerp(x_t, then**0.5 * object_ + (1 - then) ** 0.5 * eps, mask)
        return x0[:count].float().cpu()


def _scheduler(timesteps, alpha_bar):
    """diffusers' UniPC on the given noise levels, which it takes x̂0 at."""
    from diffusers import UniPCMultistepScheduler

    scheduler = UniPCMultistepScheduler(prediction_type="sample", beta_start=1e-4, beta_end=0.02)
    scheduler.set_timesteps(len(timesteps))
    sigmas = ((1 - alpha_bar) / alpha_bar) ** 0.5
    scheduler.sigmas = torch.tensor([*sigmas, 0.0], dtype=torch.float32)
    scheduler.timesteps = torch.tensor(timesteps.copy())
    return scheduler
