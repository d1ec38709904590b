"""Networks that a card can describe: the library, the name there, and the settings that they are built with.

architecture_of(model)      # {"library": "timm", "name": "test_vit.r160_in1k", "settings": {"img_size": 96}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from unfazed.errors import UserError
from unfazed.records import fits, require_fields

from .classifier import Classifier

LONGEST, LARGEST = 100, 4096  # characters of a text, and size of a number, that a setting may have
# Keywords of timm that read other files or use the network, and the number of classes, which the labels decide.
_REFUSED = ("pretrained", "backbone_pretrained", "checkpoint_path", "cache_dir", "num_classes")
# Settings that a card leaves out, since the weights beside it decide them.
_WEIGHTS = ("num_classes", "backbone_pretrained", "cache_dir")
_TORCHVISION = ("init_weights", "transform_input", "aux_logits", "image_size")
BUILD_ERRORS = (RuntimeError, TypeError, AttributeError, ValueError, KeyError, AssertionError, ImportError)


def architecture_of(model: Classifier) -> dict[str, Any]:
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
    given = model.origin.get("settings", {})
    settings = {key: value for key, value in given.items() if key not in _WEIGHTS}
    found = {"library": library, "name": name, **({"settings": settings} if settings else {})}
    return found if _gives_same_network(found, model) else {}


def origin_in(architecture: Mapping[str, Any]) -> dict[str, Any]:
    """The entries for the origin of a model that was built by a card's description, so that it is described again."""
    names = {"library": "library", "name": "architecture", "settings": "settings"}
    return {names[key]: value for key, value in architecture.items() if key in names}


def check_architecture(architecture: Any, where: str) -> None:
    """Raise UserError unless a card's description names a library and a network, with settings of allowed values."""
    if not architecture:
        return
    require_fields(architecture, {"library": str, "name": str, "settings": dict[str, Any] | None}, where)
    library, settings = architecture["library"], architecture.get("settings") or {}
    # timm downloads a name with a colon (`hf-hub:…`) from a hub, also without its weights.
    if library not in ("timm", "torchvision") or ":" in architecture["name"]:
        raise UserError(f"{where}: {library} {architecture['name'][:LONGEST]}", allowed="a name in timm or torchvision")
    for name, value in settings.items():
        refused = name not in _TORCHVISION if library == "torchvision" else _is_refused(name)
        if refused or not _is_plain(value):
            raise UserError(
                f"{where}: the setting '{name[:LONGEST]}'",
                allowed=f"settings of the network; true, false, numbers up to {LARGEST}, texts up to {LONGEST} letters",
            )


def built(architecture: Mapping[str, Any], state: Mapping[str, torch.Tensor], classes: int) -> nn.Module:
    """The network that a checked card describes, with the weights of `state`.

    Raises one of BUILD_ERRORS if there is no such network or the weights do not fit it.
    """
    settings = architecture.get("settings") or {}
    if settings:
        # Without memory for the weights, so that settings of a damaged card cannot ask for more than the file has.
        with torch.device("meta"):
            shapes = {name: one.shape for name, one in _random(architecture, classes, settings).state_dict().items()}
        if shapes != {name: one.shape for name, one in state.items()}:
            raise ValueError("the shapes differ")
    module = _random(architecture, classes, settings)
    module.load_state_dict(dict(state))
    return module


def _random(architecture: Mapping[str, Any], classes: int, settings: Mapping[str, Any]) -> nn.Module:
    if architecture["library"] == "torchvision":
        from .from_torchvision import build

        return build(architecture["name"], classes, settings)
    import timm

    from . import hybrid  # noqa: F401  registers hybrid_resnet50_vits

    module: nn.Module = timm.create_model(architecture["name"], pretrained=False, num_classes=classes, **settings)
    return module


def _is_refused(name: str) -> bool:
    return any(part in name for part in _REFUSED)


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST
    return isinstance(value, bool) or (fits(value, float) and abs(value) <= LARGEST)


def _gives_same_network(architecture: Mapping[str, Any], model: Classifier) -> bool:
    """Whether the description can be kept in a card and gives the logits of the model with its weights."""
    try:
        check_architecture(dict(architecture), "")
        again = built(architecture, model.module.state_dict(), len(model.labels))
    except (UserError, *BUILD_ERRORS):
        return False
    side = model.transform.crop
    pixels = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    one, two = (replace(model, module=module, precision="fp32").logits(pixels) for module in (model.module, again))
    return torch.allclose(one, two, rtol=1e-3, atol=1e-3 * float(one.abs().max()))
