"""`open_model("source:name")` returns a `Classifier`: its own transform, its label space, its logits."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PUBLIC = {
    "open_model": "registry",
    "Classifier": "classifier",
    "Transform": "transforms",
    "HeatLayer": "heat",
    "fit_head": "heads",
}
__all__ = ["Classifier", "HeatLayer", "Transform", "fit_head", "open_model"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'unfazed.models' has no attribute '{name}'")
    return getattr(import_module(f"unfazed.models.{_PUBLIC[name]}"), name)
