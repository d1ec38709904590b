"""Repair: fine-tune a classifier on edited data, with a plain fine-tune as control, and measure before and after."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .run import repair
    from .settings import RepairSettings

_PUBLIC = {"repair": "run", "RepairSettings": "settings"}
__all__ = ["RepairSettings", "repair"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'unfazed.repair' has no attribute '{name}'")
    return getattr(import_module(f"unfazed.repair.{_PUBLIC[name]}"), name)
