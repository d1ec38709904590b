"""`EvaluateSettings`: how models classify pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from unswayed.choices import Option, Precision, TransformName, check_choice
from unswayed.errors import UserError
from unswayed.jobs.settings import EngineSettings


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(EngineSettings):
    """How every model of an evaluation is run; None selects a value for the machine."""

    transform: Annotated[
        TransformName, Option("The preprocessing: each model's `own`, or the `paper`'s (resize to 256, crop to 224).")
    ] = "own"
    precision: Annotated[Precision | None, Option("Of the networks [default: fp32 on a CPU, bf16 on a GPU].")] = None
    batch_size: Annotated[int | None, Option("Pictures per batch [default: what fits in memory].")] = None
    workers: Annotated[
        int | None, Option("Processes that decode pictures for each GPU [default: as many as there are cores].")
    ] = None
    groups: Annotated[
        str | Path | None, Option('JSON file of class groups: {"dog": ["beagle", …], …}.', metavar="FILE")
    ] = None
    limit: Annotated[int | None, Option("Only the first N scenes.")] = None
    verify: Annotated[bool, Option("Run all checks of `unswayed verify` first, not only the file hashes.")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
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
