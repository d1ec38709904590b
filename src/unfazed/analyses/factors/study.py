"""The factor tables of a folder of predictions, for the command line and the report."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from unfazed.errors import UserError, unknown
from unfazed.sources.imagenet_x.annotations import WHICH, Annotations, load_annotations

from .adjusted import adjusted_error_ratios
from .answers import Answers, coverage, human_answers, read_answers
from .calibration import factor_calibration
from .comparison import compare_models
from .correlation import factor_correlation
from .editing import agreement, drop_and_error_ratio, read_edited
from .error_ratios import factor_errors
from .model_types import compare_model_types, read_groups
from .prevalence import metaclass_shift, misclassification_shift, prevalence
from .spill_over import read_strengths, spill_over

TableKey = tuple[str, str, str | None]  # which, right, by

# decimals in displayed tables
DIGITS = {
    "accuracy": 4, "accuracy_a": 4, "accuracy_b": 4, "difference": 4, "calibration_error": 4, "prevalence": 4,
    "correlation": 3, "coverage": 3, "p_value": 4, "p_holm": 4, "ratio_p_holm": 4,
}  # fmt: skip
# shorter column names in displayed tables
HEADINGS = {
    "error_ratio": "ratio", "adjusted_error_ratio": "adjusted", "calibration_error": "ece", "p_value": "p",
    "p_holm": "p Holm", "error_ratio_a": "ratio a", "error_ratio_b": "ratio b", "ratio_difference": "ratio a-b",
    "ratio_p_holm": "ratio p Holm", "accuracy_a": "acc. a", "accuracy_b": "acc. b", "difference": "a-b",
}  # fmt: skip


@dataclass(frozen=True)
class Study:
    """The input and settings of a factor study; `groups`, `strengths`, `pair` and `edited` are for some tables only."""

    predictions: Path
    which: str = "top"
    partition: str = "val"
    right: str = "class"
    by: str | None = None
    folder: Path | None = None
    keep_prototypes: bool = False
    resamples: int = 1000
    level: float = 0.95
    seed: int = 0
    groups: Path | None = None
    strengths: Path | None = None
    pair: tuple[str, str] | None = None
    edited: Path | None = None

    @cached_property
    def annotations(self) -> Annotations:
        return load_annotations(self.which, self.partition, self.folder, keep_prototypes=self.keep_prototypes)

    def answers(self) -> Iterator[Answers]:
        """Yield every model's predictions, one model in memory at a time."""
        return read_answers(self.predictions, self.annotations)

    def over_models(self, measure: Callable[..., pl.DataFrame], *arguments: object, **options: object) -> pl.DataFrame:
        return pl.concat([measure(self.annotations, one, *arguments, **options) for one in self.answers()])


def errors(study: Study) -> pl.DataFrame:
    """Return `factor_errors` of every model; with ReaL also of the original labels, under the name `human`."""
    options = {"resamples": study.resamples, "level": study.level, "seed": study.seed}
    table = study.over_models(factor_errors, study.right, study.by, **options)
    if study.right.startswith("real") and "human" not in table["model"]:
        human = human_answers(study.annotations)
        table.extend(factor_errors(study.annotations, human, study.right, study.by, **options))  # type: ignore[arg-type]
    return table


def calibration(study: Study) -> pl.DataFrame:
    return study.over_models(factor_calibration, study.right, study.by)


def covered(study: Study) -> pl.DataFrame:
    return study.over_models(coverage)


def mistakes(study: Study) -> pl.DataFrame:
    return study.over_models(misclassification_shift, study.right, study.by)


def adjusted(study: Study) -> pl.DataFrame:
    return study.over_models(adjusted_error_ratios, study.right, level=study.level)


def prevalences(study: Study) -> pl.DataFrame:
    return metaclass_shift(study.annotations) if study.by == "metaclass" else prevalence(study.annotations)


def correlations(study: Study) -> pl.DataFrame:
    return factor_correlation(study.annotations)


def model_types(study: Study) -> pl.DataFrame:
    if study.groups is None:
        raise UserError("the table model-types needs groups of models", run="unfazed factors … --groups FILE.csv")
    groups = read_groups(study.groups)
    return compare_model_types(study.over_models(factor_errors, study.right, resamples=0), groups)


def spill_overs(study: Study) -> pl.DataFrame:
    if study.strengths is None:
        raise UserError(
            "the table spill-over needs the models' augmentations", run="unfazed factors … --strengths FILE.csv"
        )
    strengths = read_strengths(study.strengths)
    return spill_over(study.over_models(factor_errors, study.right, resamples=0), strengths)


def compared(study: Study) -> pl.DataFrame:
    if study.pair is None:
        raise UserError("the table compare needs two models", run="unfazed factors … --models A,B")
    found = {one.model: one for one in study.answers() if one.model in study.pair}
    for name in study.pair:
        if name not in found:
            raise unknown("model", name, [one.model for one in study.answers()])
    a, b = (found[name] for name in study.pair)
    options = {"resamples": study.resamples, "level": study.level, "seed": study.seed}
    return compare_models(study.annotations, a, b, study.right, **options)  # type: ignore[arg-type]


def editing(study: Study) -> pl.DataFrame:
    """Return one row per model and attribute, with the correlation over all models."""
    pairs = drop_and_error_ratio(study.annotations, read_edited(study.edited or study.predictions))
    return pairs.join(agreement(pairs), on=["attribute", "factor"], how="left")


TABLES: dict[str, Callable[[Study], pl.DataFrame]] = {
    "errors": errors,
    "calibration": calibration,
    "mistakes": mistakes,
    "adjusted": adjusted,
    "compare": compared,
    "coverage": covered,
    "prevalence": prevalences,
    "correlation": correlations,
    "model-types": model_types,
    "spill-over": spill_overs,
    "editing": editing,
}


def make_table(study: Study, table: str = "errors") -> pl.DataFrame:
    """Return the named table of the study as a polars data frame."""
    if table not in TABLES:
        raise unknown("factor table", table, TABLES)
    return TABLES[table](study)


def published_tables(
    predictions: str | Path, folder: Path | None = None
) -> dict[tuple[str, str, str | None], pl.DataFrame]:
    """Return the twelve tables of the published toolkit by (which, right, by), reading the predictions once."""
    chosen = [load_annotations(which, folder=folder) for which in WHICH]
    tables: dict[TableKey, list[pl.DataFrame]] = {}
    # Both selections annotate the same images in the same order, so predictions are joined only once.
    assert chosen[0].keys.equals(chosen[1].keys)
    for answers in itertools.chain(read_answers(predictions, chosen[0]), [human_answers(chosen[0])]):
        for selection, right, by in itertools.product(chosen, ("class", "metaclass", "real"), (None, "metaclass")):
            if answers.model != "human" or right == "real":
                table = factor_errors(selection, answers, right, by, resamples=0)
                tables.setdefault((selection.which, right, by), []).append(table)
    return {key: pl.concat(parts) for key, parts in tables.items()}


def two_models(text: str | None) -> tuple[str, str] | None:
    """Return the two models of `A,B`.

    >>> two_models("ResNet50,DINO")
    ('ResNet50', 'DINO')
    """
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or not all(names):
        raise UserError(f"'{text}' is not two models", allowed="A,B")
    return names[0], names[1]


def remarks(study: Study, table: pl.DataFrame) -> list[str]:
    """Return remarks for the reader of the table: partial coverage, and how ReaL was counted."""
    said = []
    if "coverage" in table.columns:
        partial = table.filter(pl.col("coverage") < 1).unique("model", maintain_order=True)
        said += [
            f"{model}: {share:.1%} of the {len(study.annotations):,} annotated images"
            for model, share in partial.select("model", "coverage").iter_rows()
        ]
    if study.right == "real":
        said.append(
            "real: images without any ReaL label count as wrong, as in the published tables; "
            "--right real-standard leaves them out"
        )
    return said
