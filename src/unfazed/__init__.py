"""Change one attribute of the object in a photograph, keep everything else, and measure how far the answer moves."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Public names load their module on first use, so that `import unfazed` and `unfazed --help` stay quick.
_PUBLIC = {
    "Scene": "unfazed.scene",
    "frame": "unfazed.scene",
    "LabelSpace": "unfazed.labels",
    "UserError": "unfazed.errors",
    "open_source": "unfazed.sources",
    "open_model": "unfazed.models",
    "evaluate": "unfazed.predictions",
    "dropped_accuracy": "unfazed.analyses.drops.drop",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'unfazed' has no attribute '{name}'")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
