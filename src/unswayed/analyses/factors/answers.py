"""Models' predictions joined to the annotations by file name, one model at a time.

A folder may contain CSV files of the published toolkit (file_name, predicted_class, predicted_probability; the file's
stem is the model) and this package's own Parquet files (model, file_name, edit, predicted, probability). Of files that
contain edited pictures too, only the `original` rows are used here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from unswayed.errors import UserError, check_known, some
from unswayed.files.tables import Column, column_names, read_checked
from unswayed.files.text_tables import csv_names, read_csv
from unswayed.sources.imagenet_x import FACTORS, Annotations, image_keys

_PREDICTED = ("predicted_class", "predicted")
_PROBABILITY = ("predicted_probability", "probability")
_UNEDITED = ("original", "")
_ENOUGH = 20  # images from which a shift of the classes can be told
SUMMARIES = ("worst_factor", "average", "worst_100_classes")
FILE = "accuracies_per_factor"
# our name of a definition of correct -> the folder of the published tree
FOLDERS = {"class": "class", "metaclass": "metaclass", "real": "real_class"}


@dataclass(frozen=True, eq=False)
class Answers:
    """One model's predictions for N annotated images.

    `predicted` is (N,) int16, -1 if there is no prediction; `probability` (N,) float64, NaN if unknown;
    `given` is the number of rows in the model's file, whether annotated or not.
    """

    model: str
    predicted: np.ndarray
    probability: np.ndarray
    given: int

    @property
    def seen(self) -> np.ndarray:
        """Return (N,) bool: the images that the model classified."""
        return self.predicted >= 0

    @property
    def coverage(self) -> float:
        """Return the share of the annotated images that the model classified, in (0, 1]."""
        return float(self.seen.mean())


def read_answers(path: str | Path, annotations: Annotations) -> Iterator[Answers]:
    """Yield the predictions of every model in `path` (a folder or one file), in the order of the file names."""
    seen: dict[str, Path] = {}
    names: pl.Series | None = None  # of the last file, which many models share
    for file in answer_files(path):
        for model, table in _models_of(file):
            if model in seen:
                raise UserError(f"the model '{model}' is in two files: {seen[model]} and {file}")
            seen[model], here = file, table["file_name"].cast(pl.String)
            if names is None or not here.equals(names):
                names, matched = here, _matches(annotations, here, model, file)
            yield _joined(annotations, matched, model, table, file)
    if not seen:
        raise UserError(f"no file of {path} contains a prediction for an unedited picture")


def human_answers(annotations: Annotations) -> Answers:
    """Return the original labels as predictions, to compare ImageNet's annotators with the ReaL labels."""
    return Answers("human", annotations.labels, np.ones(len(annotations)), len(annotations))


def coverage(annotations: Annotations, answers: Answers) -> pl.DataFrame:
    """Return one row: the number of predictions, how many are for annotated images, and the share of those covered."""
    counts = {"given": answers.given, "matched": int(answers.seen.sum()), "annotated": len(annotations)}
    return pl.DataFrame([{"model": answers.model, **counts, "coverage": answers.coverage}])


def answer_files(path: str | Path) -> list[Path]:
    """Return the CSV and Parquet files of a folder, sorted by name, or the one file given."""
    path = Path(path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(
            f"there is no file or folder {path}", allowed="a folder of CSV or Parquet files, or one such file"
        )
    files = [f for f in path.iterdir() if f.suffix.lower() in (".csv", ".parquet") and not f.name.startswith(".")]
    if not files:
        raise UserError(f"{path} contains no predictions", allowed="*.csv (file_name, predicted_class, …) or *.parquet")
    return sorted(files)


def _models_of(file: Path) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield (model, table of file_name, predicted, probability) for each model of one file."""
    is_csv = file.suffix.lower() == ".csv"
    names = csv_names(file) if is_csv else column_names(file)
    predicted = next((name for name in _PREDICTED if name in names), None)
    probability = next((name for name in _PROBABILITY if name in names), None)
    if "file_name" not in names or predicted is None:
        raise UserError(
            f"{file} has no {'file_name' if 'file_name' not in names else 'predicted_class'} column",
            allowed="file_name, predicted_class and, if there is one, predicted_probability",
        )
    declared = {"file_name": Column("text", nulls=False), predicted: Column("number"), "edit": Column("text")}
    declared |= {"model": Column("text", nulls=False), **({probability: Column("number")} if probability else {})}
    if is_csv:
        table = read_csv(file, declared, select=list(declared), categories=("file_name", "edit", "model"))
    else:
        table = read_checked(file, declared, select=list(declared))
    frame = pl.DataFrame(table)
    if "edit" in names:
        frame = frame.filter(pl.col("edit").is_null() | pl.col("edit").cast(pl.String).is_in(_UNEDITED))
    known = pl.col(probability) if probability else pl.lit(None, pl.Float64)
    columns = ["file_name", pl.col(predicted).alias("predicted"), known.alias("probability")]
    if "model" not in names:
        yield file.stem, frame.select(columns)
        return
    for (model,), part in frame.partition_by("model", as_dict=True, maintain_order=True).items():
        yield str(model), part.select(columns)


def _matches(annotations: Annotations, names: pl.Series, model: str, file: Path) -> pl.DataFrame:
    """Return the row of the annotations and the line of the file of each image that is in both."""
    known = pl.DataFrame({"key": annotations.keys}).with_row_index("row")
    matched = pl.DataFrame({"key": image_keys(names)}).with_row_index("line").join(known, on="key", how="inner")
    if matched.is_empty():
        example = f", such as '{names[0]}'" if len(names) else ""
        own = "ImageNet's own images, named like {}.JPEG, whose factors ImageNet-X lists; for other photographs: {}"
        raise UserError(
            f"{file}: none of the {len(names)} file names of '{model}'{example} is in the ImageNet-X annotations "
            f"({annotations.partition})",
            allowed=own.format(annotations.keys[0], "unswayed analyze") if len(annotations) else None,
            run=f"unswayed factors … --partition {'train' if annotations.partition == 'val' else 'val'}",
        )
    twice = matched.filter(matched["row"].is_duplicated())
    if not twice.is_empty():
        raise UserError(
            f"{file}: '{model}' has {twice['key'].n_unique()} images more than once, such as {twice['key'][0]}",
            allowed="one row per image",
        )
    return matched


def _joined(annotations: Annotations, matched: pl.DataFrame, model: str, table: pl.DataFrame, file: Path) -> Answers:
    """Return the predictions assigned to the rows of their images."""
    rows, lines = matched["row"].to_numpy(), matched["line"].to_numpy()
    classes, chances = (table[name].cast(pl.Float64).to_numpy() for name in ("predicted", "probability"))
    whole = (classes >= 0) & (classes <= 999) & (classes == np.floor(classes))
    if table["predicted"].null_count() or not whole.all():
        raise UserError(
            f"{file} has predicted classes that are not ImageNet class numbers", allowed="whole numbers 0…999"
        )
    predicted = np.full(len(annotations), -1, dtype=np.int16)
    predicted[rows] = classes.astype(np.int16)[lines]
    _refuse_shifted(model, predicted[rows], annotations.labels[rows], file)
    if (chances < 0).any() or (chances > 1 + 1e-6).any():
        raise UserError(
            f"{file} has predicted probabilities outside 0…1", allowed="the softmax value of the predicted class"
        )
    probability = np.full(len(annotations), np.nan)
    probability[rows] = chances[lines]
    return Answers(model, predicted, probability, table.height)


def _refuse_shifted(model: str, predicted: np.ndarray, labels: np.ndarray, file: Path) -> None:
    """Refuse answers that are wrong as they are and right when every class is counted from another number."""
    if len(labels) < _ENOUGH or (predicted == labels).mean() > 0.05:
        return
    for shift in (1, -1):
        right = float((predicted + shift == labels).mean())
        if right > 0.3:
            raise UserError(
                f"{file}: the classes of '{model}' are shifted by one: {right:.0%} of its answers are right if class j "
                f"means class j {'+' if shift > 0 else '-'} 1, and {(predicted == labels).mean():.0%} as they are",
                allowed="classes 0 to 999 in the order of ImageNet-1k",
            )


def result_files(
    path: Path, which: str = "top", partition: str = "val", right: str = "class", by: str | None = None
) -> dict[str, Path]:
    """Return the result tables in `path` by the name of their set; {} if it holds predictions instead.

    which, partition, right, by: the tables of the published tree to read.
    """
    if path.is_file():
        tree_name = path.stem.startswith(FILE) and len(path.parents) > 1
        name = path.parent.parent.name if tree_name else path.stem
        return {name: path} if path.suffix.lower() == ".csv" and _is_results(path) else {}
    if not path.is_dir():
        return {}
    tree = next((root for root in (path, path / "results") if any(root.glob("*/*_factor"))), None)
    if tree is not None:
        if right not in FOLDERS:
            raise UserError(f"the published tables have no --right {right}", allowed=", ".join(FOLDERS))
        file_name = f"{FILE}_metaclass.csv" if by == "metaclass" else f"{FILE}.csv"
        pattern = f"{partition}/{which}_factor/*/{FOLDERS[right]}/{file_name}"
        if tables := {path.parent.parent.name: path for path in sorted(tree.glob(pattern))}:
            return tables
        there = sorted({str(path.relative_to(tree)) for path in tree.glob(f"*/*_factor/*/*/{FILE}*.csv")})
        raise UserError(f"{tree} contains no table {pattern}", allowed=some(there) or "the published folder `results`")
    files = {file.stem: file for file in sorted(path.glob("*.csv")) if not file.name.startswith(".")}
    results = {name: file for name, file in files.items() if _is_results(file)}
    if results and len(results) < len(files):
        other = next(file for name, file in files.items() if name not in results)
        raise UserError(
            f"{path} contains result tables, such as {next(iter(results))}.csv, and {other.name}, which is none",
            allowed="a folder of result tables or a folder of predictions",
        )
    return results


def read_results(files: dict[str, Path], by: str | None = None) -> pl.DataFrame:
    """Return set, model, [metaclass,] factor, n, accuracy, error_ratio, low, high, coverage: as `factor_errors`.

    A file has one row per model: model, [metaclass,] the sixteen factors, worst_factor, average, worst_100_classes. The
    published tree is ROOT/<val|train>/<top|multi>_factor/<set>/<class|metaclass|real_class>/accuracies_per_factor.csv,
    with accuracies_per_factor_metaclass.csv beside it; a single file and a folder of files, each a set, are read too.
    The error ratio is (1 - accuracy) / (1 - average). Result tables have no counts of images, so n, the bounds and the
    coverage are null.
    """
    return pl.concat([_read(name, file, by) for name, file in files.items()])


def choose_sets(files: dict[str, Path], text: str | None) -> dict[str, Path]:
    """Return the files of the sets in `text`, separated by commas; all if None."""
    if text is None:
        return files
    names = [part.strip() for part in text.split(",")]
    check_known("set of result tables", names, files)
    return {name: files[name] for name in names}


def _is_results(file: Path) -> bool:
    """Whether the first line names a model and an average or factors, and no images."""
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        columns = {name.strip().strip('"') for name in lines.readline().split(",")}
    return "model" in columns and "file_name" not in columns and bool(columns & {*FACTORS, *SUMMARIES})


def _read(name: str, file: Path, by: str | None) -> pl.DataFrame:
    names = csv_names(file)
    keys = ["model", "metaclass"] if "metaclass" in names else ["model"]
    measured = [column for column in names if column not in keys]
    strange = [column for column in measured if column not in (*FACTORS, *SUMMARIES)]
    if strange:
        raise UserError(
            f"{file} has the columns {', '.join(strange)}, which are not factors of ImageNet-X",
            allowed=", ".join(("model", "metaclass", *FACTORS, *SUMMARIES)),
        )
    if "average" not in measured:
        raise UserError(f"{file} has no column `average`, so it has no error ratios", allowed="accuracies in [0, 1]")
    if ("metaclass" in keys) != (by == "metaclass"):
        run = "unswayed factors … --by metaclass" if "metaclass" in keys else "unswayed factors … without --by"
        raise UserError(f"{file} has one row per {' and '.join(keys)}", run=run)
    declared = {key: Column("text", nulls=False) for key in keys}
    declared |= {column: Column("number", lowest=0, highest=1) for column in measured}
    numbers = pl.DataFrame(read_csv(file, declared, required=keys))
    twice = numbers.filter(numbers.select(keys).is_duplicated())
    if not twice.is_empty():
        raise UserError(f"{file} has '{twice['model'][0]}' more than once", allowed="one row per model")
    numbers = numbers.with_columns(pl.col(measured).fill_nan(None)).with_columns(error=1 - pl.col("average"))
    order = [column for column in (*FACTORS, *SUMMARIES) if column in measured]
    long = numbers.with_row_index("row").unpivot(
        order, index=["row", *keys, "error"], variable_name="factor", value_name="accuracy"
    )
    ratio = pl.when(pl.col("error") > 0).then((1 - pl.col("accuracy")) / pl.col("error"))
    empty = pl.lit(None, pl.Float64)
    return long.sort("row", pl.col("factor").cast(pl.Enum(order))).select(
        pl.lit(name).alias("set"), *keys, "factor", pl.lit(None, pl.Int64).alias("n"), "accuracy",
        ratio.alias("error_ratio"), empty.alias("low"), empty.alias("high"), empty.alias("coverage"),
    )  # fmt: skip
