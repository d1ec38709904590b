"""How a classifier is fine-tuned; kept in the card of what comes out."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, get_args

from unswayed.choices import Option
from unswayed.edits.mixture import EditMixture
from unswayed.errors import UserError, unknown

Part = Literal["head", "last", "all"]
PARTS: tuple[str, ...] = get_args(Part)
Fill = Literal["patches", "smooth"]
FILLS: tuple[str, ...] = get_args(Fill)
Arm = Literal["control", "repaired"]
ARMS: tuple[Arm, ...] = ("control", "repaired")


@dataclass(frozen=True)
class RepairSettings:
    """Everything that decides a fine-tune except the model and the data; both arms share it.

    train: the classification layer, the last blocks and it, or all. batch_size: in `accumulate` passes. weight_decay:
    of AdamW. warmup: share of the steps over which the rate rises. ema: the averaged weights are what is kept. crop:
    least share of the picture's area that a training crop shows. mixture: the edits of the repaired arm; the control
    has none. fill: patches of the background, or a smooth fill.
    """

    train: Annotated[Part, Option("Which part of the network is trained.")] = "all"
    epochs: Annotated[int, Option("Passes over the photographs, at most.")] = 20
    batch_size: Annotated[int, Option("Pictures of one optimizer step.")] = 64
    accumulate: Annotated[int, Option("Passes that one step is divided into, to save memory.")] = 1
    learning_rate: Annotated[float | None, Option("Peak learning rate [default: by the model's family].")] = None
    layer_decay: Annotated[
        float | None, Option("Factor of the rate from block to block [default: 0.75 for transformers].")
    ] = None
    freeze_norm: Annotated[bool | None, Option("Keep batch-norm statistics [default: below 20,000 photographs].")] = (
        None
    )
    weight_decay: float = 0.02
    warmup: float = 0.1
    ema: Annotated[float, Option("Decay of the averaged weights.")] = 0.99
    patience: Annotated[int, Option("Epochs without a better validation loss before an early stop.")] = 6
    consistency: Annotated[
        float, Option("Weight of the divergence between answers before and after an edit; 0 is off.")
    ] = 0.0
    crop: float = 0.5
    precision: Annotated[
        Literal["fp32", "bf16"] | None, Option("Of the passes [default: fp32 on a CPU, bf16 on a GPU].")
    ] = None
    mixture: EditMixture = field(default_factory=lambda: EditMixture(probability=0.7))
    fill: Annotated[Fill, Option("What stands where an object was; smooth is quicker.")] = "patches"
    validation: Annotated[float, Option("Share of every class to choose the epoch with.")] = 0.1
    held_out: Annotated[float, Option("Share of every class to measure on.")] = 0.2
    seed: Annotated[int, Option("Of the splits, the order, the crops, the edits and a new head.")] = 0

    def __post_init__(self) -> None:
        if self.train not in PARTS:
            raise unknown("part of a network to train", self.train, PARTS)
        if self.fill not in FILLS:
            raise unknown("fill", self.fill, FILLS)
        if self.precision not in (None, "fp32", "bf16"):
            raise unknown("precision to train in", str(self.precision), ("fp32", "bf16"))
        for name in ("epochs", "batch_size", "accumulate", "patience"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}", allowed="1 or more")
        if self.batch_size % self.accumulate:
            raise UserError(
                f"a batch of {self.batch_size} pictures cannot be divided into {self.accumulate} equal passes",
                allowed="a batch size that is a multiple of the passes",
            )
        for name, least, below in (("validation", 0, 1), ("held_out", 0, 1), ("ema", 0, 1), ("warmup", 0, 1)):
            if not least <= getattr(self, name) < below:
                raise UserError(f"{name} is {getattr(self, name)}", allowed="0 to below 1")
        if not 0 < self.crop <= 1:
            raise UserError(f"crop is {self.crop}", allowed="above 0, up to 1")
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            raise UserError(f"the learning rate is {self.learning_rate}", allowed="a finite number above 0")
        if self.layer_decay is not None and not 0 < self.layer_decay <= 1:
            raise UserError(f"layer_decay is {self.layer_decay}", allowed="above 0, up to 1")
        for name in ("weight_decay", "consistency"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"{name} is {getattr(self, name)}", allowed="a finite number, 0 or more")
        if self.seed < 0:
            raise UserError(f"seed is {self.seed}", allowed="0 or more")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "mixture": self.mixture.to_json()}
