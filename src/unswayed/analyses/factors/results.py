"""Published result tables of ImageNet-X: the accuracies of many models by factor, without their predictions.

A file has one row per model: model, [metaclass,] the sixteen factors, worst_factor, average, worst_100_classes. The
published tree is ROOT/<val|train>/<top|multi>_factor/<set>/<class|metaclass|real_class>/accuracies_per_factor.csv, with
accuracies_per_factor_metaclass.csv beside it; a single file and a folder of such files, each a set, are read as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from unswayed.errors import UserError, unknown
from unswayed.evaluation.predictions import polars_table
from unswayed.files.tables import Column
from unswayed.files.text_tables import csv_names, read_csv
from unswayed.sources.imagenet_x import FACTORS

SUMMARIES = ("worst_factor", "average", "worst_100_classes")
FILE = "accuracies_per_factor"
# our name of a definition of correct -> the folder of the published tree
FOLDERS = {"class": "class", "metaclass": "metaclass", "real": "real_class"}


@dataclass(frozen=True)
class Wanted:
    """Which tables of the published tree to read: top or multi factors, partition, definition of correct, grouping."""

    which: str = "top"
    partition: str = "val"
    right: str = "class"
    by: str | None = None


def result_files(path: Path, wanted: Wanted = Wanted()) -> dict[str, Path]:
    """Return the result tables in `path` by the name of their set; {} if it holds predictions instead."""
    if path.is_file():
        tree_name = path.stem.startswith(FILE) and len(path.parents) > 1
        name = path.parent.parent.name if tree_name else path.stem
        return {name: path} if path.suffix.lower() == ".csv" and _is_results(path) else {}
    if not path.is_dir():
        return {}
    tree = next((one for one in (path, path / "results") if any(one.glob("*/*_factor"))), None)
    if tree is not None:
        return _of_tree(tree, wanted)
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

    The error ratio is (1 - accuracy) / (1 - average). Result tables have no counts of images, so n, the bounds and the
    coverage are null.
    """
    return pl.concat([_read(name, file, by) for name, file in files.items()])


def choose_sets(files: dict[str, Path], text: str | None) -> dict[str, Path]:
    """Return the files of the sets in `text`, separated by commas; all if None."""
    if text is None:
        return files
    chosen = {}
    for name in (part.strip() for part in text.split(",")):
        if name not in files:
            raise unknown("set of result tables", name, files)
        chosen[name] = files[name]
    return chosen


def _of_tree(tree: Path, wanted: Wanted) -> dict[str, Path]:
    if wanted.right not in FOLDERS:
        raise UserError(f"the published tables have no --right {wanted.right}", allowed=", ".join(FOLDERS))
    file = f"{FILE}_metaclass.csv" if wanted.by == "metaclass" else f"{FILE}.csv"
    place = f"{wanted.partition}/{wanted.which}_factor/*/{FOLDERS[wanted.right]}/{file}"
    found = {one.parent.parent.name: one for one in sorted(tree.glob(place))}
    if not found:
        there = sorted({str(one.relative_to(tree)) for one in tree.glob(f"*/*_factor/*/*/{FILE}*.csv")})
        shown = ", ".join(there[:6]) + (f", … ({len(there)} in all)" if len(there) > 6 else "")
        raise UserError(f"{tree} contains no table {place}", allowed=shown or "the published folder `results`")
    return found


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
    numbers = polars_table(read_csv(file, declared, required=keys))
    twice = numbers.filter(numbers.select(keys).is_duplicated())
    if not twice.is_empty():
        raise UserError(f"{file} has '{twice['model'][0]}' more than once", allowed="one row per model")
    numbers = numbers.with_columns(pl.col(measured).fill_nan(None))
    order = [column for column in (*FACTORS, *SUMMARIES) if column in measured]
    long = numbers.with_row_index("row").unpivot(
        order, index=["row", *keys], variable_name="factor", value_name="accuracy"
    )
    place = pl.col("factor").replace_strict({f: i for i, f in enumerate(order)}, return_dtype=pl.Int32)
    averages = numbers.select(*keys, (1 - pl.col("average")).alias("error"))
    long = long.sort("row", place).join(averages, on=keys, maintain_order="left")
    ratio = pl.when(pl.col("error") > 0).then((1 - pl.col("accuracy")) / pl.col("error"))
    empty = pl.lit(None, pl.Float64)
    return long.select(
        pl.lit(name).alias("set"), *keys, "factor", pl.lit(None, pl.Int64).alias("n"), "accuracy",
        ratio.alias("error_ratio"), empty.alias("low"), empty.alias("high"), empty.alias("coverage"),
    )  # fmt: skip
