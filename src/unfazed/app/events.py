"""What the panels of the Edit tab share: the visitor's state, the components that events read, and limits of events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .controls import Group
from .studio import Studio

# Heavy work is queued: only one visitor at a time renders or opens a photograph.
LIGHT_LIMIT, HEAVY_LIMIT = 4, 1
# While one update is running, only the last of the waiting ones is run.
LIGHT: dict[str, Any] = {
    "concurrency_limit": LIGHT_LIMIT,
    "show_progress": "hidden",
    "trigger_mode": "always_last",
}
HEAVY: dict[str, Any] = {"concurrency_limit": HEAVY_LIMIT, "concurrency_id": "heavy"}
PRIVATE: dict[str, Any] = {"api_visibility": "private"}


@dataclass(frozen=True, eq=False)
class Shared:
    """What every panel may read.

    photograph: the state with the visitor's `Photograph`; shown: the state with the pictures (before, after), or None;
    chosen: the inputs of a preview, which are the photograph, the file of a background, the seed and every control in
    the order in which `values_from` reads them; models: the list of chosen models.
    """

    studio: Studio
    groups: Sequence[Group]
    photograph: Any
    shown: Any
    chosen: Sequence[Any]
    models: Any


@dataclass(frozen=True, eq=False)
class Updates:
    """The steps that follow a change: the new result, then the predictions for it."""

    preview: Callable[..., Any]
    results: Sequence[Any]
    answer: Callable[..., Any]
    answers: Any

    def follow(self, shared: Shared, event: Any) -> None:
        """Update the result and the predictions after `event`."""
        self.answered(shared, event.then(self.preview, shared.chosen, self.results, **PRIVATE, **LIGHT))

    def answered(self, shared: Shared, event: Any, **visibility: Any) -> None:
        """Update the predictions after `event`."""
        given = [shared.photograph, shared.shown, shared.models]
        event.then(self.answer, given, self.answers, **(visibility or PRIVATE), **LIGHT)
