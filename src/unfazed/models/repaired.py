"""`repaired:FOLDER`: a classifier that `unfazed repair` fine-tuned, kept as safetensors and a card."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from unfazed.errors import UserError
from unfazed.files import write_json
from unfazed.labels import LabelSpace
from unfazed.records import read_object, require_fields
from unfazed.specs import Spec
from unfazed.tensor_files import read_tensor_file, write_tensor_file

from .classifier import Classifier
from .options import COMMON, transform_from
from .registry import open_base
from .training_photographs import origin_of, write_trained_on
from .transforms import Transform

WEIGHTS, CARD = "model.safetensors", "card.json"
_KINDS = {
    **dict.fromkeys(("base", "weights_sha256"), str),
    **dict.fromkeys(("architecture", "labels", "transform", "training"), dict[str, Any]),
}


def save_repaired(
    folder: str | Path, model: Classifier, base: Classifier, training: dict[str, Any], photographs: np.ndarray
) -> None:
    """`model.safetensors`, `trained-on.bin` and `card.json` in `folder`; opened again as `repaired:FOLDER`.

    base: the model it was trained from; training: what else the card says; photographs: the keys of their files.
    """
    # Copies, since a network may hold one tensor under two names, which the file format refuses.
    write_tensor_file(Path(folder) / WEIGHTS, {name: one.clone() for name, one in model.module.state_dict().items()})
    card = {
        "base": base.name,
        "architecture": _architecture(model),
        "labels": model.labels.to_json(),
        "transform": model.transform.to_json(),
        "weights_sha256": model.weights_hash,
        "training": training,
    }
    write_trained_on(folder, photographs, base.origin)
    # The card last: it says that the weights beside it are whole.
    write_json(Path(folder) / CARD, card)


def open_repaired(spec: Spec, labels: LabelSpace | None = None, **where: Any) -> Classifier:
    """The classifier in the folder; refused where the weights are not those that its card states."""
    spec.check_options("trust", *COMMON)
    folder = Path(spec.name).expanduser()
    if not (folder / CARD).is_file():
        raise UserError(
            f"{folder} holds no repaired model (there is no {CARD})", run=f"unfazed repair SOURCE -m MODEL -o {folder}"
        )
    card = read_object(folder / CARD, _KINDS)
    require_fields(card["architecture"], {"library": str | None, "name": str | None}, f"{folder / CARD}, architecture")
    state = read_tensor_file(folder / WEIGHTS)
    space = LabelSpace.from_json(card["labels"])
    module, code = _network(spec, card, len(space))
    try:
        module.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError):
        raise UserError(f"{folder / WEIGHTS} does not fit the network of its card, {card['architecture']}") from None
    training = {name: one for name, one in card["training"].items() if name not in ("history", "settings")}
    model = Classifier(
        module,
        transform_from(spec.options, Transform.from_json(card["transform"])),
        space,
        str(spec),
        layer=spec.options.get("layer"),
        origin={"base": card["base"], **training, **origin_of(folder), **code},
        **where,
    )
    if model.weights_hash != card["weights_sha256"]:
        raise UserError(f"the weights in {folder} are not those that its card states: the files have changed")
    return model


def _architecture(model: Classifier) -> dict[str, Any]:
    """How to build the network again without its first weights; nothing where only its base can build it."""
    config = getattr(model.module, "pretrained_cfg", None)
    name = config.get("architecture") if isinstance(config, dict) else None
    if name:
        return {"library": "timm", "name": name}
    library = str(model.origin.get("library", ""))
    if library.startswith("torchvision"):
        return {"library": "torchvision", "name": model.origin["architecture"]}
    return {}


def _network(spec: Spec, card: dict[str, Any], classes: int) -> tuple[nn.Module, dict[str, Any]]:
    """The network with its first weights, and the hash of the code that builds it where that is a user's."""
    architecture = card["architecture"]
    # timm downloads a name with a colon (`hf-hub:…`) from a hub, also without its weights.
    if architecture.get("library") == "timm" and ":" not in architecture["name"]:
        import timm

        from . import hybrid  # noqa: F401  registers hybrid_resnet50_vits

        return timm.create_model(architecture["name"], pretrained=False, num_classes=classes), {}
    if architecture.get("library") == "torchvision":
        import torchvision

        return torchvision.models.get_model(architecture["name"], weights=None, num_classes=classes), {}
    if ":" not in card["base"]:
        raise UserError(
            f"the network was repaired from an object named {card['base']!r}, which cannot be opened by name",
            allowed="a model given to repair as python:FILE.py:function",
        )
    base = open_base(spec, card["base"], device="cpu")
    code = {name: base.origin[name] for name in ("code_sha256",) if name in base.origin}
    return copy.deepcopy(base.module) if len(base.labels) == classes else with_new_head(base, classes), code


def with_new_head(model: Classifier, classes: int, seed: int = 0) -> nn.Module:
    """A copy of the network whose classification layer answers with `classes` logits, freshly drawn."""
    from .heads import classification_layer

    module: Any = copy.deepcopy(model.module)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if hasattr(module, "reset_classifier"):
            module.reset_classifier(classes)
        else:
            name = classification_layer(model)
            parent, _, last = name.rpartition(".")
            width = module.get_submodule(name).in_features
            setattr(module.get_submodule(parent), last, nn.Linear(width, classes))
    result: nn.Module = module.to(model.device)
    return result


def for_classes(model: Classifier, labels: LabelSpace, seed: int) -> Classifier:
    """The model with a new classification layer for other classes."""
    return replace(model, module=with_new_head(model, len(labels), seed), labels=labels, fixed_hash=None)
