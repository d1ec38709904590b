"""`torchscript:FILE` and `pt2:FILE`: classifiers saved by torch.jit or torch.export, with a JSON file beside each."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from unswayed.errors import UserError, unknown
from unswayed.labels import LabelSpace
from unswayed.specs import Spec

from .classifier import Classifier
from .deployed import Runtime, open_deployed


def open_torchscript(spec: Spec, labels: LabelSpace | None = None, **where: Any) -> Classifier:
    """A file of `torch.jit.save` as a classifier."""

    def load(path: Path, settings: dict[str, Any], device: str) -> Runtime:
        with warnings.catch_warnings():
            # torch deprecates TorchScript in favor of torch.export; the files that people deployed must still open.
            warnings.simplefilter("ignore")
            module = torch.jit.load(str(path), map_location=device).eval()
        return _runtime(module, settings)

    return open_deployed(spec, load, where.get("device"), gpu=True)


def open_pt2(spec: Spec, labels: LabelSpace | None = None, **where: Any) -> Classifier:
    """A file of `torch.export.save` as a classifier."""

    def load(path: Path, settings: dict[str, Any], device: str) -> Runtime:
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(torch.export.load(str(path)), device)
        entry = program.graph_signature.user_inputs[0]
        [node] = [one for one in program.graph.nodes if one.name == entry]
        return _runtime(program.module(), settings, list(node.meta["val"].shape))

    return open_deployed(spec, load, where.get("device"), gpu=True)


def _runtime(module: Any, settings: dict[str, Any], shape: Sequence[Any] | None = None) -> Runtime:
    output = settings.get("output")

    def run(pixels: torch.Tensor) -> torch.Tensor:
        return _chosen(module(pixels), output)

    return Runtime(run, f"torch {torch.__version__}", shape, str(output or ""))


def _chosen(answer: Any, output: Any) -> torch.Tensor:
    """The logits in what a network returns: a tensor, a mapping (`output` is a key) or a tuple (`output` counts)."""
    if isinstance(answer, torch.Tensor):
        return answer
    if isinstance(answer, Mapping):
        key = output if output is not None else next(iter(answer))
        if key not in answer:
            raise unknown("output", str(key), list(answer))
        return answer[key]
    if isinstance(answer, Sequence):
        place = output or 0
        if not str(place).isdecimal() or int(place) >= len(answer):
            raise unknown("output", str(place), [str(at) for at in range(len(answer))])
        return answer[int(place)]
    raise UserError(f"the model returns a {type(answer).__name__}", allowed="a tensor, a tuple or a dict of tensors")
