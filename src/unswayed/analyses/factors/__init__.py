"""ImageNet-X: a model's mistakes by factor of variation (Idrissi et al., ICLR 2023), with intervals."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from unswayed.choices import takes
from unswayed.errors import UserError, check_known, unknown
from unswayed.sources.imagenet_x import FACTORS, WHICH, Annotations, load_annotations, published_types

from ..settings import FactorSettings
from ..statistics.paired import Resampling
from . import model_types, prevalence
from .answers import Answers, choose_sets, coverage, human_answers, read_answers, read_results, result_files
from .error_ratios import adjusted_error_ratios, factor_calibration, factor_errors

# decimals in displayed tables
DIGITS = {
    "accuracy": 4, "accuracy_a": 4, "accuracy_b": 4, "difference": 4, "calibration_error": 4, "prevalence": 4,
    "correlation": 3, "average": 4, "coverage": 3, "p_value": 4, "p_holm": 4, "ratio_p_holm": 4,
}  # fmt: skip
# shorter column names in displayed tables
HEADINGS = {
    "error_ratio": "ratio", "adjusted_error_ratio": "adjusted", "calibration_error": "ece", "p_value": "p",
    "p_holm": "p Holm", "error_ratio_a": "ratio a", "error_ratio_b": "ratio b", "ratio_difference": "ratio a-b",
    "ratio_p_holm": "ratio p Holm", "accuracy_a": "acc. a", "accuracy_b": "acc. b", "difference": "a-b",
}  # fmt: skip


@dataclass(frozen=True)
class Study(FactorSettings):
    """The settings of a factor study with its input.

    predictions: files of predictions or published result tables; None for tables of the annotations alone.
    """

    predictions: Path | None = None

    @cached_property
    def annotations(self) -> Annotations:
        return load_annotations(self.which, self.partition, self.folder, keep_prototypes=self.keep_prototypes)

    @cached_property
    def results(self) -> dict[str, Path]:
        """The published result tables by set; {} if there are predictions instead."""
        files = result_files(self.given, self.which, self.partition, self.right, self.by)
        if self.sets is not None and not files:
            raise UserError("--sets chooses among published result tables", allowed=f"{self.given} has predictions")
        return choose_sets(files, self.sets)

    @property
    def given(self) -> Path:
        """The predictions or result tables, which most tables need."""
        if self.predictions is None:
            raise UserError("this table needs predictions or result tables", run="unswayed factors PREDICTIONS …")
        return self.predictions

    def answers(self) -> Iterator[Answers]:
        """Yield every model's predictions, one model in memory at a time."""
        if self.results:
            raise UserError(
                f"{self.given} contains result tables, and this table needs the prediction for each image",
                allowed=f"the tables {', '.join(OF_RESULTS)}",
            )
        return read_answers(self.given, self.annotations)

    def errors(self, by: str | None = None, **options: object) -> pl.DataFrame:
        """Return `factor_errors` of every model, or the same columns from result tables."""
        if self.results:
            return read_results(self.results, by)
        return self.over_models(factor_errors, self.right, by, **options)

    def over_models(self, measure: Callable[..., pl.DataFrame], *arguments: object, **options: object) -> pl.DataFrame:
        return pl.concat([measure(self.annotations, answers, *arguments, **options) for answers in self.answers()])

    @property
    def intervals(self) -> Resampling:
        """The settings of the bootstrap."""
        return Resampling(resamples=self.resamples, level=self.level, seed=self.seed)


def errors(study: Study) -> pl.DataFrame:
    """Return `factor_errors` of every model; with ReaL also of the original labels, under the name `human`."""
    table = study.errors(study.by, **study.intervals)
    if study.right.startswith("real") and not study.results and "human" not in table["model"]:
        human = human_answers(study.annotations)
        table.extend(factor_errors(study.annotations, human, study.right, study.by, **study.intervals))
    return table


def _all_annotations(study: Study, selections: Sequence[str] = WHICH) -> list[Annotations]:
    pairs = itertools.product(selections, ("train", "val"))
    return [load_annotations(*pair, study.folder, keep_prototypes=study.keep_prototypes) for pair in pairs]


def accuracies(study: Study) -> pl.DataFrame:
    """Return the accuracy of every model on every factor beside its accuracy on all images."""
    table = study.errors(resamples=0)
    keys = [name for name in ("set", "model") if name in table.columns]
    average = table.filter(pl.col("factor") == "average").select(*keys, pl.col("accuracy").alias("average"))
    table = table.filter(pl.col("factor").is_in(FACTORS)).join(average, on=keys, maintain_order="left")
    if study.groups is None:
        return table.select(*keys, "average", "factor", "accuracy", "error_ratio")
    groups = _groups(study, table)
    grouping = groups["grouping"][0] if len(groups) else ""
    groups = groups.filter(pl.col("grouping") == grouping)
    grouped = table.join(groups, on=model_types.shared_keys(table, groups), maintain_order="left")
    if grouped.is_empty():
        raise UserError("the groups name none of the models")
    return grouped.select(*keys, "group", "average", "factor", "accuracy", "error_ratio")


def _groups(study: Study, table: pl.DataFrame) -> pl.DataFrame:
    if study.groups is None:
        raise UserError(
            "the table model-types needs groups of models",
            run="unswayed factors … --groups FILE.csv, or --groups published for the paper's types",
        )
    if str(study.groups) == "published":
        return model_types.published_groups(table, published_types(study.folder))
    if str(study.groups) == "augmentations":
        if not study.results:
            raise UserError("--groups augmentations is for the published result tables", allowed="--groups FILE.csv")
        return model_types.augmentation_groups(table, study.models_per_strength or model_types.LEAST_MODELS)
    return model_types.read_groups(study.groups)


def _swept(study: Study) -> tuple[pl.DataFrame, pl.DataFrame, int]:
    """Return the error ratios, the models' strengths and the least number of models of a strength."""
    least = study.models_per_strength
    if study.strengths is not None:
        return study.errors(resamples=0), model_types.read_strengths(study.strengths), least or 1
    if not study.results:
        raise UserError(
            "the table spill-over needs the models' augmentations", run="unswayed factors … --strengths FILE.csv"
        )
    table = study.errors(resamples=0)
    return table, model_types.strengths_by_name(table), least or model_types.LEAST_MODELS


def compared(study: Study) -> pl.DataFrame:
    if study.pair is None:
        raise UserError("the table compare needs two models", run="unswayed factors … --models A,B")
    chosen = {answers.model: answers for answers in study.answers() if answers.model in study.pair}
    for name in study.pair:
        if name not in chosen:
            raise unknown("model", name, [answers.model for answers in study.answers()])
    a, b = (chosen[name] for name in study.pair)
    return model_types.compare_models(study.annotations, a, b, study.right, **study.intervals)


def editing(study: Study) -> pl.DataFrame:
    """Return one row per model and attribute, with the correlation over all models."""
    annotations, edited = study.annotations, prevalence.read_edited(study.edited or study.given)
    pairs = prevalence.drop_and_error_ratio(annotations, edited)
    return pairs.join(prevalence.correlation_over_models(pairs), on=["attribute", "factor"], how="left")


TABLES: dict[str, Callable[[Study], pl.DataFrame]] = {
    "errors": errors,
    "accuracy": accuracies,
    "calibration": lambda study: study.over_models(factor_calibration, study.right, study.by),
    "mistakes": lambda study: study.over_models(prevalence.misclassification_shift, study.right, study.by),
    "adjusted": lambda study: study.over_models(adjusted_error_ratios, study.right, level=study.level),
    "compare": compared,
    "coverage": lambda study: study.over_models(coverage),
    "prevalence": lambda study: prevalence.prevalence(study.annotations, study.by),
    "distribution": lambda study: prevalence.factor_distribution(_all_annotations(study)),
    "active-factors": lambda study: prevalence.active_factor_counts(_all_annotations(study, ("multi",))),
    "correlation": lambda study: prevalence.factor_correlation(study.annotations),
    "model-types": lambda study: model_types.compare_model_types(
        table := study.errors(resamples=0), _groups(study, table)
    ),
    "spill-over": lambda study: model_types.spill_over(*_swept(study)),
    "strengths": lambda study: model_types.by_strength(*_swept(study)),
    "editing": editing,
}
# the tables that published result tables are enough for
OF_RESULTS = ("errors", "accuracy", "model-types", "spill-over", "strengths")


@takes(FactorSettings)
def factors(predictions: str | Path | None, settings: FactorSettings) -> pl.DataFrame:
    """Return one table of ImageNet-X; the fields of settings are keywords: `factors("predictions", which="multi")`.

    predictions: files of predictions or published result tables; None for tables of the annotations alone.
    """
    return make_table(Study(None if predictions is None else Path(predictions), **vars(settings)), settings.table)


def make_table(study: Study, table: str = "errors") -> pl.DataFrame:
    """Return the named table of the study as a polars data frame."""
    check_known("factor table", [table], TABLES)
    return TABLES[table](study)


def published_tables(
    predictions: str | Path, folder: Path | None = None
) -> dict[tuple[str, str, str | None], pl.DataFrame]:
    """Return the twelve tables of the published toolkit by (which, right, by), reading the predictions once."""
    chosen = [load_annotations(which, folder=folder) for which in WHICH]
    tables: dict[tuple[str, str, str | None], list[pl.DataFrame]] = {}
    # Both selections annotate the same images in the same order, so predictions are joined only once.
    assert chosen[0].keys.equals(chosen[1].keys)
    for answers in itertools.chain(read_answers(predictions, chosen[0]), [human_answers(chosen[0])]):
        for selection, right, by in itertools.product(chosen, ("class", "metaclass", "real"), (None, "metaclass")):
            if answers.model != "human" or right == "real":
                table = factor_errors(selection, answers, right, by, resamples=0)
                tables.setdefault((selection.which, right, by), []).append(table)
    return {key: pl.concat(parts) for key, parts in tables.items()}


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
