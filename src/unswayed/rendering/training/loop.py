"""The training loop of the compact network: loss, optimizer, EMA, resume, progress."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from unswayed.choices import takes
from unswayed.errors import UserError
from unswayed.files.whole import Json
from unswayed.jobs import choose_device

from ..networks.compact import EMBEDDED, CompactConfig, CompactNetwork, load_compact, save_compact
from ..sampling import Schedule
from . import (
    PAUSE,
    STATE,
    TIMES,
    Recipe,
    TrainingSettings,
    damaged,
    learning_rate,
    read_record,
    read_tensors,
    restore_optimizer,
    stop_asked,
    tensors_under,
    write_state,
)
from .perceptual import Critic, load_critic, shifted
from .photos import Photos, holes, load_photos

LEVELS = (30, 180, 320, 500, 800)
HOLE_LEVELS = (180, 500, 800, 950)
OUTSIDE = 0.1  # weight of the error where pixels are known


def losses(
    network: nn.Module,
    clean: Tensor,
    t: Tensor,
    noise: Tensor,
    stretch: Tensor,
    known: Tensor,
    counted: Tensor,
    alpha_bar: Tensor,
    critic: Critic | None = None,
    shift: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Per picture: mean squared error of v, the negative log-likelihood of that error under the network's predicted
    variance, and the critic's distance between x̂0 and the picture (0 without a critic, and from t = 620 on).

    known: (N, 1, H, W), 1 where the network is given the pixels of the clean picture; the errors count less there.
    counted: (N, 1, H, W), 0 where errors do not count: a hole is to be filled with background, not with an object.
    """
    a = alpha_bar[t].sqrt().view(-1, 1, 1, 1)
    s = (1 - alpha_bar[t]).sqrt().view(-1, 1, 1, 1)
    noise = noise * stretch.view(-1, 1, 1, 1)
    x_t = (a * clean + s * noise).contiguous(memory_format=torch.channels_last)
    given = torch.cat([clean * known, known], dim=1).contiguous(memory_format=torch.channels_last)
    with torch.autocast(clean.device.type, torch.bfloat16):
        out = network(x_t, t, given)
    out = out.float()
    error = (out[:, :3] - (a * noise - s * clean)).square()
    log_variance = out[:, 3:].clamp(-14, 4)
    doubt = 0.5 * (error.detach() * torch.exp(-log_variance) + log_variance)
    weight = (1 - (1 - OUTSIDE) * known) * counted
    weight = weight / (3 * weight.sum(dim=(1, 2, 3), keepdim=True).clamp_min(1))
    unlike = torch.zeros_like(a.flatten())
    if critic is not None and shift is not None:
        x0 = torch.lerp(clean, a * x_t - s * out[:, :3], (1 - known) * counted)
        with torch.autocast(clean.device.type, torch.bfloat16):
            unlike = critic(shifted(x0, shift), shifted(clean, shift)) * (t < 620)
    return (error * weight).sum(dim=(1, 2, 3)), (doubt * weight).sum(dim=(1, 2, 3)), unlike


def noise_levels(recipe: Recipe, filling: Tensor, generator: torch.Generator) -> Tensor:
    """(N,) timesteps in 0…999; filling: (N,) bool, pictures with a hole, which is filled from pure noise."""
    u = torch.rand(len(filling), generator=generator, device=filling.device)
    far = torch.rand(len(filling), generator=generator, device=filling.device) >= recipe.near
    edited = torch.where(far, 620 + u * 380, 620 * u**1.5)
    return torch.where(filling, 1000 * u**0.8, edited).long().clamp(0, 999)


class Trainer:
    """A run that can be stopped and resumed: `DIR/state.json` and the tensors file that it names hold its state.

    begun: a network to start from, instead of random weights.
    """

    def __init__(
        self,
        recipe: Recipe,
        photos: Photos,
        held: Tensor,
        folder: Path,
        compiled: bool = True,
        critic: Critic | None = None,
        begun: CompactNetwork | None = None,
    ) -> None:
        self.recipe, self.photos, self.held, self.folder = recipe, photos, held, folder
        self.device = photos.pixels.device
        self.critic = None if critic is None else critic.to(self.device).to(memory_format=torch.channels_last)
        self.origin: Json = {}
        if critic is not None:
            self.origin["critic_sha256"] = critic.digest
        torch.manual_seed(recipe.seed)
        self.network = _fresh(self.device)
        if begun is not None:
            try:
                self.network.load_state_dict(begun.state_dict())
            except RuntimeError:
                raise UserError(
                    "the network to start from has another shape than the network to train",
                    allowed=f"channels {self.network.config.channels}, as in the embedded network",
                ) from None
            self.origin["begun_from"] = dict(begun.config.trained)
        self.average = _fresh(self.device)
        self.average.load_state_dict(self.network.state_dict())
        inner = {
            id(p)
            for n, p in self.network.named_parameters()
            if p.ndim == 4 and not n.startswith(("conv_in", "conv_out"))
        }
        everything = list(self.network.parameters())
        self.optimizers: list[torch.optim.Optimizer] = [
            Muon([p for p in everything if id(p) in inner], lr=recipe.lr),
            torch.optim.AdamW(
                [p for p in everything if id(p) not in inner],
                lr=recipe.lr,
                betas=(0.9, 0.99),
                weight_decay=0.0,
                fused=self.device.type == "cuda",
            ),
        ]
        self.alpha_bar = torch.from_numpy(Schedule.respaced().alpha_bar).float().to(self.device)
        self.losses: Callable[..., tuple[Tensor, Tensor, Tensor]] = torch.compile(losses) if compiled else losses
        self.step, self.seconds = 0, 0.0
        self.log: list[Json] = []

    def generator(self) -> torch.Generator:
        """A random generator for this step only, so that a resumed run draws the same numbers."""
        return torch.Generator(self.device).manual_seed(self.recipe.seed * 1_000_003 + self.step)

    def advance(self) -> tuple[Tensor, Tensor]:
        """One optimizer step; returns the batch's timesteps and losses, still on the device."""
        recipe, generator = self.recipe, self.generator()
        clean, objects = self.photos.crops(recipe.batch, generator)
        known, filling = self.photos.known(recipe.batch, generator)
        counted = 1 - objects * (1 - known) * filling.view(-1, 1, 1, 1)
        t = noise_levels(recipe, filling, generator)
        noise = torch.randn(clean.shape, generator=generator, device=self.device).contiguous(
            memory_format=torch.channels_last
        )
        stretch = 1 + recipe.spread * torch.randn(recipe.batch, generator=generator, device=self.device)
        stretch[::2] = 1
        shift = torch.randint(0, 9, (2,), generator=generator, device=self.device)
        error, doubt, unlike = self.losses(
            self.network, clean, t, noise, stretch, known, counted, self.alpha_bar, self.critic, shift
        )
        (error.mean() + recipe.doubt_weight * doubt.mean() + recipe.perceptual * unlike.mean()).backward()
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(recipe, self.step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        # Power-function profile: the weight of the new parameters falls as (γ + 1) / step, where γ is the exponent for
        # the relative width `ema` (Karras et al. 2024, appendix C).
        gamma = float(np.roots([1, 7, 16 - recipe.ema**-2, 12 - recipe.ema**-2]).real.max())
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self.average.parameters()), list(self.network.parameters()), 1 - (1 - 1 / self.step) ** (gamma + 1)
            )
        return t, error.detach()

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """The averaged network's loss on the held-out photographs, at fixed timesteps with fixed noise."""
        result: dict[str, float] = {}
        if len(self.held) == 0:
            return result
        draws = torch.Generator(self.device).manual_seed(1)
        noise = torch.randn(self.held.shape, generator=draws, device=self.device)
        ones = torch.ones(len(self.held), device=self.device)
        around = 1 - holes(len(self.held), self.photos.silhouettes, draws)
        for name, given, levels in (("", torch.zeros_like(around), LEVELS), (" filling", around, HOLE_LEVELS)):
            for level in levels:
                t = torch.full((len(self.held),), level, device=self.device)
                parts = [
                    losses(self.average, c, i, n, o, k, k * 0 + 1, self.alpha_bar, self.critic, torch.zeros_like(t[:2]))
                    for c, i, n, o, k in zip(*(x.split(25) for x in (self.held, t, noise, ones, given)), strict=True)
                ]
                result[f"{level}{name}"] = round(float(torch.cat([part[0] for part in parts]).mean()), 5)
                if self.critic is not None and not name:
                    result[f"{level} unlike"] = round(float(torch.cat([part[2] for part in parts]).mean()), 5)
        return result

    def run(self, minutes: float | None = None, every: int = 1000, say: Callable[[str], None] | None = None) -> bool:
        """Train until the recipe's last step or until the time is over; True when the recipe is finished.

        The state is saved every few minutes and at the end. Ctrl-C and SIGTERM end the run with a KeyboardInterrupt
        after the current step is done and saved.
        """
        say = say or (lambda line: print(line, file=sys.stderr, flush=True))
        with stop_asked() as asked:
            self._run(minutes, every, say, asked)
            self.save()
            if asked.is_set():
                raise KeyboardInterrupt
        return self.step >= self.recipe.steps

    def _run(self, minutes: float | None, every: int, say: Callable[[str], None], asked: threading.Event) -> None:
        begin, before = time.monotonic(), self.seconds
        saved, cost = begin, 0.0
        since, mark, sums = begin, self.step, torch.zeros(len(LEVELS), 2, device=self.device)
        edges = torch.tensor([100, 250, 400, 620], device=self.device)
        end = float("inf") if minutes is None else begin + 60 * minutes
        while self.step < self.recipe.steps and time.monotonic() < end and not asked.is_set():
            t, error = self.advance()
            bucket = torch.bucketize(t, edges, right=True)
            sums[:, 0].index_add_(0, bucket, error)
            sums[:, 1].index_add_(0, bucket, torch.ones_like(error))
            if self.step % every == 0 or self.step == self.recipe.steps:
                by_level = (sums[:, 0] / sums[:, 1].clamp(min=1)).tolist()
                now = time.monotonic()
                rate = (self.step - mark) * self.recipe.batch / (now - since)
                entry = {
                    "step": self.step,
                    "lr": learning_rate(self.recipe, self.step),
                    "samples_per_second": round(rate),
                    "loss": [round(x, 5) for x in by_level],
                    "held_out": self.validate(),
                }
                self.log.append(entry)
                say(json.dumps(entry))
                sums.zero_()
                since, mark = time.monotonic(), self.step
            now = time.monotonic()
            self.seconds = before + now - begin
            if now - saved >= max(PAUSE, TIMES * cost):
                self.save()
                saved = time.monotonic()
                cost = saved - now

    def save(self) -> None:
        """Write the whole state, and the averaged network as `load_network` reads it."""
        tensors = nn.ModuleDict({"network": self.network, "average": self.average}).state_dict()
        for number, optimizer in enumerate(self.optimizers):
            for index, state in optimizer.state_dict()["state"].items():
                tensors |= {f"optimiser.{number}.{index}.{k}": torch.as_tensor(v) for k, v in state.items()}
        record = {
            "step": self.step,
            "seconds": self.seconds,
            "recipe": asdict(self.recipe),
            "photographs": self.photos.digest,
            "origin": self.origin,
            "log": self.log,
        }
        write_state(self.folder, record, tensors)
        trained = {
            "steps": self.step,
            "samples": self.step * self.recipe.batch,
            "seconds": round(self.seconds),
            "recipe": asdict(self.recipe),
            "photographs": len(self.photos.names),
            "photographs_sha256": self.photos.digest,
            **self.origin,
        }
        self.average.config = replace(self.average.config, trained=trained)
        save_compact(self.average, self.folder)

    def resume(self) -> None:
        """Resume from the folder's state; the recipe may differ only in `steps` and `decay`."""
        record = read_record(self.folder)
        mine = asdict(self.recipe)
        differing = [k for k in mine if k not in ("steps", "decay") and mine[k] != record["recipe"].get(k)]
        if record["photographs"] != self.photos.digest:
            differing.append("photographs")
        if record["origin"].get("critic_sha256") != self.origin.get("critic_sha256"):
            differing.append("critic")
        if differing:
            raise UserError(
                f"{self.folder} holds a run with a different {', '.join(differing)}",
                run="choose another -o, or give the same values",
            )
        tensors = read_tensors(self.folder, record, self.device)
        try:
            self.network.load_state_dict(tensors_under(tensors, "network."))
            self.average.load_state_dict(tensors_under(tensors, "average."))
            for number, optimizer in enumerate(self.optimizers):
                restore_optimizer(optimizer, tensors_under(tensors, f"optimiser.{number}."))
        except torch.OutOfMemoryError:
            raise  # the state itself is not damaged
        except (KeyError, ValueError, RuntimeError) as error:
            raise damaged(self.folder / STATE, error) from None
        self.step, self.seconds, self.log = record["step"], record["seconds"], record["log"]
        self.origin = record["origin"]


@takes(TrainingSettings)
def train(paths: list[str | Path], folder: str | Path, recipe: Recipe, settings: TrainingSettings) -> Trainer:
    """Train the compact network on the photographs, or resume; the averaged network is written to the folder.

    The fields of settings are also keywords.
    """
    folder, target, begin = Path(folder), choose_device(settings.device), settings.begin
    torch.backends.cudnn.benchmark = True
    photos, held = load_photos(paths, recipe.held_out, target)
    judge = None if settings.critic is None else load_critic(settings.critic)
    begun = None
    if begin is not None:
        if str(begin) != "compact" and not (Path(begin) / "config.json").is_file():
            raise UserError(f"there is no network in {begin}", allowed="compact, or a folder that train-network wrote")
        begun = load_compact(EMBEDDED if str(begin) == "compact" else begin)
    trainer = Trainer(recipe, photos, held, folder, settings.compiled, judge, begun)
    if (folder / STATE).exists():
        trainer.resume()
    trainer.run(settings.minutes, settings.every)
    return trainer


def _fresh(device: torch.device) -> CompactNetwork:
    return CompactNetwork(CompactConfig()).to(device).to(memory_format=torch.channels_last)


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """(K, R, C) -> the nearest matrices with singular values near one, by a quintic Newton–Schulz iteration in bf16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Orthogonalized momentum on parameters of two or more dimensions, scaled to suit AdamW's learning rates."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(list(parameters), {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[tuple[int, int], list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes.setdefault((parameter.shape[0], parameter[0].numel()), []).append(parameter)
            for (rows, columns), parameters in shapes.items():
                gradients = [p.grad for p in parameters if p.grad is not None]
                buffers = [self.state[p].setdefault("momentum", torch.zeros_like(p)) for p in parameters]
                torch._foreach_lerp_(buffers, gradients, 1 - group["momentum"])
                nesterov = torch._foreach_lerp(gradients, buffers, group["momentum"])
                stacked = torch.stack([gradient.reshape(rows, columns) for gradient in nesterov])
                # 0.2·sqrt(max side): the root mean square of an AdamW update (Liu et al. 2025).
                rate = group["lr"] * 0.2 * math.sqrt(max(rows, columns))
                update = orthogonal(stacked).float()
                torch._foreach_add_(
                    parameters, [u.view_as(p) for u, p in zip(update, parameters, strict=True)], alpha=-rate
                )
