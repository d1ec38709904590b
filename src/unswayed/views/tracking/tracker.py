"""`Tracker`: what a tool that keeps runs must offer, and the table of those that are known."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np

from unswayed.errors import missing_extra, unknown


@dataclass(frozen=True, eq=False)
class FlipPicture:
    """One flip: class names, probabilities, and the pictures (H, W, 3) uint8, None where they are not available."""

    sample_id: str
    edit: str
    label: str
    predicted: str
    before_probability: float
    after_probability: float
    original: np.ndarray | None
    edited: np.ndarray | None


class Tracker(Protocol):
    """One run of a tracking tool, about one model.

    A tracker is opened with `open(name, run_id)`: the name of the run, and the `run_id` of an earlier run to be
    continued, or None. A package offers its own through the entry-point group `unswayed.trackers`.
    """

    run_id: str

    def parameters(self, values: Mapping[str, str]) -> None:
        """Record settings, hashes and versions."""
        ...

    def metrics(self, values: Mapping[str, float]) -> None:
        """Record accuracies in percent and drops in points, with the ends of their intervals."""
        ...

    def flips(self, flips: Sequence[FlipPicture]) -> None:
        """Record a table of flips with their pictures."""
        ...

    def file(self, path: Path) -> None:
        """Record a file, such as the report."""
        ...

    def close(self) -> None:
        """End the run."""
        ...


Open = Callable[[str, str | None], Tracker]
ENTRY_POINTS = "unswayed.trackers"
NONE = "none"
# name -> (module of this room, function, package it needs, variable that switches it on)
TRACKERS = {
    "mlflow": ("to_mlflow", "open_mlflow", "mlflow", "MLFLOW_TRACKING_URI"),
    "wandb": ("to_wandb", "open_wandb", "wandb", "WANDB_PROJECT"),
}


def chosen_trackers(given: Sequence[str], say: Callable[[str], None]) -> dict[str, Open]:
    """The trackers by name: those `given`, or without any those that environment variables switch on.

    say: receives one line for each tracker that a variable switches on, or that is not installed. `none` is none.
    """
    if NONE in given:
        return {}
    for name in given:
        if name in TRACKERS and find_spec(TRACKERS[name][2]) is None:
            raise missing_extra(TRACKERS[name][2], name)
    if given:
        return {name: opener(name) for name in dict.fromkeys(given)}
    found = {}
    for name, (_, _, package, variable) in TRACKERS.items():
        if not os.environ.get(variable):
            continue
        if find_spec(package) is None:
            say(f"{variable} is set, but {name} is not installed: pip install 'unswayed[{name}]'")
            continue
        say(f"recording in {name}, because {variable} is set; --track none turns it off")
        found[name] = opener(name)
    return found


def opener(name: str) -> Open:
    """The function that opens a run of the tracker `name`."""
    if name in TRACKERS:
        module, function, _, _ = TRACKERS[name]
        return getattr(import_module(f"unswayed.views.tracking.{module}"), function)
    offered = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name in offered:
        return offered[name].load()
    raise unknown("tracker", name, [*TRACKERS, *offered, NONE])
