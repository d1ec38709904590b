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
    """The steps that follow a change.

    preview: the new result, from the models and `chosen`; results: its outputs; begin: the same after another
    photograph, for which the controls start elsewhere; controls: its further outputs; answer: the predictions in
    detail, which follow by themselves when the picture is settled; answers: its output.
    """

    preview: Callable[..., Any]
    results: Sequence[Any]
    begin: Callable[..., Any]
    controls: Sequence[Any]
    answer: Callable[..., Any]
    answers: Any

    def follow(self, shared: Shared, event: Any) -> None:
        """Update the controls and the result after `event`, which changed the photograph."""
        event.then(self.begin, [shared.models, *shared.chosen], [*self.controls, *self.results], **PRIVATE, **LIGHT)
