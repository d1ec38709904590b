"""`open_model("source:name")`: the table of sources, and opening a classifier by name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from unswayed.errors import UserError, unknown
from unswayed.files.downloads import quick_hub
from unswayed.files.records import read_object
from unswayed.labels import LabelSpace
from unswayed.specs import Spec, split_alias

from .classifier import Classifier
from .options import TRANSFORM

# source -> (module of this room, function, what its names look like)
SOURCES: dict[str, tuple[str, str, str]] = {
    "lite": ("lite", "open_lite", "lite:0, lite:1, lite:2"),
    "mobilenet": ("mobilenet", "open_mobilenet", "mobilenet:v2"),
    "timm": ("from_timm", "open_timm", "timm:resnet50.a1_in1k, timm:NAME?checkpoint=FILE"),
    "torchvision": ("from_torchvision", "open_torchvision", "torchvision:resnet50/IMAGENET1K_V2"),
    "open_clip": ("from_open_clip", "open_open_clip", "open_clip:ViT-B-32/openai, …?head=FILE"),
    "transformers": ("from_transformers", "open_transformers", "transformers:google/vit-base-patch16-224"),
    "onnx": ("from_onnx", "open_onnx", "onnx:FILE with FILE.json next to it"),
    "openvino": ("from_openvino", "open_openvino", "openvino:FILE.xml with FILE.xml.json next to it"),
    "tflite": ("from_tflite", "open_tflite", "tflite:FILE with FILE.json next to it"),
    "torchscript": ("from_torch_files", "open_torchscript", "torchscript:FILE with FILE.json next to it"),
    "pt2": ("from_torch_files", "open_pt2", "pt2:FILE of torch.export with FILE.json next to it"),
    "python": ("from_python", "open_python", "python:FILE.py:function"),
    "repaired": ("repaired", "open_repaired", "repaired:FOLDER, what `unswayed repair` wrote"),
    "head": ("heads", "open_head", "head:FOLDER, a linear head on frozen features"),
}
ENTRY_POINTS = "unswayed.models"
# These open only data on this machine. A name of any other source can run code or use the network.
DATA_ONLY = ("lite", "mobilenet", "onnx", "openvino", "tflite", "head", "repaired")
PROGRAMS = ("python", "torchscript", "pt2")  # opening one runs what its file says
HUB_SOURCES = ("timm", "open_clip", "transformers")
# Models of these come with their transform; for any other the user states it.
WITH_TRANSFORM = (*HUB_SOURCES, "lite", "mobilenet", "torchvision", "head", "repaired")

MOST_BASES = 8  # models between a head, or a repaired model, and the one that stands on its own
_ABOVE: ContextVar[int] = ContextVar("_ABOVE", default=0)


def open_model(
    name: str,
    *,
    device: str | None = None,
    precision: str | None = None,
    labels: LabelSpace | None = None,
    trust: bool = True,
) -> Classifier:
    """The classifier with that name, ready to run; `ALIAS=source:name` gives it another name.

    labels: the classes of a zero-shot model; other models have their own. trust: False for a name that was read from
    a file, which is then refused if opening it could run code or use the network.

    >>> open_model("lite:0", device="cpu").transform.crop
    224
    """
    if not trust:
        refuse_untrusted(name)
    alias, text = split_alias(name)
    if alias is not None:
        model = open_model(text, device=device, precision=precision, labels=labels)
        return replace(model, name=alias, origin={**model.origin, "spec": text})
    spec = model_spec(name)
    folder = spec.name if spec.kind == "transformers" else None
    with quick_hub(folder) if spec.kind in HUB_SOURCES else contextlib.nullcontext():
        model = opener(spec.kind)(spec.without_wrappers(), labels, device=device, precision=precision)
    if not spec.wrappers:
        return model
    from .wrappers import WRAPPERS

    # A wrapped model is identified by the weights inside: as the guide of an attack it is the same model.
    weights = model.weights_hash
    for wrapper in spec.wrappers:
        model = WRAPPERS[wrapper](model)
    return replace(model, name=str(spec), fixed_hash=weights)


def brings_transform(name: str) -> bool:
    """Whether the model comes with its transform: no option changes it, and its weights are not the user's own.

    >>> brings_transform("lite:0"), brings_transform("timm:resnet50?mean=0.5"), brings_transform("python:mine.py:build")
    (True, False, False)
    """
    spec = Spec.parse(split_alias(name)[1])
    return spec.kind in WITH_TRANSFORM and not {*TRANSFORM, "checkpoint"} & spec.options.keys()


def refuse_untrusted(name: str, run: str = "the same command with --trust, if you trust the file") -> None:
    """Raise UserError if opening the model `name`, which was read from a file, could run code or use the network."""
    kind = split_alias(name)[1].partition(":")[0]
    # Not by its parts: which they are depends on the files there are, which may come with the name.
    if kind not in DATA_ONLY or "trust=" in name:
        raise UserError(
            f"a file names the model '{name[:200]}', which was not opened because that can run code or use the network",
            allowed=", ".join(f"{kind}:" for kind in DATA_ONLY),
            run=run,
        )


def open_base(spec: Spec, base: str, **where: Any) -> Classifier:
    """Open the model that the card in the folder of `spec` names; `?trust=yes` allows one that can run code."""
    _check_base(spec, base)
    if _ABOVE.get() == MOST_BASES:
        raise UserError(
            f"{spec} is based on {base}, and so on for more than {MOST_BASES} models",
            allowed="a base that is not based on the model itself",
        )
    token = _ABOVE.set(_ABOVE.get() + 1)
    try:
        return open_model(base, **where)
    finally:
        _ABOVE.reset(token)


def check_head(name: str) -> None:
    """Raise UserError, before anything is loaded, if `name` is a head on a model that the user must trust first."""
    spec = Spec.parse(split_alias(name)[1])
    card = os.path.join(os.path.expanduser(spec.name), "head.json")
    if spec.kind == "head" and os.path.isfile(card):
        _check_base(spec, read_object(card, {"base": str})["base"])


def _check_base(spec: Spec, base: str) -> None:
    if spec.options.get("trust") != "yes":
        again = f"{spec.kind}:{spec.name}?trust=yes"
        refuse_untrusted(base, run=f"the same command with '{again}', if you trust the folder")


def model_spec(name: str) -> Spec:
    """The parts of a model's name without its alias: its source, its name there, options and wrappers."""
    from .wrappers import WRAPPERS

    spec = Spec.parse(split_alias(name)[1], list(WRAPPERS))
    if not spec.kind or not spec.name:
        raise UserError(f"{name!r} names no model", allowed="source:name, as in timm:resnet50", run="unswayed models")
    return spec


def opener(source: str) -> Callable[..., Classifier]:
    """The function that opens models of `source`: a built-in one, or an entry point of an installed package."""
    if source in SOURCES:
        module, function, _ = SOURCES[source]
        return getattr(import_module(f"unswayed.models.{module}"), function)
    offered = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if source in offered:
        return offered[source].load()
    raise unknown("model source", source, [*SOURCES, *offered], run="unswayed models")
