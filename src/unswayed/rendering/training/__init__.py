"""Training of the compact diffusion network: its recipe, and the state of a run on disk."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from unswayed.choices import DEVICE, check_settings, option
from unswayed.errors import UserError
from unswayed.files.whole import PART, Json, read_json, remove_file, write_json

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Recipe:
    """Everything besides the photographs that decides the result.

    decay: at the end of the steps; near: the share of timesteps drawn below 620 of 1000 (edits use no higher ones),
    skewed toward little noise; spread: relative standard deviation of the error added to the noise level of half of
    each batch, so that the network tolerates a sampler's small errors; ema: relative width of the power-function
    average (Karras et al. 2024); perceptual: of the critic's distance, if there is a critic.
    """

    steps: int = option(17500, "Total number of optimizer steps.", least=1)
    batch: int = option(128, "Batch size.", least=1)
    lr: float = option(2e-3, "Peak learning rate.")
    warmup: int = option(300, "Number of warm-up steps.", least=1)
    decay: float = option(0.5, "Share of the steps in which the learning rate decays to zero.", least=0, most=1)
    near: float = 0.92
    spread: float = 0.02
    ema: float = 0.05
    doubt_weight: float = 0.02
    perceptual: float = option(0.04, "Weight of the perceptual loss.", least=0)
    held_out: int = option(50, "Number of photographs held out for validation.", least=0)
    seed: int = option(0, "Random seed of the weights, the crops and the noise.")

    def __post_init__(self) -> None:
        check_settings(self)
        if not 0 < self.lr <= 1:
            raise UserError(f"the learning rate is {self.lr}", allowed="above 0, at most 1")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How a training runs, which does not decide the result, and what it starts from."""

    begin: str | Path | None = option(
        None, "Start from a network: a folder that this command wrote, or `compact`.", flags=("--from",)
    )
    critic: Path | str | None = option(
        None,
        "FID's Inception network, for a perceptual loss on its features: the file of `unswayed weights fetch "
        "inception`, or a file with its tensors.",
    )
    minutes: float | None = option(None, "Stop after this time; run the same command to resume.")
    every: int = option(1000, "Number of steps between two lines of progress.", least=1)
    device: str | None = option(None, DEVICE)
    compiled: bool = option(True, "Compile the network first.", flags=("--compile/--no-compile",))

    def __post_init__(self) -> None:
        if self.minutes is not None and not self.minutes > 0:
            raise UserError(f"the time limit is {self.minutes:g} minutes", allowed="above 0")


def learning_rate(recipe: Recipe, step: int) -> float:
    """The learning rate of a step: warm-up, constant, then linear to zero."""
    falling = (recipe.steps - step) / max(1, recipe.decay * recipe.steps)
    return recipe.lr * max(0.0, min(1.0, (step + 1) / recipe.warmup, falling))


STATE = "state.json"
# Seconds between two saves, at least, and the same in multiples of the last save's time: saving takes at most 2 %.
PAUSE, TIMES = 180.0, 50.0


def write_state(folder: Path, record: dict[str, object], tensors: dict[str, Tensor]) -> None:
    """Write the state of a step: the tensors in their own file, then `state.json`, which names that file.

    A run that is killed in between still has the previous state. Files that are no longer named are removed.
    """
    from unswayed.files.tensor_files import write_tensor_file

    name = f"state-{record['step']}.safetensors"
    write_tensor_file(folder / name, tensors)
    write_json(folder / STATE, {**record, "tensors": name})
    for old in [*folder.glob("state*.safetensors"), *folder.glob(f".*{PART}")]:
        if old.name != name:
            remove_file(old)


def read_record(folder: Path) -> Json:
    record = read_json(folder / STATE)
    needed = ("step", "seconds", "recipe", "photographs", "origin", "log")
    if not isinstance(record, dict) or any(name not in record for name in needed):
        raise damaged(folder / STATE, "it is incomplete")
    return record


def read_tensors(folder: Path, record: dict[str, object], device: torch.device) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / str(record.get("tensors", "state.safetensors"))
    try:
        return load_file(path, device=str(device))
    except (SafetensorError, OSError) as error:
        raise damaged(path, error) from None


def tensors_under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Load the state of an optimizer from tensors named `position of the parameter.name`."""
    import torch

    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, entry = name.partition(".")
        # A fused optimizer needs its state in the same memory format as the weights.
        laid_out = tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor
        state.setdefault(int(part), {})[entry] = laid_out
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def damaged(path: Path, error: object) -> UserError:
    """The error for a state that cannot be read."""
    return UserError(
        f"the run cannot be resumed: {path} is damaged: {str(error).partition(chr(10))[0]}",
        run=f"rm {path.parent / STATE} to start again, or choose another -o",
    )


@contextmanager
def stop_asked() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets, to finish the current step; the second has its usual effect."""
    asked = threading.Event()
    before: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()
        restore()
        # Not `print`: the signal may arrive during another `print`.
        os.write(2, b"stopping after this step; press Ctrl-C again to stop at once\n")

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        restore()
