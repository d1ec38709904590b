"""`openvino:FILE.xml`: a classifier in OpenVINO's format, with a small JSON file beside it (see `deployed`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from unswayed.errors import missing_extra, unknown
from unswayed.labels import LabelSpace
from unswayed.specs import Spec

from .classifier import Classifier
from .deployed import Runtime, open_deployed


def open_openvino(spec: Spec, labels: LabelSpace | None = None, **where: Any) -> Classifier:
    """A model that OpenVINO reads (.xml with its .bin, or .onnx, .tflite), run on the CPU in float32."""
    try:
        import openvino
    except ImportError:
        raise missing_extra("openvino", "openvino") from None

    def load(path: Path, settings: dict[str, Any], device: str) -> Runtime:
        core = openvino.Core()
        # Without the hint some processors compute in bfloat16; a quantized model keeps its integers in any case.
        hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
        compiled = core.compile_model(core.read_model(str(path)), "CPU", hints)
        names = [port.any_name if port.names else str(at) for at, port in enumerate(compiled.outputs)]
        output = str(settings.get("output", names[0]))
        if output not in names:
            raise unknown("output", output, names)
        shape = [one.get_length() if one.is_static else None for one in compiled.inputs[0].partial_shape]
        port = compiled.outputs[names.index(output)]

        def run(pixels: torch.Tensor) -> Any:
            # A copy, since the next run writes to the same memory.
            return compiled([pixels.numpy()])[port].copy()

        tensors = path.with_suffix(".bin")
        version = openvino.__version__.partition("-")[0]
        beside = (tensors,) if path.suffix == ".xml" and tensors.is_file() else ()
        return Runtime(run, f"openvino {version}", shape, output, beside)

    return open_deployed(spec, load, where.get("device"))
