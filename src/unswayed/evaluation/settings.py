"""The settings of the commands that run models: `EvaluateSettings`, `SensitivitySettings` and their kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unswayed.choices import (
    DEVICE,
    ClassColumn,
    Convention,
    Frame,
    Option,
    Precision,
    TransformName,
    option,
)
from unswayed.jobs import EngineSettings

LIMIT = Option("Only the first N scenes.", least=1)


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(EngineSettings):
    """How every model of an evaluation is run; None selects a value for the machine."""

    transform: TransformName = option(
        "own", "The preprocessing: each model's `own`, or the `paper`'s (resize to 256, crop to 224)."
    )
    precision: Precision | None = option(None, "Of the networks [default: fp32 on a CPU, bf16 on a GPU].")
    batch_size: int | None = option(None, "Pictures per batch [default: what fits in memory].", least=1)
    workers: int | None = option(
        None, "Threads that decode pictures for each GPU [default: as many as there are cores]."
    )
    groups: str | Path | None = option(None, 'JSON file of class groups: {"dog": ["beagle", …], …}.', metavar="FILE")
    limit: int | None = option(None, LIMIT)
    repeats: int = option(0, "Ask about each original N more times: the model's own noise.", "N", least=0)
    budget: str | None = option(
        None, "The most that `openai:` models may ask in this run: `requests=500`, `tokens=200000` or both."
    )
    concurrency: int = option(4, "Questions to a server at the same time.", "N", least=1, most=64)
    rate: float | None = option(None, "The most questions to a server in a minute.", "N", least=0.001)
    timeout: float = option(60.0, "Seconds to wait for a server's answer.", "SECONDS", least=0.1)
    verify: bool = option(False, "Run all checks of `unswayed verify` first, not only the file hashes.")

    def on_card(self) -> dict[str, object]:
        """Return the settings that a card contains: those that determine which predictions it describes."""
        groups = None if self.groups is None else str(self.groups)
        named = {name: getattr(self, name) for name in ("transform", "precision", "limit", "repeats")}
        return {**named, "groups": groups}


NORMS = ("linf", "l2", "both")
SAMPLE = Option("N random scenes, evenly over the classes.", metavar="N")
CLASSES = Option("Only these classes: names, WNIDs or indices separated by commas.")
FRAME = Option("How photographs are cropped or squeezed to a square.")


@dataclass(frozen=True, kw_only=True)
class SensitivitySettings(EngineSettings):
    """Which noise, heat maps and tables of a source's photographs are made. levels: such as `30,60,90`."""

    norm: str = option("linf", "Noise by standard deviation (`linf`), norm (`l2`), or `both`.", values=NORMS)
    levels: str | None = option(None, "Such as `30,60,90` [default: the published levels].")
    seeds: int = option(1, "Number of noise samples per level.", least=1)
    saliency: str | None = option(
        None, "Also compare heat maps with the object's mask: `layercam`, `gradcam`, ….", metavar="METHOD"
    )
    spurious: bool = option(False, "Also a gallery of what models use outside the object.")
    channels: str | None = option(
        None, "Also compare a layer's channels with attributes; `heat` is the last layer.", metavar="LAYER"
    )
    groups: Path | None = option(None, "Groups of models: a CSV such as `model,architecture,training`.", metavar="CSV")
    attributes: bool = option(True, "Also noise on each attribute's mask, if there are any.")
    ablation: bool = option(True, "Also replace each region by gray.")
    frame: Frame = option("object", FRAME)
    class_by: ClassColumn = option(
        "label", "Classes of `saliency-class` and `suspects`: the true class or the predicted one."
    )
    measure: str = option(
        "precision", "The measure of heat maps that ranks suspects and is drawn: `precision`, `iou`, …."
    )
    convention: Convention = option(
        "default", "`released`: as RIVAL10's code: no normalization, soft masks, an undefined iRFS is 0, plain means."
    )
    limit: int | None = option(None, LIMIT)
    sample: int | None = option(None, SAMPLE)
    classes: str | None = option(None, CLASSES)
    batch_size: int | None = option(None, "Pictures per batch [default: 32 on a CPU, otherwise 256].")
    resamples: int = option(1000, "Number of bootstrap resamples.", least=10)


@dataclass(frozen=True, kw_only=True)
class DistributionSettings(EngineSettings):
    """What the edited pictures are compared with, and by which measures.

    against: folders `images:PATH`. reference: the folder that all are compared with, the originals if None. fid: also
    FID and KID, by the Inception weights in the file `inception` (else the fetched ones). adapt: also the accuracy with
    batch-norm statistics of each edit.
    """

    against: Sequence[str] = option((), "Also another folder of pictures; may be repeated.", metavar="images:FOLDER")
    reference: str | None = option(
        None, "The folder that all are compared with [default: the originals].", metavar="images:FOLDER"
    )
    fid: bool = option(True, "FID and KID; needs the Inception weights.")
    inception: Path | str | None = option(None, "The Inception weights [default: the fetched ones].", metavar="FILE")
    adapt: bool = option(True, "Accuracy before and after batch-norm adaptation.")
    out_above: float = option(0.7, "The AUROC above which a set is out.", least=0.5, most=1)
    limit: int | None = option(None, "Only the first N photographs.", least=1)
    resamples: int = option(500, "Resamples of the photographs.", least=20)
    level: float = option(0.95, "Of the intervals.")


@dataclass(frozen=True, kw_only=True)
class HeadSettings:
    """How a linear head is trained on frozen features; None takes the preset's value."""

    frame: Frame = option("object", FRAME)
    ablate: Literal["background"] | None = option(None, "Train on pictures with a gray `background`.")
    preset: Convention = option(
        "default", "`default`: until the validation loss stops falling; `released`: as RIVAL10's fine-tuner."
    )
    epochs: int | None = option(None, "Number of epochs [default: the preset's].")
    learning_rate: float | None = option(None, "Learning rate [default: the preset's].")
    limit: int | None = option(None, LIMIT)
    per_class: int | None = option(None, "Only N scenes of each class.")
    classes: str | None = option(None, CLASSES)
    seed: int = option(0, "Random seed of the validation split and the training.")
    device: str | None = option(None, DEVICE)
