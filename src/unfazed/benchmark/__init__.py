"""The benchmark on disk: `build` it, `verify` it, open it with `Benchmark`, `import_benchmark` a published one."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Names load their module on first use: reading a benchmark needs neither edits nor a renderer.
_PUBLIC = {
    "Benchmark": "folder",
    "BuildSettings": "settings",
    "Built": "building",
    "Progress": "building",
    "build": "building",
    "changed_files": "verifying",
    "verify": "verifying",
    "import_benchmark": "importing",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'unfazed.benchmark' has no attribute '{name}'")
    return getattr(import_module(f"unfazed.benchmark.{_PUBLIC[name]}"), name)
