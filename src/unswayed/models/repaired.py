"""`repaired:FOLDER`: a classifier that `unswayed repair` fine-tuned, kept as safetensors and a card."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from unswayed.errors import UserError
from unswayed.files.records import read_object
from unswayed.files.tensor_files import read_tensor_file, write_tensor_file
from unswayed.files.whole import write_json
from unswayed.labels import LabelSpace
from unswayed.specs import Spec

from .architecture import BUILD_ERRORS, architecture_of, built, check_architecture, origin_in
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
        # An alias cannot be opened again; the model behind it can.
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


def open_repaired(spec: Spec, labels: LabelSpace | None = None, **where: Any) -> Classifier:
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
    code: dict[str, Any] = {}
    try:
        if architecture:
            module = built(architecture, state, len(space))
        else:
            module, code = _from_base(spec, card["base"], len(space))
            module.load_state_dict(state)
    except BUILD_ERRORS:
        raise UserError(f"{folder / WEIGHTS} does not fit the network of its card, {architecture}") from None
    training = {name: one for name, one in card["training"].items() if name not in ("history", "settings")}
    model = Classifier(
        module,
        transform_from(spec.options, Transform.from_json(card["transform"])),
        space,
        str(spec),
        layer=spec.options.get("layer"),
        origin={"base": card["base"], **training, **origin_in(architecture), **origin_of(folder), **code},
        **where,
    )
    if model.weights_hash != card["weights_sha256"]:
        raise UserError(f"the weights in {folder} are not those that its card states: the files have changed")
    return model


def _from_base(spec: Spec, base: str, classes: int) -> tuple[nn.Module, dict[str, Any]]:
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
    from .heads import classification_layer

    module: Any = copy.deepcopy(model.module)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if hasattr(module, "reset_classifier"):
            # Convolutional networks of timm would otherwise return to their default pooling.
            pool = getattr(getattr(module, "global_pool", None), "pool_type", None)
            module.reset_classifier(classes, **({"global_pool": pool} if pool else {}))
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
