"""The settings of the commands that run models: `EvaluateSettings`, `SensitivitySettings` and their kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from unswayed.choices import DEVICE, ClassColumn, Convention, Frame, Option, Precision, TransformName, check_choice
from unswayed.errors import UserError
from unswayed.jobs import EngineSettings


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(EngineSettings):
    """How every model of an evaluation is run; None selects a value for the machine."""

    transform: Annotated[
        TransformName, Option("The preprocessing: each model's `own`, or the `paper`'s (resize to 256, crop to 224).")
    ] = "own"
    precision: Annotated[Precision | None, Option("Of the networks [default: fp32 on a CPU, bf16 on a GPU].")] = None
    batch_size: Annotated[int | None, Option("Pictures per batch [default: what fits in memory].")] = None
    workers: Annotated[
        int | None, Option("Threads that decode pictures for each GPU [default: as many as there are cores].")
    ] = None
    groups: Annotated[
        str | Path | None, Option('JSON file of class groups: {"dog": ["beagle", …], …}.', metavar="FILE")
    ] = None
    limit: Annotated[int | None, Option("Only the first N scenes.")] = None
    repeats: Annotated[int, Option("Ask about each original N more times: the model's own noise.", "N", least=0)] = 0
    budget: Annotated[
        str | None,
        Option("The most that `openai:` models may ask in this run: `requests=500`, `tokens=200000` or both."),
    ] = None
    concurrency: Annotated[int, Option("Questions to a server at the same time.", "N", least=1, most=64)] = 4
    rate: Annotated[float | None, Option("The most questions to a server in a minute.", "N")] = None
    timeout: Annotated[float, Option("Seconds to wait for a server's answer.", "SECONDS", least=0.1)] = 60.0
    verify: Annotated[bool, Option("Run all checks of `unswayed verify` first, not only the file hashes.")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("transform", self.transform, TransformName)
        if self.precision is not None:
            check_choice("precision", self.precision, Precision)
        for name, value in (("batch size", self.batch_size), ("limit", self.limit)):
            if value is not None and value < 1:
                raise UserError(f"the {name} is {value}", allowed="1 or more")
        least = {"repeats": 0, "concurrency": 1, "timeout": 0.1, "rate": 0.001}
        for name, number in least.items():
            value = getattr(self, name)
            if value is not None and not number <= value:
                raise UserError(f"the setting {name} is {value}", allowed=f"{number:g} or more")

    def on_card(self) -> dict[str, Any]:
        """Return the settings that a card contains: those that determine which predictions it describes."""
        groups = None if self.groups is None else str(self.groups)
        named = {name: getattr(self, name) for name in ("transform", "precision", "limit", "repeats")}
        return {**named, "groups": groups}


NORMS = ("linf", "l2", "both")
LIMIT = Option("Only the first N scenes.")
SAMPLE = Option("N random scenes, evenly over the classes.", metavar="N")
CLASSES = Option("Only these classes: names, WNIDs or indices separated by commas.")
FRAME = Option("How photographs are cropped or squeezed to a square.")


@dataclass(frozen=True, kw_only=True)
class SensitivitySettings(EngineSettings):
    """Which noise, heat maps and tables of a source's photographs are made. levels: such as `30,60,90`."""

    norm: Annotated[str, Option("Noise by standard deviation (`linf`), norm (`l2`), or `both`.", values=NORMS)] = "linf"
    levels: Annotated[str | None, Option("Such as `30,60,90` [default: the published levels].")] = None
    seeds: Annotated[int, Option("Number of noise samples per level.")] = 1
    saliency: Annotated[
        str | None,
        Option("Also compare heat maps with the object's mask: `layercam`, `gradcam`, ….", metavar="METHOD"),
    ] = None
    spurious: Annotated[bool, Option("Also a gallery of what models use outside the object.")] = False
    channels: Annotated[
        str | None,
        Option("Also compare a layer's channels with attributes; `heat` is the last layer.", metavar="LAYER"),
    ] = None
    groups: Annotated[
        Path | None, Option("Groups of models: a CSV such as `model,architecture,training`.", metavar="CSV")
    ] = None
    attributes: Annotated[bool, Option("Also noise on each attribute's mask, if there are any.")] = True
    ablation: Annotated[bool, Option("Also replace each region by gray.")] = True
    frame: Annotated[Frame, FRAME] = "object"
    class_by: Annotated[
        ClassColumn, Option("Classes of `saliency-class` and `suspects`: the true class or the predicted one.")
    ] = "label"
    measure: Annotated[
        str, Option("The measure of heat maps that ranks suspects and is drawn: `precision`, `iou`, ….")
    ] = "precision"
    convention: Annotated[
        Convention,
        Option("`released`: as RIVAL10's code: no normalization, soft masks, an undefined iRFS is 0, plain means."),
    ] = "default"
    limit: Annotated[int | None, LIMIT] = None
    sample: Annotated[int | None, SAMPLE] = None
    classes: Annotated[str | None, CLASSES] = None
    batch_size: Annotated[int | None, Option("Pictures per batch [default: 32 on a CPU, otherwise 256].")] = None
    resamples: Annotated[int, Option("Number of bootstrap resamples.", least=10)] = 1000


@dataclass(frozen=True, kw_only=True)
class DistributionSettings(EngineSettings):
    """What the edited pictures are compared with, and by which measures.

    against: folders `images:PATH`. reference: the folder that all are compared with, the originals if None. fid: also
    FID and KID, by the Inception weights in the file `inception` (else the fetched ones). adapt: also the accuracy with
    batch-norm statistics of each edit.
    """

    against: Annotated[
        Sequence[str], Option("Also another folder of pictures; may be repeated.", metavar="images:FOLDER")
    ] = ()
    reference: Annotated[
        str | None,
        Option("The folder that all are compared with [default: the originals].", metavar="images:FOLDER"),
    ] = None
    fid: Annotated[bool, Option("FID and KID; needs the Inception weights.")] = True
    inception: Annotated[
        Path | str | None, Option("The Inception weights [default: the fetched ones].", metavar="FILE")
    ] = None
    adapt: Annotated[bool, Option("Accuracy before and after batch-norm adaptation.")] = True
    out_above: Annotated[float, Option("The AUROC above which a set is out.", least=0.5, most=1)] = 0.7
    limit: Annotated[int | None, Option("Only the first N photographs.")] = None
    resamples: Annotated[int, Option("Resamples of the photographs.", least=20)] = 500
    level: Annotated[float, Option("Of the intervals.")] = 0.95


@dataclass(frozen=True, kw_only=True)
class HeadSettings:
    """How a linear head is trained on frozen features; None takes the preset's value."""

    frame: Annotated[Frame, FRAME] = "object"
    ablate: Annotated[Literal["background"] | None, Option("Train on pictures with a gray `background`.")] = None
    preset: Annotated[
        Convention,
        Option("`default`: until the validation loss stops falling; `released`: as RIVAL10's fine-tuner."),
    ] = "default"
    epochs: Annotated[int | None, Option("Number of epochs [default: the preset's].")] = None
    learning_rate: Annotated[float | None, Option("Learning rate [default: the preset's].")] = None
    limit: Annotated[int | None, LIMIT] = None
    per_class: Annotated[int | None, Option("Only N scenes of each class.")] = None
    classes: Annotated[str | None, CLASSES] = None
    seed: Annotated[int, Option("Random seed of the validation split and the training.")] = 0
    device: Annotated[str | None, DEVICE] = None
