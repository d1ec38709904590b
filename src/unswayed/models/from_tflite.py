"""`tflite:FILE`: a classifier in TensorFlow Lite's format, with a small JSON file beside it (see `deployed`)."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unswayed.errors import missing_extra, unknown
from unswayed.labels import LabelSpace
from unswayed.specs import Spec

from .classifier import Classifier
from .deployed import Runtime, open_deployed


def open_tflite(spec: Spec, labels: LabelSpace | None = None, **where: Any) -> Classifier:
    """A TFLite file as a classifier, run by LiteRT on the CPU; integer inputs and outputs are scaled as it states."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        raise missing_extra("ai-edge-litert", "litert") from None

    def load(path: Path, settings: dict[str, Any], device: str) -> Runtime:
        interpreter = Interpreter(model_path=str(path), num_threads=torch.get_num_threads())
        interpreter.allocate_tensors()
        [entry, *_] = interpreter.get_input_details()
        answers = {one["name"]: one for one in interpreter.get_output_details()}
        output = str(settings.get("output", next(iter(answers))))
        if output not in answers:
            raise unknown("output", output, answers)

        def run(pixels: torch.Tensor) -> Any:
            interpreter.set_tensor(entry["index"], _stored(pixels.numpy(), entry))
            interpreter.invoke()
            return _real(interpreter.get_tensor(answers[output]["index"]), answers[output])

        shape = [int(side) for side in entry["shape"]]
        return Runtime(run, f"ai-edge-litert {version('ai-edge-litert')}", shape, output)

    return open_deployed(spec, load, where.get("device"))


def _stored(values: np.ndarray, entry: dict[str, Any]) -> np.ndarray:
    """Real numbers in the type of an input: integers by its scale and zero point, others unchanged."""
    kind = entry["dtype"]
    if not np.issubdtype(kind, np.integer):
        return values.astype(kind)
    scale, zero = entry["quantization"]
    limits = np.iinfo(kind)
    return np.clip(np.rint(values / (scale or 1.0) + zero), limits.min, limits.max).astype(kind)


def _real(values: np.ndarray, answer: dict[str, Any]) -> np.ndarray:
    """The inverse of `_stored`, for an output."""
    if not np.issubdtype(answer["dtype"], np.integer):
        return values
    scale, zero = answer["quantization"]
    return (values.astype(np.float32) - zero) * (scale or 1.0)
