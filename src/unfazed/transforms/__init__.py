"""Attribute edits as training augmentations: `RandomEdit` on a CPU, one picture at a time; `BatchEdit` on a GPU."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch_edit import BatchEdit
    from .mixture import EditMixture
    from .random_edit import RandomEdit
    from .scenes import Scenes

_PUBLIC = {"BatchEdit": "batch_edit", "EditMixture": "mixture", "RandomEdit": "random_edit", "Scenes": "scenes"}
__all__ = ["BatchEdit", "EditMixture", "RandomEdit", "Scenes"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'unfazed.transforms' has no attribute '{name}'")
    return getattr(import_module(f"unfazed.transforms.{_PUBLIC[name]}"), name)
