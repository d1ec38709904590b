"""The state of a run on disk, for resuming, and signals that wait for the current step."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from unswayed.errors import UserError
from unswayed.files.tensor_files import write_tensor_file
from unswayed.files.whole import PART, read_json, remove_file, write_json

STATE = "state.json"
# Seconds between two saves, at least, and the same in multiples of the last save's time: saving takes at most 2 %.
PAUSE, TIMES = 180.0, 50.0


def write_state(folder: Path, record: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write the state of a step: the tensors in their own file, then `state.json`, which names that file.

    A run that is killed in between still has the previous state. Files that are no longer named are removed.
    """
    name = f"state-{record['step']}.safetensors"
    write_tensor_file(folder / name, tensors)
    write_json(folder / STATE, {**record, "tensors": name})
    for old in [*folder.glob("state*.safetensors"), *folder.glob(f".*{PART}")]:
        if old.name != name:
            remove_file(old)


def read_record(folder: Path) -> dict[str, Any]:
    """The content of `state.json`."""
    record = read_json(folder / STATE)
    needed = ("step", "seconds", "recipe", "photographs", "origin", "log")
    if not isinstance(record, dict) or any(name not in record for name in needed):
        raise damaged(folder / STATE, "it is incomplete")
    return record


def read_tensors(folder: Path, record: dict[str, Any], device: torch.device) -> dict[str, Tensor]:
    """The tensors that belong to the record."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / str(record.get("tensors", "state.safetensors"))
    try:
        return load_file(path, device=str(device))
    except (SafetensorError, OSError) as error:
        raise damaged(path, error) from None


def tensors_under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Load the state of an optimizer from tensors named `position of the parameter.name`."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        place, _, entry = name.partition(".")
        # A fused optimizer needs its state in the same memory format as the weights.
        laid_out = tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor
        state.setdefault(int(place), {})[entry] = laid_out
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
    before: dict[signal.Signals, Any] = {}

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()
        restore()
        # Not `print`: the signal may arrive during another `print`.
        os.write(2, b"stopping after this step; press Ctrl-C again to stop at once\n")

    def restore() -> None:
        for one, handler in before.items():
            signal.signal(one, handler or signal.SIG_DFL)

    if threading.current_thread() is threading.main_thread():
        before = {one: signal.signal(one, ask) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        restore()
