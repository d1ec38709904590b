"""`onnx:FILE`: any classifier exported to ONNX, with a small JSON file next to it (FILE.json) that describes it.

    {"transform": {"resize": 256, "crop": 224, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
     "labels": "imagenet-1k", "label_offset": 0, "layout": "NCHW"}

The same as options: `onnx:FILE?crop=224&resize=256&mean=0.5&std=0.5&labels=FILE&label_offset=1&layout=NHWC`.
"""

from __future__ import annotations

import hashlib
import mmap
import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unfazed.errors import UserError, missing_extra, unknown
from unfazed.files import read_json, sha256
from unfazed.labels import LabelSpace
from unfazed.specs import Spec

from .classifier import Classifier
from .foreign_transforms import as_transform
from .options import COMMON, read_labels, transform_from
from .transforms import Transform

SETTINGS = ("transform", "labels", "label_offset", "layout", "output")
# How a protobuf states where a tensor's bytes are: the pair ("location", FILE), the name's length in one or two bytes.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x01-\x7f]|[\x80-\xff][\x01-\x7f])")


def open_onnx(spec: Spec, labels: LabelSpace | None = None, **where: Any) -> Classifier:
    """An ONNX file as a classifier, without gradients and without a heat layer."""
    try:
        import onnxruntime
    except ImportError:
        raise missing_extra("onnxruntime", "models") from None
    spec.check_options("label_offset", "layout", "output", *COMMON)
    path = Path(spec.name).expanduser()
    if not path.is_file():
        raise UserError(f"there is no ONNX file {path}")
    settings = _settings(path, spec)
    device = where.get("device") or "cpu"
    if torch.device(device).type != "cpu":
        raise UserError(f"onnx: models run on the CPU, not on {device!r}", allowed="--device cpu")
    try:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise UserError(f"{path} is not a readable ONNX model: {str(error).splitlines()[0]}") from None
    space = read_labels(settings.get("labels", "imagenet-1k"))
    module = _Session(session, settings, len(space), str(spec))
    return Classifier(
        module,
        transform_from(spec.options, as_transform(settings.get("transform", {}))),
        space,
        str(spec),
        device="cpu",
        precision="fp32",
        origin={
            "library": f"onnxruntime {onnxruntime.__version__}",
            "file": str(path),
            "settings": {"label_offset": module.offset, "layout": module.layout, "output": module.output},
        },
        fixed_hash=_weights_hash(path),
    )


def _weights_hash(path: Path) -> str:
    """SHA-256 of the file, and of the files next to it that hold its tensors, if there are any."""
    names = set()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for found in _LOCATION.finditer(data):
            low, high = found[1][0], found[1][1] if len(found[1]) > 1 else 0
            length = low if not high else low - 128 + 128 * high
            names.add(data[found.end() : found.end() + length].decode(errors="replace"))
    beside = [path.parent / name for name in sorted(names) if (path.parent / name).is_file()]
    if not beside:
        return sha256(path)
    return hashlib.sha256("".join(sha256(one) for one in (path, *beside)).encode()).hexdigest()


def _settings(path: Path, spec: Spec) -> dict[str, Any]:
    """The content of FILE.json, overridden by the options; a model without a stated transform is refused."""
    beside = path.with_name(path.name + ".json")
    if not beside.is_file():
        beside = path.with_suffix(".json")
    settings = dict(read_json(beside)) if beside.is_file() else {}
    for name in settings:
        if name not in SETTINGS:
            raise unknown(f"setting in {beside.name}", name, SETTINGS)
    settings |= {name: spec.options[name] for name in SETTINGS if name in spec.options}
    stated = set(spec.options) | set(settings.get("transform", {}))
    if not {"crop", "mean", "std"} <= stated:
        example = {"transform": Transform().to_json(), "labels": "imagenet-1k", "label_offset": 0}
        raise UserError(
            f"it is not known how to prepare pictures for {path.name}: "
            f"{', '.join(sorted({'crop', 'mean', 'std'} - stated))} are not stated",
            allowed=f"a file {path.name}.json like {example}, or onnx:{path}?resize=256&crop=224&mean=…&std=…",
        )
    return settings


class _Session(nn.Module):
    """An ONNX session as a module: (N, 3, h, w) float32 -> (N, classes) float32."""

    def __init__(self, session: Any, settings: dict[str, Any], classes: int, name: str) -> None:
        super().__init__()
        self.session, self.classes, self.name = session, classes, name
        self.input = session.get_inputs()[0]
        outputs = [one.name for one in session.get_outputs()]
        self.output = settings.get("output", outputs[0])
        if self.output not in outputs:
            raise unknown("output", self.output, outputs)
        self.layout = str(settings.get("layout", "NCHW")).upper()
        if self.layout not in ("NCHW", "NHWC"):
            raise unknown("layout", self.layout, ("NCHW", "NHWC"))
        try:
            self.offset = int(settings.get("label_offset", 0))
        except ValueError:
            raise UserError(f"label_offset is {settings['label_offset']!r}", allowed="0, or 1 …") from None
        batch = self.input.shape[0] if self.input.shape else None
        self.fixed = batch if isinstance(batch, int) else None

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        if self.layout == "NHWC":
            pixels = pixels.permute(0, 2, 3, 1)
        size = self.fixed or len(pixels)
        answers = []
        for start in range(0, len(pixels), size):
            part = pixels[start : start + size]
            # For a model exported with a fixed batch size, the last batch is filled with copies of its first picture.
            filled = torch.cat([part, part[:1].expand(size - len(part), *part.shape[1:])]) if len(part) < size else part
            answers.append(self._run(filled.contiguous().numpy())[: len(part)])
        logits = torch.cat(answers)
        if logits.shape[1] - self.offset < self.classes:
            raise UserError(
                f"{self.name} has {logits.shape[1]} outputs: too few for {self.classes} classes from {self.offset} on",
                allowed="labels that the outputs cover; label_offset=1 skips a leading background class",
            )
        return logits[:, self.offset : self.offset + self.classes] if self.offset else logits

    def _run(self, pixels: Any) -> torch.Tensor:
        try:
            (answer,) = self.session.run([self.output], {self.input.name: pixels})
        except Exception as error:
            raise UserError(
                f"{self.name} does not take {pixels.shape}: {str(error).splitlines()[0]}",
                allowed=f"{self.input.shape} as the file states; correct crop or layout",
            ) from None
        return torch.from_numpy(answer).float().reshape(len(pixels), -1)
