"""The settings of the commands that analyze predictions; each field is an option and a keyword."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from unswayed.choices import LEAVE_OUT, LeftOut, Option, option
from unswayed.errors import UserError

from . import ANALYSES, tables_help

if TYPE_CHECKING:
    from unswayed.evaluation.predictions import Predictions

Condition = Literal["measured", "human"]
COMMON = Option("If the models' benchmarks differ, use only the pictures they share.", flags=("--common",))
COMMON_OF_TWO = Option("If the benchmarks differ, compare only the pictures they share.", flags=("--common",))
MODELS = Option("Only this model; may be repeated.", flags=("--model", "-m"))
RESAMPLES = Option("Number of bootstrap resamples.", least=20)
SEED = Option("Random seed of the resamples.")


@dataclass(frozen=True, kw_only=True)
class AnalyzeSettings:
    """Which table of the predictions is made, of which rows, with which intervals.

    condition: only pictures that are valid as `measured`, or as most people say (`human`).
    """

    table: str = option("drops", tables_help, values=ANALYSES.names)
    by: str | None = option(None, "One row per `class`, `superclass`, or value of a predictions or manifest column.")
    accuracy: Sequence[float] = option(
        (),
        "For `thresholds`: the accuracy to keep [default: 80]; may be repeated.",
        metavar="PERCENT",
        flags=("--at-accuracy",),
    )
    drop: Sequence[float] = option(
        (),
        "For `thresholds`: the drop to allow [default: 10]; may be repeated.",
        metavar="POINTS",
        flags=("--at-drop",),
    )
    groups: str | Path | None = option(
        None, "Means over models: a CSV with the column `model` and one column per grouping, or `all`."
    )
    models: Sequence[str] | None = option(None, MODELS)
    edits: Sequence[str] | None = option(None, "Only this edit; may be repeated.", flags=("--edit", "-e"))
    benchmark: Path | str | None = option(None, "The benchmark, if it was moved since `evaluate`.")
    common: bool = option(False, COMMON)
    condition: Condition | None = None
    reference: Literal["original", "source"] = option(
        "original", "What drops are measured against: the framed `original` or the `source` file as it was.", read=str
    )
    leave_out: LeftOut | None = option(None, LEAVE_OUT)
    interval: str = option("auto", "Kind of confidence interval: `auto`, `bootstrap` or `score`.")
    resamples: int = option(1000, RESAMPLES)
    level: float = option(0.95, "Confidence level of the intervals.")
    seed: int = option(0, SEED)


@dataclass(frozen=True, kw_only=True)
class CompareSettings:
    """How two models, or all pairs of several, are compared. other: where the second model's predictions are, if they
    are not beside the first's."""

    measure: Literal["accuracy", "drop", "net"] = option(
        "drop", "What is compared: accuracy, its drop, or the drop net of each edit's control."
    )
    other: Path | Predictions | None = option(None, "The folder of B's predictions, if it is not the same.")
    common: bool = option(False, COMMON_OF_TWO)
    resamples: int = option(1000, RESAMPLES)
    level: float = 0.95
    interval: str = "auto"
    seed: int = option(0, SEED)


def parse_limits(texts: Iterable[str], option: str, bare: str | None = None) -> dict[str, float]:
    """Return the limits from `EDIT=NUMBER` texts; a number alone is for the edit `bare`, if that is allowed.

    >>> parse_limits(["size-0.05=20", "average=12.5"], "--max-drop")
    {'size-0.05': 20.0, 'average': 12.5}
    """
    limits = {}
    for text in texts:
        edit, equals, number = text.rpartition("=")
        edit = edit.strip() if equals else bare or ""
        try:
            limits[edit] = float(number)
        except ValueError:
            edit = ""
        if not edit:
            raise UserError(f"{option} is '{text}'", allowed=f"EDIT=NUMBER, as in {option} size-0.05=20")
    return limits


def parse_threshold(text: str) -> tuple[float, float]:
    """Return (level, percent) of `ATTRIBUTE=LEVEL@PERCENT`.

    >>> parse_threshold("size=0.04@80")
    (0.04, 80.0)
    """
    attribute, _, rest = text.partition("=")
    level, _, percent = rest.partition("@")
    with contextlib.suppress(ValueError):
        numbers = float(level), float(percent)
        if attribute and 1 < numbers[1] <= 100:
            return numbers
    allowed = "ATTRIBUTE=LEVEL@PERCENT, as size=0.04@80: 80 % down to size 0.04"
    raise UserError(f"--min-threshold is '{text}'", allowed=allowed)


@dataclass(frozen=True, kw_only=True)
class GateSettings:
    """The limits of a gate (`analyses.drops.limits.Rules`), and how they are checked."""

    max_drop: Mapping[str, float] | None = option(
        None,
        "The largest accuracy drop that an edit may cause; may be repeated.",
        metavar="EDIT=POINTS",
        read=partial(parse_limits, option="--max-drop"),
    )
    min_accuracy: Mapping[str, float] | None = option(
        None,
        "The lowest accuracy allowed on an edit; a number alone is for `original`.",
        metavar="EDIT=PERCENT",
        read=partial(parse_limits, option="--min-accuracy", bare="original"),
    )
    min_threshold: Mapping[str, tuple[float, float]] | None = option(
        None,
        "The accuracy must stay above PERCENT down to this level of a sweep.",
        metavar="ATTRIBUTE=LEVEL@PERCENT",
        read=lambda texts: {text.partition("=")[0]: parse_threshold(text) for text in texts},
    )
    baseline: Path | Predictions | None = option(None, "Predictions of an earlier model on the same benchmark.")
    margin: float | None = option(None, "Points by which a model may be worse than the baseline.")
    measure: Literal["accuracy", "drop"] | None = option(
        None, "Compared with the baseline: `accuracy` or `drop`.", read=str
    )
    leave_out: LeftOut | None = option(None, LEAVE_OUT)
    config: Path | str | None = option(None, "A TOML file of limits; the command line overrides it.")
    models: Sequence[str] = option((), MODELS)
    level: float | None = option(None, "Confidence level of the intervals [default: 0.95].")
    common: bool = option(False, COMMON_OF_TWO)
    resamples: int = option(1000, RESAMPLES)
    seed: int = option(0, SEED)


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """What shall be found out with how many photographs, and the assumptions where there is no pilot."""

    photographs: Sequence[int] = option(
        (), "Compute the smallest drop that N photographs detect; may be repeated.", flags=("-n", "--photographs")
    )
    drop: Sequence[float] = option(
        (), "Compute how many photographs detect this drop; may be repeated.", metavar="POINTS"
    )
    max_drop: float | None = option(None, "Compute how many photographs let `check --max-drop` pass.", metavar="POINTS")
    expect: float = option(0.0, "The drop expected for --max-drop, without a pilot.", metavar="POINTS")
    gains: float = option(
        3.0, "Predictions that the edit turns from wrong to right, without a pilot.", metavar="PERCENT"
    )
    accuracy: float = option(80.0, "Accuracy on the originals, without a pilot.", metavar="PERCENT")
    runs: int | None = option(None, "Edited pictures per photograph [default: the pilot's, else 1].", least=1)
    correlation: float = option(0.5, "Correlation between two runs of one photograph, without a pilot: 0 to 1.")
    models: Sequence[str] | None = option(
        None, "Only this model of the pilot; may be repeated.", flags=("-m", "--model")
    )
    edits: Sequence[str] | None = option(None, "Only this edit of the pilot; may be repeated.", flags=("--edit",))
    power: float = option(0.8, "The probability with which the drop shall be detected.")
    level: float = option(0.95, "Confidence level of the tests and intervals.")
    tests: int = option(1, "Number of tests in the planned table, for the correction of the error rate.")
    seed: int = option(0, "Random seed of the simulations.")


FACTOR_TABLES = (
    "errors", "accuracy", "calibration", "mistakes", "adjusted", "compare", "coverage", "prevalence", "distribution",
    "active-factors", "correlation", "model-types", "spill-over", "strengths", "editing",
)  # fmt: skip


def two_models(text: str) -> tuple[str, str]:
    """Return the two models of `A,B`.

    >>> two_models("ResNet50,DINO")
    ('ResNet50', 'DINO')
    """
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or not all(names):
        raise UserError(f"'{text}' is not two models", allowed="A,B")
    return names[0], names[1]


@dataclass(frozen=True, kw_only=True)
class FactorSettings:
    """The settings of the ImageNet-X tables; those after `seed` are for some tables only."""

    table: str = option("errors", "The table: {values}.", values=FACTOR_TABLES)
    which: str = option("top", "`top`: the image's main factor; `multi`: all its factors.")
    partition: str = option("val", "The ImageNet partition: `val` or `train`.")
    right: str = option("class", "What counts as correct: `class`, `metaclass`, `real` or `real-standard`.")
    by: str | None = option(None, "`metaclass`: one table for each of the 17 metaclasses.")
    folder: Path | None = option(
        None, "A folder of annotation files instead of the installed imagenet-x.", flags=("--annotations",)
    )
    keep_prototypes: bool = option(False, "Keep the images that annotators compared against.")
    resamples: int = option(1000, "Number of bootstrap resamples; 0 for no intervals.", least=0)
    level: float = 0.95
    seed: int = option(0, SEED)
    groups: Path | str | None = option(
        None,
        "For `model-types` and `accuracy`: a CSV with the column `model` and one column per grouping; "
        "`published`: the paper's types of models; `augmentations`: its comparison of augmentations.",
        metavar="CSV",
    )
    strengths: Path | None = option(
        None,
        "For `spill-over` and `strengths`: a CSV with the columns model, augmentation, strength "
        "[default: from the names of the published models].",
    )
    pair: tuple[str, str] | None = option(
        None, "For `compare`: two models, `A,B`.", flags=("--models",), read=two_models
    )
    edited: Path | None = option(None, "For `editing`: the predictions on a benchmark, if they are not in PREDICTIONS.")
    sets: str | None = option(None, "Only these sets of published result tables, such as `base,modelvshuman`.")
    models_per_strength: int | None = option(
        None, "Leave out strengths of fewer models [default: 5 for the published sweeps, otherwise 1].", least=1
    )
