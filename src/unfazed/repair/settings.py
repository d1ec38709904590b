"""How a classifier is fine-tuned; kept in the card of what comes out."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from unfazed.errors import UserError, unknown
from unfazed.transforms.mixture import EditMixture

Part = Literal["head", "last", "all"]
PARTS: tuple[str, ...] = get_args(Part)
Fill = Literal["patches", "smooth"]
FILLS: tuple[str, ...] = get_args(Fill)
Arm = Literal["control", "repaired"]
ARMS: tuple[Arm, ...] = ("control", "repaired")


@dataclass(frozen=True)
class RepairSettings:
    """Everything that decides a fine-tune except the model and the data; both arms share it.

    train: the parameters that are trained: the classification layer, the last blocks and it, or all. epochs: over the
    training photographs. batch_size: pictures of one optimizer step, in `accumulate` passes. learning_rate,
    layer_decay, freeze_norm: None for the default of the model's family (`family.py`). weight_decay: of AdamW.
    warmup: share of the steps over which the rate rises. ema: decay of the averaged weights, which are what is kept.
    patience: epochs without a better validation loss before an early stop. consistency: weight of the divergence
    between the answers to a picture before and after its edit; 0 turns it off. crop: least share of the picture's
    area that a training crop shows. precision: of the passes; None is bf16 on a GPU and fp32 on a CPU. mixture: the
    edits of the repaired arm; the control has none. fill: what stands where an object was: patches of its background,
    or a smooth fill, which is quicker. validation, held_out: shares of every class that are kept out of training, to
    choose the epoch and to measure. seed: of the splits, the order, the crops, the edits and a new head.
    """

    train: Part = "all"
    epochs: int = 20
    batch_size: int = 64
    accumulate: int = 1
    learning_rate: float | None = None
    layer_decay: float | None = None
    freeze_norm: bool | None = None
    weight_decay: float = 0.02
    warmup: float = 0.1
    ema: float = 0.99
    patience: int = 6
    consistency: float = 0.0
    crop: float = 0.5
    precision: str | None = None
    mixture: EditMixture = field(default_factory=lambda: EditMixture(probability=0.7))
    fill: Fill = "patches"
    validation: float = 0.1
    held_out: float = 0.2
    seed: int = 0

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
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise UserError(f"the learning rate is {self.learning_rate}", allowed="above 0")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "mixture": self.mixture.to_json()}
