"""Recording results where runs are tracked: MLflow, Weights & Biases, or the tracker of another package."""

from __future__ import annotations

from .recording import record
from .tracker import FlipPicture, Tracker

__all__ = ["FlipPicture", "Tracker", "record"]
