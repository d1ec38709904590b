"""`repaired:FOLDER`: a classifier that `unswayed repair` fine-tuned, kept as safetensors and a card.

The card describes the network, so that it is built again without its first weights: the library, the name there, and
the settings, as in `{"library": "timm", "name": "test_vit.r160_in1k", "settings": {"img_size": 96}}`.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.overrides import TorchFunctionMode

from unswayed.errors import UserError
from unswayed.files.records import read_object, require_fields
from unswayed.files.tensor_files import read_tensor_file, write_tensor_file
from unswayed.files.whole import Json, write_json
from unswayed.labels import LabelSpace
from unswayed.specs import Spec

from .classifier import Classifier, classifier_of
from .from_torchvision import build, classifiers
from .heads import classification_layer, origin_of, write_trained_on
from .opening import open_base
from .transforms import COMMON, Transform

WEIGHTS, CARD = "model.safetensors", "card.json"
Architecture = Json  # a library, the name of a network there, and the settings that it is built with
_KINDS = {
    **dict.fromkeys(("base", "weights_sha256"), str),
    **dict.fromkeys(("architecture", "labels", "transform", "training"), Json),
}


def save_repaired(
    folder: str | Path, model: Classifier, base: Classifier, training: dict[str, object], photographs: np.ndarray
) -> None:
    """`model.safetensors`, `trained-on.bin` and `card.json` in `folder`; opened again as `repaired:FOLDER`.

    base: the model it was trained from; training: what else the card says; photographs: the keys of their files.
    """
    # Copies, since a network may hold one tensor under two names, which the file format refuses.
    state = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    write_tensor_file(Path(folder) / WEIGHTS, state)
    card = {
        "base": base.spec,
        "architecture": architecture_of(model),
        "labels": model.labels.to_json(),
        "transform": model.transform.to_json(),
        "weights_sha256": model.weights_hash,
        "training": training,
    }
    write_trained_on(folder, photographs, base.origin)
    # The card last: it says that the weights beside it are whole.
    write_json(Path(folder) / CARD, card)


def open_repaired(spec: Spec, labels: LabelSpace | None = None, **where: str | None) -> Classifier:
    """The classifier in the folder; refused where the weights are not those that its card states."""
    spec.check_options("trust", *COMMON)
    folder = Path(spec.name).expanduser()
    if not (folder / CARD).is_file():
        raise UserError(
            f"{folder} holds no repaired model (there is no {CARD})", run=f"unswayed repair SOURCE -m MODEL -o {folder}"
        )
    card = read_object(folder / CARD, _KINDS)
    architecture = card["architecture"]
    check_architecture(architecture, f"{folder / CARD}, architecture")
    state = read_tensor_file(folder / WEIGHTS)
    space = LabelSpace.from_json(card["labels"])
    code: dict[str, str] = {}
    try:
        if architecture:
            module = built(architecture, state, len(space))
        else:
            module, code = _from_base(spec, card["base"], len(space))
            module.load_state_dict(state)
    except BUILD_ERRORS:
        raise UserError(f"{folder / WEIGHTS} does not fit the network of its card, {architecture}") from None
    training = {name: value for name, value in card["training"].items() if name not in ("history", "settings")}
    # The network's own description comes back into the origin, so that it can be described again.
    names = {"library": "library", "name": "architecture", "settings": "settings"}
    described = {names[key]: value for key, value in architecture.items() if key in names}
    origin = {"base": card["base"], **training, **described, **origin_of(folder), **code}
    model = classifier_of(spec, module, Transform.from_json(card["transform"]), space, where, origin)
    if model.weights_hash != card["weights_sha256"]:
        raise UserError(f"the weights in {folder} are not those that its card states: the files have changed")
    return model


def _from_base(spec: Spec, base: str, classes: int) -> tuple[nn.Module, dict[str, str]]:
    """The network of the model that the card names, and the hash of its code if it is a user's."""
    if ":" not in base:
        raise UserError(
            f"the network was repaired from an object named {base!r}, which cannot be opened by name",
            allowed="a model given to repair as python:FILE.py:function",
        )
    opened = open_base(spec, base, device="cpu")
    code = {name: opened.origin[name] for name in ("code_sha256",) if name in opened.origin}
    return copy.deepcopy(opened.module) if len(opened.labels) == classes else with_new_head(opened, classes), code


def with_new_head(model: Classifier, classes: int, seed: int = 0) -> nn.Module:
    """A copy of the network whose classification layer answers with `classes` logits, freshly drawn."""
    module: Any = copy.deepcopy(model.module).eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if hasattr(module, "reset_classifier"):
            # Convolutional networks of timm would otherwise return to their default pooling.
            pool = getattr(getattr(module, "global_pool", None), "pool_type", None)
            module.reset_classifier(classes, **({"global_pool": pool} if pool else {}))
        else:
            name = classification_layer(model)
            module.set_submodule(name, nn.Linear(module.get_submodule(name).in_features, classes))
    return module.to(model.device)


def for_classes(model: Classifier, labels: LabelSpace, seed: int) -> Classifier:
    """The model with a new classification layer for other classes."""
    return replace(model, module=with_new_head(model, len(labels), seed), labels=labels, fixed_hash=None)


LONGEST, LARGEST = 100, 4096  # characters of a text, and size of a number, that a setting may have
# Keywords of timm that read other files, use the network or choose another device than the one that shapes are compared
# on, and the number of classes, which the labels decide.
_REFUSED = ("pretrained", "checkpoint_path", "cache_dir", "device", "num_classes")
# Settings that a card leaves out, since the weights beside it decide them.
_WEIGHTS = ("num_classes", "backbone_pretrained", "cache_dir")
_TORCHVISION = ("init_weights", "transform_input", "aux_logits", "image_size")
BUILD_ERRORS = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError),
    *(OSError, RuntimeError, TypeError, ValueError),
)
MOST_COMPUTED = 2**25  # numbers in tensors that a network computes when it is built and that no file has


def architecture_of(model: Classifier) -> Architecture:
    """How to build the network again without its first weights; empty if only its base can build the same network."""
    config = getattr(model.module, "pretrained_cfg", None)
    library = str(model.origin.get("library", "")).partition(" ")[0]
    if isinstance(config, dict) and config.get("architecture"):
        # Some tags of one architecture are built differently.
        library, name = "timm", ".".join(filter(None, (config["architecture"], config.get("tag"))))
    elif library == "torchvision":
        name = str(model.origin.get("architecture"))
    else:
        return {}
    settings = {key: value for key, value in model.origin.get("settings", {}).items() if key not in _WEIGHTS}
    described = {"library": library, "name": name, **({"settings": settings} if settings else {})}
    return described if _gives_same_network(described, model) else {}


def check_architecture(architecture: Architecture, where: str) -> None:
    """Raise UserError unless a card's description names a library and a network, with settings of allowed values."""
    if not architecture:
        return
    require_fields(architecture, {"library": str, "name": str, "settings": Json | None}, where)
    library, name, settings = architecture["library"], architecture["name"], architecture.get("settings") or {}
    # The detectors and segmenters of torchvision fetch weights of their backbones, also if they are built without
    # weights; timm downloads a name with a colon (`hf-hub:…`) from a hub.
    if not (name in classifiers() if library == "torchvision" else library == "timm" and ":" not in name):
        raise UserError(
            f"{where} names the network '{name[:LONGEST]}' of {library}",
            allowed="a classifier's name in timm or torchvision",
        )
    for name, value in settings.items():
        known = name in _TORCHVISION if library == "torchvision" else not any(part in name for part in _REFUSED)
        is_text, is_number = isinstance(value, str), isinstance(value, int | float)
        if not known or not (len(value) <= LONGEST if is_text else is_number and abs(value) <= LARGEST):
            raise UserError(
                f"{where} has the setting '{name[:LONGEST]}'",
                allowed=f"settings of the network; true, false, numbers up to {LARGEST}, texts up to {LONGEST} letters",
            )


def built(architecture: Architecture, state: Mapping[str, torch.Tensor], classes: int) -> nn.Module:
    """The network that a checked card describes, with the weights of `state`.

    Raises one of BUILD_ERRORS if there is no such network or the weights do not fit it.
    """
    settings = architecture.get("settings") or {}
    # First without memory for the weights, so that a card cannot ask for more than the file has.
    without_memory = _EmptyOnMeta() if architecture["library"] == "torchvision" else torch.device("meta")
    with without_memory, _little_more_than(state):
        wanted = _random(architecture, classes, settings).state_dict()
    shapes, stated = ({name: tensor.shape for name, tensor in tensors.items()} for tensors in (wanted, state))
    if shapes != stated:
        raise ValueError("the shapes differ")
    module = _random(architecture, classes, settings)
    module.load_state_dict(dict(state))
    return module


class _EmptyOnMeta(TorchFunctionMode):
    """Parameters that have no memory; the RegNets of torchvision read the values of other tensors to be built."""

    def __torch_function__(
        self, func: Callable[..., object], types: object, args: tuple[object, ...] = (), kwargs: Json | None = None
    ) -> object:
        return func(*args, **(kwargs or {}) | ({"device": "meta"} if func is torch.empty else {}))


@contextlib.contextmanager
def _little_more_than(state: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Inside, a network that this thread builds with many more tensors, or larger ones, ends with a ValueError."""
    # Twice as many: timm builds its pruned networks whole. Tensors such as masks of windows are computed, in no file.
    tensors, numbers = 2 * len(state) + 100, 2 * sum(tensor.numel() for tensor in state.values()) + MOST_COMPUTED
    thread = threading.get_ident()

    def counted(module: nn.Module, name: str, value: torch.Tensor | None) -> None:
        nonlocal tensors, numbers
        if value is not None and threading.get_ident() == thread:
            tensors, numbers = tensors - 1, numbers - value.numel()
            if tensors < 0 or numbers < 0:
                raise ValueError("the network is larger than its file")

    parameters = hooks.register_module_parameter_registration_hook(counted)
    with parameters, hooks.register_module_buffer_registration_hook(counted):
        yield


def _random(architecture: Architecture, classes: int, settings: Architecture) -> nn.Module:
    if architecture["library"] == "torchvision":
        return build(architecture["name"], classes, settings)
    from .from_timm import timm  # which also registers hybrid_resnet50_vits

    return timm.create_model(architecture["name"], pretrained=False, num_classes=classes, **settings)


def _gives_same_network(architecture: Architecture, model: Classifier) -> bool:
    """Whether the description can be kept in a card and gives the logits of the model with its weights."""
    try:
        check_architecture(dict(architecture), "")
        again = built(architecture, model.module.state_dict(), len(model.labels))
    except (UserError, *BUILD_ERRORS):
        return False
    side = model.transform.crop
    pixels = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    before, after = (replace(model, module=part, precision="fp32")(pixels) for part in (model.module, again))
    return torch.allclose(before, after, rtol=1e-3, atol=1e-3 * float(before.abs().max()))
