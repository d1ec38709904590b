"""`torchvision:NAME` (its default weights), `torchvision:NAME/WEIGHTS` as in `torchvision:resnet50/IMAGENET1K_V2`.

`?checkpoint=FILE` replaces the weights; the transform and the classes of WEIGHTS still apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from unswayed.errors import check_known, unknown
from unswayed.labels import LabelSpace, imagenet
from unswayed.specs import Spec

from .classifier import Classifier, assumed, classifier_of
from .foreign_transforms import from_preset
from .label_mapping import imagenet_or, labels_from, unnamed
from .libraries import torchvision
from .transforms import COMMON, Transform
from .weights import classes_in, load_foreign, read_state, unavailable

AUXILIARY = {"googlenet": ("aux1", "aux2"), "inception_v3": ("AuxLogits",)}


def open_torchvision(spec: Spec, labels: LabelSpace | None = None, **where: str | None) -> Classifier:
    """A torchvision classifier under the transform that its weights state."""
    spec.check_options("checkpoint", *COMMON)
    name, _, tag = spec.name.partition("/")
    check_known("model in torchvision", [name], classifiers())
    checkpoint = spec.options.get("checkpoint")
    space, transform = imagenet(), Transform()
    weights: Any = None
    settings: dict[str, Any] = {}
    if tag or not checkpoint:
        enum = torchvision.models.get_model_weights(name)
        tags = [member.name for member in enum]
        if tag and tag.upper() not in tags:
            raise unknown(f"weight of {name}", tag, tags)
        weights = enum[tag.upper()] if tag else enum.DEFAULT
        space = imagenet_or("torchvision", weights.meta["categories"])
        transform = from_preset(weights.transforms())
        if name.startswith("vit_"):
            settings = {"image_size": weights.meta["min_size"][0]}
    if name in AUXILIARY:
        # These two were trained with a mean and standard deviation of 0.5, and undo ImageNet's in the network.
        settings = {"init_weights": False, "transform_input": weights is not None}
    if checkpoint:
        state = read_state(checkpoint)
    else:
        try:
            # The library's loader would unpickle, which is not needed, since the files hold only tensors.
            state = weights.get_state_dict(progress=False, check_hash=True, weights_only=True)
        except Exception as error:
            raise unavailable(str(spec), error, "give ?checkpoint=FILE") from error
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
    origin |= {} if weights else assumed(spec, transform, "torchvision's usual one")
    return classifier_of(spec, module, transform, named, where, origin | ({"settings": settings} if settings else {}))


def classifiers() -> list[str]:
    """The names of torchvision's classifiers; its other networks are in modules of their own."""
    return torchvision.models.list_models(module=torchvision.models)


def torchvision_names() -> list[str]:
    """The names of torchvision's classifiers with those of their weights, as in `resnet50/IMAGENET1K_V2`."""
    return [
        f"{name}/{weights.name}" for name in classifiers() for weights in torchvision.models.get_model_weights(name)
    ]


def build(name: str, classes: int, settings: Mapping[str, object]) -> nn.Module:
    """The architecture with random weights; settings: further keywords of its builder."""
    return torchvision.models.get_model(name, weights=None, num_classes=classes, **settings)
