"""Models as files (`onnx:`, `openvino:`, `tflite:`, `torchscript:`, `pt2:`), each with a JSON file beside it.

    {"transform": {"resize": 256, "crop": 224, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
     "labels": "imagenet-1k", "label_offset": 0, "layout": "NCHW", "scores": "logits"}

The same as options: `onnx:FILE?crop=224&resize=256&mean=0.5&std=0.5&labels=FILE&label_offset=1&layout=NHWC`.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import logging
import mmap
import re
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from unswayed.errors import UserError, check_known, first_line, need
from unswayed.files.records import checked, read_object
from unswayed.files.whole import Json, sha256, write_bytes, write_json
from unswayed.jobs import choose_device
from unswayed.labels import LabelSpace
from unswayed.specs import Spec

from .classifier import Classifier
from .foreign_transforms import as_transform
from .label_mapping import read_labels
from .runtime import open_session
from .transforms import COMMON, Transform, transform_from
from .wrappers import LogProbabilities

LAYOUTS, SCORES = ("NCHW", "NHWC"), ("logits", "probabilities")
MOST = 1_000_000  # of a number in a file beside a model
Shape = Sequence[object]
Output = np.ndarray | torch.Tensor
Wanted = int | str | list[str] | None  # an output, the first if None; several, all of them if the list is empty


@dataclass(frozen=True)
class FileSettings:
    """What the file beside a classifier may state. label_offset: outputs before that of the first class; output: the
    one with the logits, the first by default; batch: how many pictures are run at a time."""

    transform: Json | None = None
    labels: str | list[str] | Json | None = None
    label_offset: int | None = None
    output: int | str | None = None
    batch: int | None = None
    layout: str | None = None
    scores: str | None = None

    def __post_init__(self) -> None:
        for name, value, least in (("label_offset", self.label_offset, 0), ("batch", self.batch, 1)):
            if value is not None and not least <= value < MOST:
                raise UserError(f"{name} is {value}", allowed=f"a whole number, {least} to {MOST - 1:,}")


@dataclass(frozen=True)
class Runtime:
    """A loaded file: what runs it, the shape of its input and the files that it consists of.

    run: (N, 3, h, w) or (N, h, w, 3) float32, contiguous, on the device -> its outputs as arrays or tensors. shape: of
    the input as the file states it; a dimension that is not an int is free, None is not known.
    """

    run: Callable[[torch.Tensor], Sequence[Output]]
    library: str
    shape: Shape | None = None
    output: str = ""
    files: tuple[Path, ...] = ()

    def layout(self, stated: object) -> str:
        """The layout of the input: as stated, else channels last only where the file states three of them there."""
        shape = self.shape or ()
        last = len(shape) == 4 and shape[3] == 3 and shape[1] != 3
        layout = str(stated or ("NHWC" if last else "NCHW")).upper()
        check_known("layout", [layout], LAYOUTS)
        return layout


Load = Callable[[Path, Wanted, str], Runtime]


def load_file(spec: Spec, load: Load, output: Wanted, device: str) -> tuple[Runtime, str]:
    """The file that `spec` names, opened, and the SHA-256 of the model in it and in the files beside it."""
    path = spec.file()
    try:
        runtime = load(path, output, device)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} is not a readable {spec.kind} model: {first_line(error)}") from None
    digests = [sha256(file) for file in (path, *runtime.files)]
    return runtime, hashlib.sha256("".join(digests).encode()).hexdigest() if runtime.files else digests[0]


def open_deployed(
    spec: Spec,
    labels: LabelSpace | None = None,
    *,
    load: Load,
    gpu: bool = False,
    device: str | None = None,
    precision: str | None = None,
) -> Classifier:
    """The classifier in the file that `spec` names, without gradients and without a heat layer.

    load(path, output, device): opens the file. gpu: whether the runtime can use one.
    """
    spec.check_options("label_offset", "layout", "output", "scores", "batch", *COMMON)
    path = spec.file()
    transform, space, settings = read_sidecar(path, spec)
    device = str(choose_device(device)) if gpu else device or "cpu"
    if not gpu and torch.device(device).type != "cpu":
        raise UserError(f"{spec.kind}: models run on the CPU, not on {device!r}", allowed="--device cpu")
    runtime, digest = load_file(spec, load, settings.output, device)
    module = _RuntimeModule(runtime, settings, len(space), str(spec))
    used = {"label_offset": module.offset, "layout": module.layout, "output": runtime.output}
    used |= {"scores": module.scores} if module.scores != "logits" else {}
    used |= {"batch": settings.batch} if settings.batch else {}
    return Classifier(
        LogProbabilities(module) if module.scores == "probabilities" else module,
        transform,
        space,
        str(spec),
        device=device,
        precision="fp32",
        origin={"library": runtime.library, "file": str(path), "settings": used},
        fixed_hash=digest,
    )


def read_sidecar(path: Path, spec: Spec) -> tuple[Transform, LabelSpace, FileSettings]:
    """The transform, the classes and the settings in FILE.json, overridden by the options of `spec`.

    A model without a stated transform is refused.
    """
    stated, where = stated_beside(path, spec, FileSettings)
    settings = checked(FileSettings, stated, where, strict=False)
    missing = sorted({"crop", "mean", "std"} - {*spec.options, *(settings.transform or {})})
    if missing:
        example = {"transform": Transform().to_json(), "labels": "imagenet-1k", "label_offset": 0}
        raise UserError(
            f"it is not known how to prepare pictures for {path.name}: {', '.join(missing)} are not stated",
            allowed=f"a file {path.name}.json like {example}, or {spec.kind}:{path}?resize=256&crop=224&mean=…&std=…",
        )
    transform = transform_from(spec.options, as_transform(settings.transform or {}))
    return transform, read_labels(settings.labels or "imagenet-1k"), settings


def stated_beside(path: Path, spec: Spec, *kinds: type) -> tuple[Json, str]:
    """What FILE.onnx.json, or else FILE.json, states of the fields of these classes, overridden by the options of
    `spec`; and what names it in an error."""
    named = path.with_name(path.name + ".json")
    file = named if named.is_file() else path.with_suffix(".json")
    stated = read_object(file) if file.is_file() else {}
    names = [setting.name for kind in kinds for setting in fields(kind)]
    check_known(f"setting in {file.name}", stated, names)
    options = {name: text for name, text in spec.options.items() if name in names}
    return stated | options, str(file if file.is_file() else spec)


def write_sidecar(path: str | Path, model: Classifier, **settings: object) -> None:
    """Write FILE.json beside an exported model, with the transform and the classes of the model it was made from.

    settings: further settings, such as `batch=1`.
    """
    record = {"transform": model.transform.to_json(), "labels": model.labels.to_json(), **settings}
    write_json(Path(path).with_name(Path(path).name + ".json"), record)


def export_onnx(model: Classifier, path: str | Path) -> None:
    """Write the network as ONNX with a free batch size, and FILE.json with its transform and classes."""
    need("models", "onnx", "onnxscript")
    module = copy.deepcopy(model.module).cpu().float().eval().to(memory_format=torch.contiguous_format)
    example = torch.zeros(2, 3, model.transform.crop, model.transform.crop)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        made = Path(folder) / "model.onnx"
        torch.onnx.export(
            module,
            (example,),
            str(made),
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        write_bytes(path, made.read_bytes())
    write_sidecar(path, model)


class _RuntimeModule(nn.Module):
    """A runtime as a module: (N, 3, h, w) float32 -> (N, classes) float32."""

    def __init__(self, runtime: Runtime, settings: FileSettings, classes: int, name: str) -> None:
        super().__init__()
        self.runtime, self.classes, self.name = runtime, classes, name
        self.layout, self.offset = runtime.layout(settings.layout), settings.label_offset or 0
        self.scores = settings.scores or "logits"
        check_known("kind of scores", [self.scores], SCORES)
        # A dynamically quantized network finds its ranges in the batch: with one picture, each is treated alone.
        self.fixed = settings.batch

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        if self.layout == "NHWC":
            pixels = pixels.permute(0, 2, 3, 1)
        outputs = in_batches(self.runtime, pixels, self.fixed, self.name)
        logits = torch.stack([torch.as_tensor(answer[0]).float().reshape(-1) for answer in outputs])
        if logits.shape[1] - self.offset < self.classes:
            raise UserError(
                f"{self.name} has {logits.shape[1]} outputs: too few for {self.classes} classes from {self.offset} on",
                allowed="labels that the outputs cover; label_offset=1 skips a leading background class",
            )
        return logits[:, self.offset : self.offset + self.classes] if self.offset else logits


def in_batches(runtime: Runtime, pixels: torch.Tensor, size: int | None, name: str) -> list[list[Any]]:
    """The outputs of a runtime for each picture, `size` of them at a time; None: as many as the file states, or all."""
    stated = runtime.shape[0] if runtime.shape else None
    size = size or (stated if isinstance(stated, int) and stated > 0 else len(pixels))
    answers: list[list[object]] = []
    for start in range(0, len(pixels), size):
        part = pixels[start : start + size]
        # For a model exported with a fixed batch size, the last batch is filled with copies of its first picture.
        filled = torch.cat([part, part[:1].expand(size - len(part), *part.shape[1:])]) if len(part) < size else part
        try:
            outputs = runtime.run(filled.contiguous())
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"{name} does not take {tuple(filled.shape)}: {first_line(error)}",
                allowed=f"{list(runtime.shape or ())} as the file states; correct crop or layout",
            ) from None
        # Outputs of a single picture need not have a dimension for it.
        answers += [list(outputs)] if size == 1 else [[output[at] for output in outputs] for at in range(len(part))]
    return answers


# How a protobuf states where a tensor's bytes are: the pair ("location", FILE), the name's length in one or two bytes.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x01-\x7f]|[\x80-\xff][\x01-\x7f])")
_ONNX_KINDS = {"tensor(uint8)": np.uint8, "tensor(int8)": np.int8, "tensor(float16)": np.float16}


def _as_kind(values: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Values in the type of an input; integers are the nearest that the type has."""
    if kind.kind in "iu":
        values = np.clip(np.rint(values), np.iinfo(kind).min, np.iinfo(kind).max)
    return values.astype(kind, copy=False)


def load_onnx(path: Path, output: Wanted, device: str) -> Runtime:
    session = open_session(path, kind="model")
    outputs = _outputs(output, [port.name for port in session.get_outputs()])
    entry = session.get_inputs()[0]
    kind = np.dtype(_ONNX_KINDS.get(entry.type, np.float32))

    def run(pixels: torch.Tensor) -> Sequence[Output]:
        return session.run(outputs, {entry.name: _as_kind(pixels.numpy(), kind)})

    return Runtime(run, f"onnxruntime {version('onnxruntime')}", entry.shape, outputs[0], _files_beside(path))


def _files_beside(path: Path) -> tuple[Path, ...]:
    """The files next to an ONNX file that hold its tensors, if there are any."""
    names = set()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for match in _LOCATION.finditer(data):
            low, high = match[1][0], match[1][1] if len(match[1]) > 1 else 0
            length = low if not high else low - 128 + 128 * high
            names.add(data[match.end() : match.end() + length].decode(errors="replace"))
    return tuple(path.parent / name for name in sorted(names) if (path.parent / name).is_file())


def load_openvino(path: Path, output: Wanted, device: str) -> Runtime:
    import openvino

    core = openvino.Core()
    # Without the hint some processors compute in bfloat16; a quantized model keeps its integers in any case.
    hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    compiled = core.compile_model(core.read_model(str(path)), "CPU", hints)
    names = [port.any_name if port.names else str(number) for number, port in enumerate(compiled.outputs)]
    outputs = _outputs(output, names)
    shape = [side.get_length() if side.is_static else None for side in compiled.inputs[0].partial_shape]
    ports = [compiled.outputs[names.index(output)] for output in outputs]

    def run(pixels: torch.Tensor) -> Sequence[Output]:
        answer = compiled([pixels.numpy()])
        return [answer[port].copy() for port in ports]  # copies, since the next run writes to the same memory

    tensors = path.with_suffix(".bin")
    further = (tensors,) if path.suffix == ".xml" and tensors.is_file() else ()
    return Runtime(run, f"openvino {openvino.__version__.partition('-')[0]}", shape, outputs[0], further)


def load_tflite(path: Path, output: Wanted, device: str) -> Runtime:
    """LiteRT; integer inputs and outputs are scaled as the file states."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=torch.get_num_threads())
    interpreter.allocate_tensors()
    [entry, *_] = interpreter.get_input_details()
    ports = {port["name"]: port for port in interpreter.get_output_details()}
    outputs = _outputs(output, list(ports))

    def read(port: Json) -> Output:
        answer = interpreter.get_tensor(port["index"])
        if not np.issubdtype(port["dtype"], np.integer):
            return answer
        scale, zero = port["quantization"]
        return (answer.astype(np.float32) - zero) * (scale or 1.0)

    def run(pixels: torch.Tensor) -> Sequence[Output]:
        values, kind = pixels.numpy(), np.dtype(entry["dtype"])
        if np.issubdtype(kind, np.integer):
            scale, zero = entry["quantization"]
            values = values / (scale or 1.0) + zero
        interpreter.set_tensor(entry["index"], _as_kind(values, kind))
        interpreter.invoke()
        return [read(ports[output]) for output in outputs]

    shape = [int(side) for side in entry["shape"]]
    return Runtime(run, f"ai-edge-litert {version('ai-edge-litert')}", shape, outputs[0])


def _load_torchscript(path: Path, output: Wanted, device: str) -> Runtime:
    with warnings.catch_warnings():
        # torch deprecates TorchScript in favor of torch.export; the files that people deployed must still open.
        warnings.simplefilter("ignore")
        return _torch_runtime(torch.jit.load(str(path), map_location=device).eval(), output)


def _load_pt2(path: Path, output: Wanted, device: str) -> Runtime:
    from torch.export.passes import move_to_device_pass

    logging.getLogger("torch.export").setLevel(logging.CRITICAL)  # it prints a traceback of its own for a damaged file
    program = move_to_device_pass(torch.export.load(str(path)), device)
    entry = program.graph_signature.user_inputs[0]
    [node] = [node for node in program.graph.nodes if node.name == entry]
    return _torch_runtime(program.module(), output, list(node.meta["val"].shape))


def _torch_runtime(module: Callable[[torch.Tensor], object], output: Wanted, shape: Shape | None = None) -> Runtime:
    """A torch module; of several outputs, a mapping's key or a sequence's number is `output`, the first by default."""

    def run(pixels: torch.Tensor) -> Sequence[Output]:
        answer = module(pixels)
        if isinstance(answer, torch.Tensor):
            return [answer]
        if not isinstance(answer, (Mapping, Sequence)):
            allowed = "a tensor, a tuple or a dict of tensors"
            raise UserError(f"the model returns a {type(answer).__name__}", allowed=allowed)
        ports = answer if isinstance(answer, Mapping) else {str(number): part for number, part in enumerate(answer)}
        return [ports[name] for name in _outputs(output, list(ports))]

    return Runtime(run, f"torch {torch.__version__}", shape, str(output or ""))


def _outputs(wanted: Wanted, names: list[str]) -> list[str]:
    """The outputs of the model that are wanted."""
    chosen = wanted or names if isinstance(wanted, list) else [str(wanted or names[0])]
    check_known("output", chosen, names)
    return chosen


open_onnx = functools.partial(open_deployed, load=load_onnx)
# What OpenVINO reads (.xml with its .bin, or .onnx, .tflite), in float32.
open_openvino = functools.partial(open_deployed, load=load_openvino)
open_tflite = functools.partial(open_deployed, load=load_tflite)
open_torchscript = functools.partial(open_deployed, load=_load_torchscript, gpu=True)
open_pt2 = functools.partial(open_deployed, load=_load_pt2, gpu=True)
