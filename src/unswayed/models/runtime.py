"""How networks are run: in full float32, in evaluation mode, and from ONNX files."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unswayed.errors import UserError, first_line, need

if TYPE_CHECKING:
    import torch
    from onnxruntime import InferenceSession
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
def watching(module: nn.Module, record: Callable[[str, nn.Module, object, torch.Tensor], None]) -> Iterator[None]:
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
    convolutions = torch.backends.cudnn.conv  # type: ignore[attr-defined]  # made when torch is imported
    before, convolutions.fp32_precision = convolutions.fp32_precision, "ieee"
    try:
        yield
    finally:
        convolutions.fp32_precision = before


class CudaGraphs:
    """A function of tensors that a GPU replays: it is recorded once for each shape of its inputs, so that no time goes
    into launching its kernels one by one; the numbers are the same. Elsewhere it is simply called.

    What it returns is overwritten by the next call. A function that cannot be recorded, such as one that waits for the
    GPU, is called as it is.
    """

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        self.function = function
        self.recorded: dict[object, tuple[torch.cuda.CUDAGraph, list[torch.Tensor | None], torch.Tensor] | None] = {}

    def __call__(self, *inputs: torch.Tensor | None) -> torch.Tensor:
        if inputs[0] is None or inputs[0].device.type != "cuda":
            return self.function(*inputs)
        key = tuple(None if value is None else (value.shape, value.stride(), value.dtype) for value in inputs)
        if key not in self.recorded:
            self.recorded[key] = self._record(inputs)
        recorded = self.recorded[key]
        if recorded is None:
            return self.function(*inputs)
        graph, given, answer = recorded
        for entry, value in zip(given, inputs, strict=True):
            if entry is not None and value is not None:
                entry.copy_(value)
        graph.replay()
        return answer

    def _record(
        self, inputs: Sequence[torch.Tensor | None]
    ) -> tuple[torch.cuda.CUDAGraph, list[torch.Tensor | None], torch.Tensor] | None:
        import torch

        given = [None if value is None else value.clone() for value in inputs]
        here, beside = torch.cuda.current_stream(), torch.cuda.Stream()
        beside.wait_stream(here)
        with torch.cuda.stream(beside):
            for _ in range(3):  # what is made at the first call, such as workspaces, cannot be recorded
                self.function(*given)
        here.wait_stream(beside)
        # One pool for all shapes: an answer is used up before the next one is made.
        pools = [made[0].pool() for made in self.recorded.values() if made is not None]
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=pools[0] if pools else None):
                answer = self.function(*given)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            return None
        return graph, given, answer


def open_session(path: str | Path, extra: str = "models", kind: str = "network") -> InferenceSession:
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
