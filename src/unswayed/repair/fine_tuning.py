"""One arm of a repair: a network fine-tuned on photographs, edited or not; stopped or killed it resumes exactly.

Whatever is drawn at a step (the order, the crops, the edits, dropout) follows from the seed and the step alone, so a
run that is resumed on a CPU has the losses of one that was never stopped, to the last digit.
"""

from __future__ import annotations

import copy
import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from unswayed.edits.batch_edit import BatchEdit
from unswayed.errors import UserError
from unswayed.files.whole import Json
from unswayed.models.classifier import Classifier
from unswayed.rendering.training import (
    STATE,
    read_record,
    read_tensors,
    restore_optimizer,
    stop_asked,
    tensors_under,
    write_state,
)

from .family import FROM_SCRATCH, choose_parameters, family_of, make_optimizer, training_mode
from .photographs import Batch, Photographs, training_crops
from .settings import Arm, RepairSettings

SAVE_EVERY = 60.0  # seconds
VALIDATION_BATCH = 64
State = tuple[Json, dict[str, Tensor]]  # a record and tensors


@dataclass(frozen=True)
class Progress:
    """How far a run is: steps done of all, and the last loss."""

    arm: str
    step: int
    steps: int
    loss: float


@dataclass(eq=False)
class TrainedArm:
    """A finished arm: the averaged network of the best epoch, and what the card says of its training."""

    module: nn.Module
    history: Json


class FineTuning:
    """Fine-tunes a model's network on `train`, chooses the epoch on `validation`, keeps the state in `folder`.

    members: for each target the outputs of the network that stand for it. The control sees the same photographs,
    crops and number of steps as the repaired arm, without edits; both choose their epoch by the same loss, over the
    validation photographs and edits of them.
    """

    def __init__(
        self,
        model: Classifier,
        members: Sequence[Sequence[int]],
        train: Photographs,
        validation: Photographs,
        settings: RepairSettings,
        arm: Arm,
        folder: Path,
    ) -> None:
        family = family_of(model)
        self.pretrained = family is not FROM_SCRATCH
        settings = settings.for_photographs(len(train), pretrained=self.pretrained)
        self.model, self.train, self.validation = model, train, validation
        self.settings, self.arm, self.folder = settings, arm, folder
        self.batch_size = min(settings.batch_size or 1, len(train))
        self.device = str(model.device)
        kind = torch.device(self.device).type
        self.precision = settings.precision or ("bf16" if kind == "cuda" else "fp32")
        self.module = copy.deepcopy(model.module)
        self.trained = choose_parameters(model, self.module, settings)
        self.optimizer, self.decided = make_optimizer(family, self.module, settings, len(train))
        self.average = copy.deepcopy(self.module).requires_grad_(False).eval()
        self.parameters = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        self.edit = BatchEdit(settings.mixture)
        # A consistency loss compares each edited picture with the plain one, which is passed through as well.
        self.in_pairs = settings.consistency > 0 and arm == "repaired"
        # (targets, outputs) bool: which outputs stand for which target
        self.members = torch.zeros(len(members), len(model.labels), dtype=torch.bool, device=self.device)
        for target, group in enumerate(members):
            self.members[target, list(group)] = True
        self.per_epoch = max(len(train) // self.batch_size, 1)
        self.steps = self.per_epoch * settings.epochs
        self.step, self.written, self.seconds = 0, 0, 0.0
        self.log: list[dict[str, float]] = []
        self.losses: list[float] = []
        self.best: dict[str, Tensor] = {}
        self.best_epoch, self.best_loss = 0, float("inf")
        self._views: list[tuple[Tensor, Tensor]] | None = None
        code = model.origin.get("code_sha256")  # two functions of one file can return the same weights
        self.identity = {
            "arm": arm,
            "model": model.weights_hash if code is None else [model.spec, model.weights_hash, code],
            "settings": settings.to_json(),
            "train": train.digest,
            "validation": validation.digest,
            "device": kind,
        }

    def run(self, report: Callable[[Progress], None] | None = None) -> TrainedArm:
        """Train to the end from the start or from the state in the folder; report: called after every step."""
        self._resume()
        if not self.log and self.pretrained:
            # The network as it is can turn out to be the best: then training has not helped, and it stays.
            self._validate()
        with stop_asked() as asked:
            self._to_the_end(report or (lambda now: None), asked.is_set)
        self.average.load_state_dict({**self.average.state_dict(), **self.best})
        history = {
            **self.decided,
            "precision": self.precision,
            "trained_parameters": sum(weight.numel() for weight in self.parameters),
            "pictures_per_step": self.batch_size * (1 + self.in_pairs),
            "steps": self.step,
            "steps_planned": self.steps,
            "best_epoch": self.best_epoch,
            "epochs": self.log,
            "losses": self.losses,
            "seconds": round(self.seconds, 1),
        }
        return TrainedArm(self.average, history)

    def _to_the_end(self, report: Callable[[Progress], None], stop: Callable[[], bool]) -> None:
        """Train to the last step or an early stop; a state is written once its own loss and gradient are finite."""
        begun, before = time.monotonic(), self.step
        due, waiting = begun + SAVE_EVERY, None
        if not self.step:
            self._write(self._state(0.0))
        while self.step < self.steps and not self._waited_enough():
            epoch, within = divmod(self.step, self.per_epoch)
            plan = self._plan(epoch)[within * self.settings.accumulate :]
            parts: list[Batch] = []
            for part in self.train.batches(plan, self.device):
                parts.append(part)
                if len(parts) < self.settings.accumulate:
                    continue
                loss = self._gradients(parts)
                parts = []
                if waiting is not None:
                    self._write(waiting)
                    waiting = None
                    if stop():
                        raise KeyboardInterrupt
                self._update(loss)
                report(Progress(self.arm, self.step, self.steps, self.losses[-1]))
                if self.step % self.per_epoch == 0:
                    self._validate()
                if stop() or time.monotonic() > due:
                    waiting = self._state(self.seconds + time.monotonic() - begun)
                    due = time.monotonic() + SAVE_EVERY
        if self.step > before:
            self.seconds += time.monotonic() - begun
            self._write(self._state(self.seconds))
        if stop():
            raise KeyboardInterrupt

    def _resume(self) -> None:
        """Continue from the state in the folder if it is that of this very run; a state without a step is replaced."""
        if not (self.folder / STATE).is_file():
            return
        record = read_record(self.folder)
        if not record["step"]:
            return
        if record["recipe"] != self.identity:
            changed = [name for name in self.identity if record["recipe"].get(name) != self.identity[name]]
            raise UserError(
                f"{self.folder} holds a run with other {', '.join(changed) or 'settings'}",
                allowed="the same command to resume it, or another -o",
                run=f"rm -r {self.folder}  # to start again",
            )
        tensors = read_tensors(self.folder, record, torch.device(self.device))
        self.module.load_state_dict(tensors_under(tensors, "module."))
        self.average.load_state_dict(tensors_under(tensors, "average."))
        self.best = tensors_under(tensors, "best.")
        restore_optimizer(self.optimizer, tensors_under(tensors, "optimizer."))
        self.step, self.seconds, self.log = record["step"], record["seconds"], record["log"]
        self.written = self.step
        self.losses = record["losses"]
        self.best_epoch = record["best_epoch"]
        self.best_loss = math.inf if record["best_loss"] is None else record["best_loss"]

    def _state(self, seconds: float) -> State:
        """A copy of everything that resuming needs: the record and the tensors, in the main memory."""
        states = {"module": self.module.state_dict(), "average": self.average.state_dict(), "best": self.best}
        states |= {f"optimizer.{index}": state for index, state in self.optimizer.state_dict()["state"].items()}
        tensors = {f"{part}.{name}": tensor for part, state in states.items() for name, tensor in state.items()}
        record = {
            "step": self.step,
            "seconds": seconds,
            "recipe": self.identity,
            "photographs": len(self.train),
            "origin": self.model.name,
            "log": list(self.log),
            "losses": list(self.losses),
            "best_epoch": self.best_epoch,
            "best_loss": None if math.isinf(self.best_loss) else self.best_loss,
        }
        # Copies, since training goes on, and a network may hold one tensor under two names, which the format refuses.
        return record, {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}

    def _write(self, state: State) -> None:
        write_state(self.folder, *state)
        self.written = state[0]["step"]

    def _plan(self, epoch: int) -> list[np.ndarray]:
        """The positions of every pass of an epoch; the photographs beyond the last full step are left out of it."""
        order = np.random.default_rng([self.settings.seed, epoch]).permutation(len(self.train))
        passes = order[: self.per_epoch * self.batch_size].reshape(self.per_epoch, self.batch_size)
        return [part for step in passes for part in np.array_split(step, self.settings.accumulate)]

    def _gradients(self, parts: list[Batch]) -> float:
        """The mean loss of a step over its passes, with clipped gradients; neither may be infinite or NaN."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["rate"] * _schedule(self.step, self.steps, self.settings.warmup)
        training_mode(self.module, self.decided["freeze_norm"])
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.device)
        for number, batch in enumerate(parts):
            generator = torch.Generator().manual_seed(_seed(self.settings.seed, self.step, number))
            # Dropout and stochastic depth draw from torch's own generators.
            torch.manual_seed(_seed(self.settings.seed, self.step, number, "dropout"))
            loss = self._loss(batch, generator) / len(parts)
            loss.backward()
            total += loss.detach()
        norm = nn.utils.clip_grad_norm_(self.parameters, 5.0)
        for what, value in (("loss", total), ("gradient", norm)):
            if not math.isfinite(float(value)):
                raise self._diverged(what, self.step + 1)
        return float(total)

    def _update(self, loss: float) -> None:
        """Take the optimizer step whose gradients are computed, and let the averaged network follow."""
        self.optimizer.step()
        self.step += 1
        self.losses.append(loss)
        decay = min(self.settings.ema, self.step / (self.step + 10))
        with torch.no_grad():
            for kept, now in zip(self.average.parameters(), self.module.parameters(), strict=True):
                kept.lerp_(now, 1 - decay)
            for held, buffer in zip(self.average.buffers(), self.module.buffers(), strict=True):
                held.copy_(buffer)

    def _loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        settings = self.settings
        images, masks = batch.images, batch.masks
        # Drawn in both arms, so that both go on with the same crops.
        draws = self.edit.draw(len(images), generator)
        if self.arm == "repaired":
            images, masks = self.edit(images, masks, batch.removed, usable=batch.masked, draws=draws)
        crops_seed = int(torch.randint(2**62, (), generator=generator))
        crops = self._crops(images, masks, crops_seed)
        if not self.in_pairs:
            return self._nll(self._forward(crops), batch.targets)
        plain = self._crops(batch.images, batch.masks, crops_seed)
        edited, before = self._forward(torch.cat([crops, plain])).chunk(2)
        apart = nn.functional.kl_div(
            edited.log_softmax(1), before.detach().log_softmax(1), reduction="batchmean", log_target=True
        )
        loss = (self._nll(edited, batch.targets) + self._nll(before, batch.targets)) / 2
        return loss + settings.consistency * apart

    def _crops(self, images: Tensor, masks: Tensor, seed: int) -> Tensor:
        transform = self.model.transform
        generator = torch.Generator().manual_seed(seed)
        return transform.normalize(training_crops(images, masks, transform, self.settings.crop, generator))

    def _forward(self, pixels: Tensor, network: nn.Module | None = None) -> Tensor:
        network = network or self.module
        pixels = pixels.contiguous(memory_format=torch.channels_last)
        if self.precision == "fp32":
            return network(pixels).float()
        with torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16):
            return network(pixels).float()

    def _nll(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy where a target may be several outputs: the log of their summed probability."""
        of_target = logits.masked_fill(~self.members[targets], float("-inf"))
        return (logits.logsumexp(1) - of_target.logsumexp(1)).mean()

    @torch.no_grad()
    def _validate(self) -> None:
        """The averaged network's loss and accuracy on the validation photographs, and on fixed edits of them."""
        record: dict[str, float] = {"epoch": self.step // self.per_epoch}
        if len(self.validation):
            losses, right = [], []
            for pictures, targets in self._validation_views():
                logits = torch.cat(
                    [
                        self._forward(self.model.transform.differentiable(part.float().div_(255)), self.average)
                        for part in pictures.split(VALIDATION_BATCH)
                    ]
                )
                losses.append(float(self._nll(logits, targets)))
                right.append(float(self.members[targets, logits.argmax(1)].float().mean()))
            if not math.isfinite(sum(losses)):
                raise self._diverged("validation loss", self.step)
            record |= {"loss": sum(losses) / 2, "accuracy": right[0], "edited_accuracy": right[1]}
        self.log.append(record)
        if record.get("loss", -float(self.step)) < self.best_loss:
            self.best_loss, self.best_epoch = record.get("loss", -float(self.step)), int(record["epoch"])
            self.best = {name: tensor.detach().clone() for name, tensor in self.average.state_dict().items()}

    def _validation_views(self) -> list[tuple[Tensor, Tensor]]:
        if self._views is None:
            parts = [np.arange(len(self.validation))[i : i + 256] for i in range(0, len(self.validation), 256)]
            plain, edited, targets = [], [], []
            for number, batch in enumerate(self.validation.batches(parts, self.device)):
                generator = torch.Generator().manual_seed(_seed(self.settings.seed, number, "validation"))
                draws = self.edit.draw(len(batch.images), generator)
                plain.append(batch.images)
                edited.append(self.edit(batch.images, batch.masks, batch.removed, usable=batch.masked, draws=draws)[0])
                targets.append(batch.targets)
            self._views = [(torch.cat(pictures), torch.cat(targets)) for pictures in (plain, edited)]
        return self._views

    def _waited_enough(self) -> bool:
        epoch = self.step // self.per_epoch
        whole = self.step % self.per_epoch == 0
        return bool(len(self.validation)) and whole and epoch - self.best_epoch >= self.settings.patience

    def _diverged(self, what: str, step: int) -> UserError:
        return UserError(
            f"the {what} of the {self.arm} run is not a finite number at step {step} of {self.steps}; the last good "
            f"state, after step {self.written}, is kept in {self.folder}",
            allowed="a smaller --learning-rate, or --precision fp32, with another -o",
        )


def _schedule(step: int, steps: int, warmup: float) -> float:
    """The learning rate's factor: a linear rise, then half a cosine down to zero."""
    rise = max(round(warmup * steps), 1)
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(steps - rise, 1)))


def _seed(*what: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=7).digest(), "little")
