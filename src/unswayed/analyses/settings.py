"""The settings of the commands that analyze predictions; each field is an option and a keyword."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from unswayed.choices import LEAVE_OUT, LeftOut, Option
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

    table: Annotated[str, Option(tables_help, values=ANALYSES.names)] = "drops"
    by: Annotated[
        str | None, Option("One row per `class`, `superclass`, or value of a predictions or manifest column.")
    ] = None
    accuracy: Annotated[
        Sequence[float],
        Option(
            "For `thresholds`: the accuracy to keep [default: 80]; may be repeated.",
            metavar="PERCENT",
            flags=("--at-accuracy",),
        ),
    ] = ()
    drop: Annotated[
        Sequence[float],
        Option(
            "For `thresholds`: the drop to allow [default: 10]; may be repeated.",
            metavar="POINTS",
            flags=("--at-drop",),
        ),
    ] = ()
    groups: Annotated[
        str | Path | None,
        Option("Means over models: a CSV with the column `model` and one column per grouping, or `all`."),
    ] = None
    models: Annotated[Sequence[str] | None, MODELS] = None
    edits: Annotated[Sequence[str] | None, Option("Only this edit; may be repeated.", flags=("--edit", "-e"))] = None
    benchmark: Annotated[Path | str | None, Option("The benchmark, if it was moved since `evaluate`.")] = None
    common: Annotated[bool, COMMON] = False
    condition: Condition | None = None
    reference: Annotated[
        Literal["original", "source"],
        Option("What drops are measured against: the framed `original` or the `source` file as it was.", read=str),
    ] = "original"
    leave_out: Annotated[LeftOut | None, LEAVE_OUT] = None
    interval: Annotated[str, Option("Kind of confidence interval: `auto`, `bootstrap` or `score`.")] = "auto"
    resamples: Annotated[int, RESAMPLES] = 1000
    level: Annotated[float, Option("Confidence level of the intervals.")] = 0.95
    seed: Annotated[int, SEED] = 0


@dataclass(frozen=True, kw_only=True)
class CompareSettings:
    """How two models, or all pairs of several, are compared. other: where the second model's predictions are, if they
    are not beside the first's."""

    measure: Annotated[
        Literal["accuracy", "drop", "net"],
        Option("What is compared: accuracy, its drop, or the drop net of each edit's control."),
    ] = "drop"
    other: Annotated[Path | Predictions | None, Option("The folder of B's predictions, if it is not the same.")] = None
    common: Annotated[bool, COMMON_OF_TWO] = False
    resamples: Annotated[int, RESAMPLES] = 1000
    level: float = 0.95
    interval: str = "auto"
    seed: Annotated[int, SEED] = 0


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
            raise UserError(f"{option} {text}", allowed=f"EDIT=NUMBER, as in {option} size-0.05=20")
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
    raise UserError(f"--min-threshold {text}", allowed=allowed)


@dataclass(frozen=True, kw_only=True)
class GateSettings:
    """The limits of a gate, and how they are checked.

    max_drop: edit or pattern -> points at most; min_accuracy: edit or pattern -> percent at least; min_threshold:
    attribute of a sweep -> (level, percent), the level down to which that accuracy must be kept; baseline: earlier
    predictions, and margin: points by which `measure` (accuracy) may be worse; config: a TOML file with the same, what
    is given here wins; models: only these; level: of the intervals (0.95).
    """

    max_drop: Annotated[
        Mapping[str, float] | None,
        Option(
            "The largest accuracy drop that an edit may cause; may be repeated.",
            metavar="EDIT=POINTS",
            read=partial(parse_limits, option="--max-drop"),
        ),
    ] = None
    min_accuracy: Annotated[
        Mapping[str, float] | None,
        Option(
            "The lowest accuracy allowed on an edit; a number alone is for `original`.",
            metavar="EDIT=PERCENT",
            read=partial(parse_limits, option="--min-accuracy", bare="original"),
        ),
    ] = None
    min_threshold: Annotated[
        Mapping[str, tuple[float, float]] | None,
        Option(
            "The accuracy must stay above PERCENT down to this level of a sweep.",
            metavar="ATTRIBUTE=LEVEL@PERCENT",
            read=lambda texts: {text.partition("=")[0]: parse_threshold(text) for text in texts},
        ),
    ] = None
    baseline: Annotated[Path | Predictions | None, Option("Predictions of an earlier model on the same benchmark.")] = (
        None
    )
    margin: Annotated[float | None, Option("Points by which a model may be worse than the baseline.")] = None
    measure: Annotated[
        Literal["accuracy", "drop"] | None, Option("Compared with the baseline: `accuracy` or `drop`.", read=str)
    ] = None
    leave_out: Annotated[LeftOut | None, LEAVE_OUT] = None
    config: Annotated[Path | str | None, Option("A TOML file of limits; the command line overrides it.")] = None
    models: Annotated[Sequence[str], MODELS] = ()
    level: Annotated[float | None, Option("Confidence level of the intervals [default: 0.95].")] = None
    common: Annotated[bool, COMMON_OF_TWO] = False
    resamples: Annotated[int, RESAMPLES] = 1000
    seed: Annotated[int, SEED] = 0


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """What shall be found out with how many photographs, and the assumptions where there is no pilot."""

    photographs: Annotated[
        Sequence[int],
        Option("Compute the smallest drop that N photographs detect; may be repeated.", flags=("-n", "--photographs")),
    ] = ()
    drop: Annotated[
        Sequence[float], Option("Compute how many photographs detect this drop; may be repeated.", metavar="POINTS")
    ] = ()
    max_drop: Annotated[
        float | None, Option("Compute how many photographs let `check --max-drop` pass.", metavar="POINTS")
    ] = None
    expect: Annotated[float, Option("The drop expected for --max-drop, without a pilot.", metavar="POINTS")] = 0.0
    gains: Annotated[
        float, Option("Predictions that the edit turns from wrong to right, without a pilot.", metavar="PERCENT")
    ] = 3.0
    accuracy: Annotated[float, Option("Accuracy on the originals, without a pilot.", metavar="PERCENT")] = 80.0
    runs: Annotated[int | None, Option("Edited pictures per photograph [default: the pilot's, else 1].", least=1)] = (
        None
    )
    correlation: Annotated[
        float, Option("Correlation between two runs of one photograph, without a pilot: 0 to 1.")
    ] = 0.5
    models: Annotated[
        Sequence[str] | None, Option("Only this model of the pilot; may be repeated.", flags=("-m", "--model"))
    ] = None
    edits: Annotated[
        Sequence[str] | None, Option("Only this edit of the pilot; may be repeated.", flags=("--edit",))
    ] = None
    power: Annotated[float, Option("The probability with which the drop shall be detected.")] = 0.8
    level: Annotated[float, Option("Confidence level of the tests and intervals.")] = 0.95
    tests: Annotated[int, Option("Number of tests in the planned table, for the correction of the error rate.")] = 1
    seed: Annotated[int, Option("Random seed of the simulations.")] = 0


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

    table: Annotated[str, Option("The table: {values}.", values=FACTOR_TABLES)] = "errors"
    which: Annotated[str, Option("`top`: the image's main factor; `multi`: all its factors.")] = "top"
    partition: Annotated[str, Option("The ImageNet partition: `val` or `train`.")] = "val"
    right: Annotated[str, Option("What counts as correct: `class`, `metaclass`, `real` or `real-standard`.")] = "class"
    by: Annotated[str | None, Option("`metaclass`: one table for each of the 17 metaclasses.")] = None
    folder: Annotated[
        Path | None,
        Option("A folder of annotation files instead of the installed imagenet-x.", flags=("--annotations",)),
    ] = None
    keep_prototypes: Annotated[bool, Option("Keep the images that annotators compared against.")] = False
    resamples: Annotated[int, Option("Number of bootstrap resamples; 0 for no intervals.", least=0)] = 1000
    level: float = 0.95
    seed: Annotated[int, SEED] = 0
    groups: Annotated[
        Path | str | None,
        Option(
            "For `model-types` and `accuracy`: a CSV with the column `model` and one column per grouping; "
            "`published`: the paper's types of models; `augmentations`: its comparison of augmentations.",
            metavar="CSV",
        ),
    ] = None
    strengths: Annotated[
        Path | None,
        Option(
            "For `spill-over` and `strengths`: a CSV with the columns model, augmentation, strength "
            "[default: from the names of the published models]."
        ),
    ] = None
    pair: Annotated[
        tuple[str, str] | None, Option("For `compare`: two models, `A,B`.", flags=("--models",), read=two_models)
    ] = None
    edited: Annotated[
        Path | None, Option("For `editing`: the predictions on a benchmark, if they are not in PREDICTIONS.")
    ] = None
    sets: Annotated[str | None, Option("Only these sets of published result tables, such as `base,modelvshuman`.")] = (
        None
    )
    models_per_strength: Annotated[
        int | None,
        Option("Leave out strengths of fewer models [default: 5 for the published sweeps, otherwise 1].", least=1),
    ] = None
