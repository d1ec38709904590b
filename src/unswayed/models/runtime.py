"""How networks are run: in full float32, in evaluation mode, and from ONNX files."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unswayed.errors import UserError, first_line, need

if TYPE_CHECKING:
    import torch
    from torch import nn


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """A block in which a network is in evaluation mode and its weights take no gradients; afterward it is as before.

    So that a network that somebody is training can be measured in between.
    """
    modes = {part: part.training for part in module.modules()}
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    if any(modes.values()):
        module.eval()
    for weight in trained:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        if modes[module]:
            module.train()
        for part, mode in modes.items():
            if part.training != mode:
                part.training = mode
        for weight in trained:
            weight.requires_grad_(True)


@contextlib.contextmanager
def watching(module: nn.Module, record: Callable[[str, nn.Module, object, Any], None]) -> Iterator[None]:
    """A block in which `record(name, layer, inputs, output)` is called after each layer inside a network has run."""
    with contextlib.ExitStack() as hooks:
        for name, layer in module.named_modules():
            if name:
                hooks.enter_context(layer.register_forward_hook(functools.partial(record, name)))
        yield


@contextlib.contextmanager
def true_float32(device: torch.device | str) -> Iterator[None]:
    """A block in which convolutions on a GPU use full float32; by default GPUs round their factors to TF32's ten bits.

    Other devices always use float32.
    """
    import torch

    if torch.device(device).type != "cuda":
        yield
        return
    convolutions: Any = torch.backends.cudnn.conv  # type: ignore[attr-defined]  # made when torch is imported
    before, convolutions.fp32_precision = convolutions.fp32_precision, "ieee"
    try:
        yield
    finally:
        convolutions.fp32_precision = before


def open_session(path: str | Path, extra: str = "models", kind: str = "network") -> Any:
    """The network in an ONNX file, ready to run on the CPU.

    extra: of this package, for the error where onnxruntime is not installed; kind: what an error calls the file.
    """
    need(extra, "onnxruntime")
    import onnxruntime

    if not Path(path).is_file():
        raise UserError(f"the network {path} does not exist", allowed="onnx:FILE, an ONNX network")
    import torch

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    # Threads that wait actively take the cores from other processes and make this one slower than one thread would be.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        # Without the fallback, which would print a banner and try the same provider again.
        return onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:
        raise UserError(f"{path} is not a readable ONNX {kind}: {first_line(error)}") from None
