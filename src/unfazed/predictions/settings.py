"""`EvaluateSettings`: how models classify pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unfazed.choices import Precision, TransformName, check_choice
from unfazed.errors import UserError


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings:
    """How every model of an evaluation is run; None selects a value for the machine.

    transform: `own`, or `paper` (resize 256, crop 224) for all models. groups: a JSON file that maps each class of the
    benchmark to several of the model's. limit: only this many scenes. verify: first run all checks of `unfazed verify`,
    not only compare the files' hashes. batch_size: pictures per batch; workers: processes that decode.
    """

    transform: TransformName = "own"
    device: str | None = None
    precision: Precision | None = None
    batch_size: int | None = None
    workers: int | None = None
    groups: str | Path | None = None
    limit: int | None = None
    verify: bool = False

    def __post_init__(self) -> None:
        check_choice("transform", self.transform, TransformName)
        if self.precision is not None:
            check_choice("precision", self.precision, Precision)
        for name, value in (("batch size", self.batch_size), ("limit", self.limit)):
            if value is not None and value < 1:
                raise UserError(f"the {name} is {value}", allowed="1 or more")

    def on_card(self) -> dict[str, Any]:
        """Return the settings that a card contains: those that determine which predictions it describes."""
        groups = None if self.groups is None else str(self.groups)
        return {"transform": self.transform, "precision": self.precision, "groups": groups, "limit": self.limit}
