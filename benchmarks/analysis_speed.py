"""How long the drop table of many models takes, how much memory, and how much faster than resampling with group-by.

    python benchmarks/analysis_speed.py                  # 2,000 models x 50,000 predictions
    python benchmarks/analysis_speed.py --models 50      # a look

Synthetic predictions of 4,167 photographs under twelve edits are written first (not timed; kept with --folder). Then a
fresh process makes the table with 1,000 resamples. The peer draws photographs with replacement, joins them to one
model's rows and groups by edit, in polars, in the same run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

EDITS = [
    *("original", "inversion", "background-simple", "background-complex", "background-adversarial"),
    *("background-random", "size-full", "size-0.1", "size-0.08", "size-0.05", "position", "direction"),
]
IMAGES = 4167

TIMED = """
import json, resource, sys, time
start = time.perf_counter()
import unswayed
table = unswayed.dropped_accuracy(sys.argv[1], resamples=int(sys.argv[2]))
seconds = time.perf_counter() - start
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps({"seconds": seconds, "gigabytes": memory, "rows": table.height}))
"""


def write_predictions(folder: Path, models: int) -> None:
    """Parquet files of `models` made-up models over the same pictures, rows by photograph."""
    import pyarrow
    import pyarrow.parquet

    ids = np.array([f"ILSVRC2012_val_{index:08d}" for index in range(IMAGES)])
    source = np.repeat(ids, len(EDITS))
    edit = np.tile(EDITS, IMAGES)
    label = np.repeat(np.arange(IMAGES) % 1000, len(EDITS)).astype(np.int32)
    shared = {
        "sample_id": pyarrow.array([f"{one}/{other}/0" for one, other in zip(source, edit, strict=True)]),
        "source_id": pyarrow.array(source),
        "edit": pyarrow.array(edit).dictionary_encode(),
        "run": pyarrow.array(np.zeros(len(source), dtype=np.int32)),
        "label": pyarrow.array(label),
    }
    hard = np.repeat(np.random.default_rng(0).normal(0, 1, IMAGES), len(EDITS))
    for index in range(models):
        path = folder / f"model-{index:04d}.parquet"
        if path.exists():
            continue
        rng = np.random.default_rng(index + 1)
        strength = np.tile(2.2 - np.append(0, rng.uniform(0.1, 1.6, len(EDITS) - 1)), IMAGES)
        correct = strength + rng.uniform(-0.5, 0.5) + hard + rng.logistic(0, 0.5, len(source)) > 0
        columns = {
            "model": pyarrow.array([f"synthetic:{index:04d}"] * len(source)).dictionary_encode(),
            **shared,
            "predicted": pyarrow.array(np.where(correct, label, (label + 1) % 1000)),
            "probability": pyarrow.array(rng.random(len(source), dtype=np.float32)),
            "correct": pyarrow.array(correct),
        }
        part = path.with_suffix(".part")
        pyarrow.parquet.write_table(pyarrow.table(columns), part, compression="zstd")
        part.rename(path)


def plain_bootstrap(path: Path, resamples: int) -> float:
    """Seconds for one model's table by drawing, joining and grouping."""
    import polars as pl

    start = time.perf_counter()
    rng = np.random.default_rng(0)
    rows = pl.read_parquet(path, columns=["source_id", "edit", "correct"])
    rows = rows.with_columns(pl.col("source_id").cast(pl.String), pl.col("edit").cast(pl.String))
    ids = rows["source_id"].unique(maintain_order=True)
    draws = []
    for _ in range(resamples):
        drawn = pl.DataFrame({"source_id": ids[rng.integers(0, len(ids), len(ids))]})
        means = drawn.join(rows, on="source_id").group_by("edit").agg(pl.col("correct").mean())
        original = means.filter(edit="original")["correct"][0]
        draws.append(means.with_columns(drop=100 * (original - pl.col("correct"))))
    pl.concat(draws).group_by("edit").agg(low=pl.col("drop").quantile(0.025), high=pl.col("drop").quantile(0.975))
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=2000)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="keep the synthetic predictions here and use them again")
    parser.add_argument("--plain-models", type=int, default=2, help="models that the peer is timed on")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        write_predictions(folder, options.models)
        command = [sys.executable, "-c", TIMED, str(folder), str(options.resamples)]
        ours = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        files = sorted(folder.glob("*.parquet"))[: options.plain_models]
        plain = sum(plain_bootstrap(path, options.resamples) for path in files) / len(files)
    each = ours["seconds"] / options.models
    predictions = options.models * IMAGES * len(EDITS)
    print(f"{options.models:,} models, {predictions:,} predictions, {options.resamples:,} resamples")
    print(f"unswayed: {ours['seconds']:.1f} s, {ours['gigabytes']:.2f} GB at most, {1000 * each:.1f} ms a model")
    print(f"group-by: {plain:.1f} s a model")
    print(f"ratio: {plain / each:.0f} times faster a model")


if __name__ == "__main__":
    main()
