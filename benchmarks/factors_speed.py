"""python benchmarks/factors_speed.py: how fast the factor tables are, beside the published toolkit in the same run.

1. All twelve tables ({top, multi} x {class, metaclass, real} x {factors, factors by metaclass}) of four models, reading
   included, against `python -m imagenet_x aggregate`'s function on the same folder of CSVs.
2. Many models streamed from Parquet, point estimates; time and peak memory.
3. The same with 1,000-resample intervals.

Predictions are synthetic, over the real annotations (`pip install 'unswayed[imagenetx]'`).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import resource
import tempfile
import time
import types
import warnings
from pathlib import Path

import numpy as np
import polars as pl

from unswayed.analyses.factors import published_tables
from unswayed.analyses.factors.answers import read_answers
from unswayed.analyses.factors.error_ratios import factor_errors
from unswayed.sources.imagenet_x import annotations_folder, load_annotations


def synthetic(names: pl.Series, labels: np.ndarray, model: str, seed: int) -> pl.DataFrame:
    """A model that is right on about three images of four, with confidences to match."""
    rng = np.random.default_rng(seed)
    predicted = np.where(rng.random(len(labels)) < 0.75, labels, rng.integers(0, 1000, len(labels)))
    return pl.DataFrame(
        {
            "model": [model] * len(labels),
            "file_name": names,
            "predicted_class": predicted.astype(np.int16),
            "predicted_probability": rng.random(len(labels), dtype=np.float32),
        }
    )


def published_toolkit(folder: Path, out: Path) -> None:
    from imagenet_x.aggregate import generate_all_tables

    options = types.SimpleNamespace(
        model_dirs=[str(folder)], table_dir=str(out), error_types=["class", "metaclass", "real_class"],
        which_factor=["top", "multi"], partitions=["val"], keep_prototypes=False, verbose=False,
    )  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        generate_all_tables(options)


def seconds(work: object, *arguments: object) -> float:
    start = time.perf_counter()
    work(*arguments)  # type: ignore[operator]
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=2200, help="models to stream")
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many runs of part 1")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        # first, while the peak of memory is still its own
        stream(Path(scratch) / "many", options.models)
        against_published(Path(scratch), options.repeats)


def against_published(scratch: Path, repeats: int) -> None:
    names = pl.read_csv(annotations_folder() / "filename_label.csv")
    folder = scratch / "four"
    folder.mkdir()
    for number in range(4):
        table = synthetic(names["file_name"], names["label"].to_numpy(), f"model{number}", number)
        table.drop("model").write_csv(folder / f"model{number}.csv")
    os.environ["UNSWAYED_CACHE"] = str(scratch / "cache")
    first = seconds(published_tables, folder)
    ours = min(seconds(published_tables, folder) for _ in range(repeats))
    theirs = min(seconds(published_toolkit, folder, scratch / "tables") for _ in range(repeats))
    print(f"twelve tables, four models: ours {ours:.2f} s, published {theirs:.2f} s, ratio {theirs / ours:.1f} x")
    print(
        f"the same the first time ever, before the annotations are in the cache: {first:.2f} s, {theirs / first:.1f} x"
    )


def stream(folder: Path, models: int) -> None:
    """One Parquet a model, as `unswayed evaluate` writes them."""
    folder.mkdir()
    annotations = load_annotations("top")
    names = annotations.keys + ".JPEG"
    for number in range(models):
        synthetic(names, annotations.labels, f"model{number:04d}", number).write_parquet(
            folder / f"model{number:04d}.parquet"
        )
    for label, resamples in (("point estimates", 0), ("1,000-resample intervals", 1000)):
        start, last = time.perf_counter(), None
        count = 0
        for answers in read_answers(folder, annotations):
            last = factor_errors(annotations, answers, resamples=resamples)
            count += 1
        took = time.perf_counter() - start
        assert last is not None
        assert count == models
        print(
            f"{models} models x {len(annotations):,} rows from Parquet, {label}: {took:.1f} s "
            f"({1000 * took / models:.1f} ms a model), peak memory {peak_memory():.2f} GB"
        )


def peak_memory() -> float:
    """The largest resident memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    main()
