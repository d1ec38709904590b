"""`torchvision:NAME` (its default weights), `torchvision:NAME/WEIGHTS` as in `torchvision:resnet50/IMAGENET1K_V2`.

`?checkpoint=FILE` replaces the weights; the transform and the classes of WEIGHTS still apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torchvision
from torch import nn

from unswayed.errors import unknown
from unswayed.labels import LabelSpace, imagenet, plain
from unswayed.specs import Spec

from .classifier import Classifier, classifier_of
from .foreign_transforms import from_preset
from .label_mapping import labels_from, unnamed
from .transforms import COMMON, Transform
from .weights import classes_in, load_foreign, read_state, unavailable

AUXILIARY = {"googlenet": ("aux1", "aux2"), "inception_v3": ("AuxLogits",)}


def open_torchvision(spec: Spec, labels: LabelSpace | None = None, **where: str | None) -> Classifier:
    """A torchvision classifier under the transform that its weights state."""
    spec.check_options("checkpoint", *COMMON)
    name, _, tag = spec.name.partition("/")
    if name not in classifiers():
        raise unknown("model in torchvision", name, classifiers())
    checkpoint = spec.options.get("checkpoint")
    weights = _weights(name, tag) if tag or not checkpoint else None
    space, transform = imagenet(), Transform()
    if weights is not None:
        space, transform = _space(weights.meta["categories"]), from_preset(weights.transforms())
    state = read_state(checkpoint) if checkpoint else _fetched(spec, weights)
    settings = _settings(name, weights)
    module: Any = build(name, len(space), settings)
    # The output of every torchvision network comes from its last layer; SqueezeNet's is a convolution.
    last = [name for name, part in module.named_modules() if isinstance(part, (nn.Linear, nn.Conv2d))][-1]
    classes = classes_in(state, module, last) or len(space)
    if classes != len(space):
        module = build(name, classes, settings)
    load_foreign(module, state, checkpoint or str(spec))
    if name in AUXILIARY:
        # As in the library: the outputs that exist only for training leave, so that the network has one output.
        settings["aux_logits"] = module.aux_logits = False
        for part in AUXILIARY[name]:
            setattr(module, part, None)
    named = labels_from(spec.options, outputs=classes) or (space if classes == len(space) else unnamed(classes))
    origin = {"library": f"torchvision {torchvision.__version__}", "architecture": name}
    return classifier_of(spec, module, transform, named, where, origin | ({"settings": settings} if settings else {}))


def classifiers() -> list[str]:
    """The names of torchvision's classifiers; its other networks are in modules of their own."""
    return torchvision.models.list_models(module=torchvision.models)


def torchvision_names() -> list[str]:
    """The names of torchvision's classifiers with those of their weights, as in `resnet50/IMAGENET1K_V2`."""
    return [
        f"{name}/{weights.name}" for name in classifiers() for weights in torchvision.models.get_model_weights(name)
    ]


def build(name: str, classes: int, settings: Mapping[str, Any]) -> nn.Module:
    """The architecture with random weights; settings: further keywords of its builder."""
    return torchvision.models.get_model(name, weights=None, num_classes=classes, **settings)


def _settings(name: str, weights: Any) -> dict[str, Any]:
    """The keywords by which the library builds the architecture for `weights` (None for other weights)."""
    if name in AUXILIARY:
        # These two were trained with a mean and standard deviation of 0.5, and undo ImageNet's in the network.
        return {"init_weights": False, "transform_input": weights is not None}
    if weights is not None and name.startswith("vit_"):
        return {"image_size": weights.meta["min_size"][0]}
    return {}


def _fetched(spec: Spec, weights: Any) -> dict[str, Any]:
    try:
        # The library's loader would unpickle, which is not needed, since the files hold only tensors.
        return weights.get_state_dict(progress=False, check_hash=True, weights_only=True)
    except Exception as error:
        raise unavailable(str(spec), error, "give ?checkpoint=FILE") from error


def _weights(name: str, tag: str) -> Any:
    """The member of the model's weight enum that `tag` names; the default one without a tag."""
    enum = torchvision.models.get_model_weights(name)
    tags = [member.name for member in enum]
    if tag and tag.upper() not in tags:
        raise unknown(f"weight of {name}", tag, tags)
    return enum[tag.upper()] if tag else enum.DEFAULT


def _space(categories: list[str]) -> LabelSpace:
    space = imagenet()
    # The order is ImageNet's; only a few of torchvision's names differ in spelling.
    same = sum(plain(ours) == plain(theirs) for ours, theirs in zip(space.classes, categories, strict=False))
    return space if len(categories) == len(space) and same > 500 else LabelSpace("torchvision", tuple(categories))
