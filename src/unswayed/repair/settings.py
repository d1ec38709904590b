"""How a classifier is fine-tuned, kept in the card of what comes out; and a mixture of edits from measured drops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from unswayed.choices import DEVICE, TransformName, check_choice, option
from unswayed.edits.mixture import KINDS, EditMixture, trainable_edits
from unswayed.errors import UserError
from unswayed.files.records import read_object
from unswayed.files.whole import Json
from unswayed.specs import is_same_model

if TYPE_CHECKING:
    from unswayed.evaluation.predictions import Predictions

Part = Literal["head", "last", "all"]
Fill = Literal["patches", "smooth"]
TrainingPrecision = Literal["fp32", "bf16"]
Arm = Literal["control", "repaired"]
ARMS: tuple[Arm, ...] = ("control", "repaired")
PROBABILITY = 0.7
FEW = 500  # photographs below which the head alone is trained
USUAL_BATCH, SMALLEST_BATCH = 64, 8
FLOOR = 0.1  # of the largest weight: an edit that costs nothing is still drawn now and then

# What each number may be, and the words for it.
_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    **dict.fromkeys(("epochs", "batch_size", "accumulate", "patience"), (lambda value: value >= 1, "1 or more")),
    **dict.fromkeys(("validation", "held_out", "ema", "warmup"), (lambda value: 0 <= value < 1, "0 to below 1")),
    **dict.fromkeys(("crop", "layer_decay"), (lambda value: 0 < value <= 1, "above 0, up to 1")),
    **dict.fromkeys(
        ("weight_decay", "consistency"), (lambda value: 0 <= value < math.inf, "a finite number, 0 or more")
    ),
    "learning_rate": (lambda value: 0 < value < math.inf, "a finite number above 0"),
    "seed": (lambda value: value >= 0, "0 or more"),
}


@dataclass(frozen=True, kw_only=True)
class EnhanceSettings:
    """Which models a model is compared with, and how they run; others: such as the trained hybrid."""

    others: Sequence[str] = option((), "Also compare with this model; repeatable.", metavar="MODEL", flags=("--with",))
    transform: TransformName = option(
        "own", "The preprocessing: each model's `own`, or the `paper`'s (resize to 256, crop to 224)."
    )
    device: str | None = option(None, DEVICE)
    batch_size: int | None = option(None, "Pictures at once [default: what fits].")
    workers: int | None = option(None, "Processes that decode.")


@dataclass(frozen=True)
class RepairSettings:
    """Everything that decides a fine-tune except the model and the data; both arms share it.

    train: the classification layer, the last blocks and it, or all. batch_size: in `accumulate` passes. weight_decay:
    of AdamW. warmup: share of the steps over which the rate rises. ema: the averaged weights are what is kept. crop:
    least share of the picture's area that a training crop shows. mixture: the edits of the repaired arm; the control
    has none. fill: patches of the background, or a smooth fill.
    """

    train: Part | None = option(
        None, "Which part of the network is trained [default: the head below 500 photographs, else all]."
    )
    epochs: int = option(20, "Passes over the photographs, at most.")
    batch_size: int | None = option(
        None, "Pictures of one optimizer step [default: 64, or an eighth of fewer than 512 photographs]."
    )
    accumulate: int = option(1, "Passes that one step is divided into, to save memory.")
    learning_rate: float | None = option(None, "Peak learning rate [default: by the model's family].")
    layer_decay: float | None = option(None, "Factor of the rate from block to block [default: 0.75 for transformers].")
    freeze_norm: bool | None = option(None, "Keep batch-norm statistics [default: below 20,000 photographs].")
    weight_decay: float = 0.02
    warmup: float = 0.1
    ema: float = option(0.99, "Decay of the averaged weights.")
    patience: int = option(6, "Epochs without a better validation loss before an early stop.")
    consistency: float = option(0.0, "Weight of the divergence between answers before and after an edit; 0 is off.")
    crop: float = 0.5
    precision: TrainingPrecision | None = option(None, "Of the passes [default: fp32 on a CPU, bf16 on a GPU].")
    mixture: EditMixture = field(default_factory=lambda: EditMixture(probability=PROBABILITY))
    fill: Fill = option("patches", "What stands where an object was; smooth is quicker.")
    validation: float = option(0.1, "Share of every class to choose the epoch with.")
    held_out: float = option(0.2, "Share of every class to measure on.")
    seed: int = option(0, "Of the splits, the order, the crops, the edits and a new head.")

    def __post_init__(self) -> None:
        check_choice("part of a network to train", self.train or "all", Part)
        check_choice("fill", self.fill, Fill)
        check_choice("precision to train in", self.precision or "fp32", TrainingPrecision)
        for name, (is_allowed, words) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not is_allowed(value):
                raise UserError(f"{name} is {value}", allowed=words)
        if self.batch_size is not None and self.batch_size % self.accumulate:
            raise UserError(
                f"a batch of {self.batch_size} pictures cannot be divided into {self.accumulate} equal passes",
                allowed="a batch size that is a multiple of the passes",
            )

    def for_photographs(self, count: int, pretrained: bool = True) -> RepairSettings:
        """The settings with what is left open decided by the number of photographs to train on.

        A few photographs teach a whole network their own faces and make it forget the rest, so with few of them only
        the head is trained, in small steps; random weights are always trained as a whole.
        """
        part: Part = "head" if pretrained and count < FEW else "all"
        size = max(min(USUAL_BATCH, count // 8), SMALLEST_BATCH)
        return replace(
            self,
            train=self.train or part,
            batch_size=self.batch_size or -(-size // self.accumulate) * self.accumulate,
        )

    def to_json(self) -> Json:
        return {**asdict(self), "mixture": self.mixture.to_json()}


def read_mixture(path: str | Path | None = None, **others: object) -> EditMixture:
    """The mixture of a JSON file, or the default one; others: fields that replace those of the file.

    Refused: a file that is not JSON, and values that a mixture cannot have.
    """
    given = {} if path is None else read_object(path)
    settings = {"probability": PROBABILITY, **given, **others}
    return EditMixture.from_json(settings, "the mixture of edits" if path is None else str(path))


def mixture_from(predictions: Predictions, model: str, mixture: EditMixture) -> EditMixture:
    """`mixture` with each edit's weight in proportion to the largest drop of `model` under edits of that attribute.

    model: a name in the predictions, or another way to write the same model; any other is refused.
    """
    from unswayed.analyses.drops.drop import dropped_accuracy
    from unswayed.evaluation.facts import read_facts
    from unswayed.evaluation.predictions import missing_model, model_names

    facts = read_facts(predictions)
    names = model_names(predictions)
    stored = {name: str(facts.cards.get(name, {}).get("spec") or name) for name in names}
    same = [name for name, spec in stored.items() if name == model or is_same_model(model, spec)]
    if not same:
        raise missing_model(model, names, predictions)
    rows = dropped_accuracy(predictions, models=same[:1]).filter(kind="edit")
    return replace(mixture, weights=weights_of(dict(zip(rows["edit"], rows["drop"], strict=True)), facts.attributes))


def weights_of(
    drops: Mapping[str, float], attributes: Callable[[str], Iterable[str]] | None = None
) -> dict[str, float]:
    """A weight for each edit to train with, from drops in points by the names of a benchmark's edits.

    Weather and edits of other packages have one only if they were measured. attributes: what an edit of that name
    changes; None: what the edits of this package do.

    >>> weights_of({"size-0.05": 20.0, "direction": 5.0})["direction"]
    0.25
    """
    from unswayed.evaluation.facts import Facts

    attributes = attributes or Facts().attributes
    worst, trainable = dict.fromkeys(KINDS, 0.0), trainable_edits()
    for name, drop in drops.items():
        for kind in attributes(name):
            if kind in trainable:
                worst[kind] = max(worst.get(kind, 0.0), drop or 0.0)
    largest = max(worst.values())
    if largest <= 0:
        return dict.fromkeys(worst, 1.0)
    return {kind: max(value / largest, FLOOR) for kind, value in worst.items()}
