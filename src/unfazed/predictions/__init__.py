"""Run classifiers on a benchmark or a labeled folder; store every prediction, one Parquet file and card per model."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PUBLIC = {
    "evaluate": "reading",
    "read_predictions": "reading",
    "scan_predictions": "reading",
    "cards": "reading",
    "run_evaluation": "evaluation",
    "Evaluation": "evaluation",
    "EvaluateSettings": "settings",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'unfazed.predictions' has no attribute '{name}'")
    return getattr(import_module(f"unfazed.predictions.{_PUBLIC[name]}"), name)
