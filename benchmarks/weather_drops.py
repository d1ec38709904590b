"""Whether severity orders the drops of classifiers: the rank correlation of both for each weather, with its interval.

    python benchmarks/weather_drops.py oxford-pet:data -o weather --limit 150 -m lite:0 -m lite:1 -m lite:2

Builds the recipe `weather` by pasting, evaluates the models, and prints one line per model and weather: the drops of
accuracy in points at the severities 0 (the control) to 5, and Spearman's correlation of severity and drop with its 95 %
bootstrap interval over photographs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl
from scipy.stats import rankdata

import unswayed
from unswayed.benchmark import BuildSettings

SEVERITIES, RESAMPLES = range(6), 10_000


def rank_correlation(drops: np.ndarray) -> np.ndarray:
    """Spearman's correlation of the severities with drops (…, severities); 0 where all drops are equal."""
    ranks, order = rankdata(drops, axis=-1), np.arange(drops.shape[-1])
    ranks, order = ranks - ranks.mean(axis=-1, keepdims=True), order - order.mean()
    spread = np.sqrt((ranks**2).sum(axis=-1) * (order**2).sum())
    return (ranks * order).sum(axis=-1) / np.where(spread == 0, 1, spread)


def correct_table(predictions: pl.DataFrame, weather: str) -> np.ndarray:
    """(photographs, severities) in {0, 1}: what was right, of the photographs that have every severity."""
    names = [f"{weather}-both-{severity}" for severity in SEVERITIES]
    table = predictions.filter(pl.col("edit").is_in(names)).pivot("edit", index="source_id", values="correct")
    return table.drop_nulls().select(names).to_numpy().astype(float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("-m", "--model", action="append", required=True)
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    settings = BuildSettings(recipe="weather", renderer="paste", limit=options.limit)
    unswayed.build(options.source, options.output / "bench", settings)
    unswayed.evaluate(options.output / "bench", options.model, options.output / "predictions")
    files = (options.output / "predictions").rglob("*.parquet")
    rows = pl.concat([pl.read_parquet(file) for file in files], how="diagonal_relaxed")
    rng = np.random.default_rng(0)
    for (model,), answers in sorted(rows.group_by("model")):
        before = answers.filter(edit="original")["correct"].mean()
        print(f"{model}: {100 * before:.1f} % of {answers['source_id'].n_unique()} photographs right")
        for weather in ("fog", "rain", "snow", "night", "shadow", "sun"):
            right = correct_table(answers, weather)
            weights = rng.multinomial(len(right), np.full(len(right), 1 / len(right)), RESAMPLES) / len(right)
            drops = 100 * (right[:, :1] - right)
            low, high = np.quantile(rank_correlation(weights @ drops), (0.025, 0.975))
            means = drops.mean(axis=0)
            shown = " | ".join(f"{drop:.1f}" for drop in means)
            print(f"| {weather} | {shown} | {rank_correlation(means):.2f} [{low:.2f}, {high:.2f}] |", flush=True)


if __name__ == "__main__":
    main()
