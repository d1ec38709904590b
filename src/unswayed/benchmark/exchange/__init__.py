"""Benchmarks in the formats of other libraries: `export_benchmark` writes them, `import_published` reads them back."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PUBLIC = {"Exported": "exported", "export_benchmark": "exporting", "import_published": "published"}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'unswayed.benchmark.exchange' has no attribute '{name}'")
    return getattr(import_module(f"unswayed.benchmark.exchange.{_PUBLIC[name]}"), name)
