"""`onnx:FILE`: any classifier exported to ONNX, with a small JSON file beside it (see `deployed`)."""

from __future__ import annotations

import mmap
import re
from pathlib import Path
from typing import Any

import torch

from unswayed.errors import missing_extra, unknown
from unswayed.labels import LabelSpace
from unswayed.specs import Spec

from .classifier import Classifier
from .deployed import Runtime, open_deployed

# How a protobuf states where a tensor's bytes are: the pair ("location", FILE), the name's length in one or two bytes.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x01-\x7f]|[\x80-\xff][\x01-\x7f])")


def open_onnx(spec: Spec, labels: LabelSpace | None = None, **where: Any) -> Classifier:
    """An ONNX file as a classifier, run by onnxruntime on the CPU."""
    try:
        import onnxruntime
    except ImportError:
        raise missing_extra("onnxruntime", "models") from None

    def load(path: Path, settings: dict[str, Any], device: str) -> Runtime:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        outputs = [one.name for one in session.get_outputs()]
        output = settings.get("output") or outputs[0]
        if output not in outputs:
            raise unknown("output", output, outputs)
        entry = session.get_inputs()[0]

        def run(pixels: torch.Tensor) -> Any:
            return session.run([output], {entry.name: pixels.numpy()})[0]

        return Runtime(run, f"onnxruntime {onnxruntime.__version__}", entry.shape, output, _files_beside(path))

    return open_deployed(spec, load, where.get("device"))


def _files_beside(path: Path) -> tuple[Path, ...]:
    """The files next to an ONNX file that hold its tensors, if there are any."""
    names = set()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for found in _LOCATION.finditer(data):
            low, high = found[1][0], found[1][1] if len(found[1]) > 1 else 0
            length = low if not high else low - 128 + 128 * high
            names.add(data[found.end() : found.end() + length].decode(errors="replace"))
    return tuple(path.parent / name for name in sorted(names) if (path.parent / name).is_file())
