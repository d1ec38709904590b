"""Whether severity orders the drops of classifiers: the rank correlation of both for each weather, with its interval.

    python benchmarks/weather_drops.py oxford-pet:data -o weather --limit 150 -m lite:0 -m lite:1 -m lite:2

Builds the recipe `weather` by pasting, evaluates the models, and prints one line per model and weather: the drops of
accuracy in points at the severities 0 (the control) to 5, and Spearman's correlation of severity and drop with its 95 %
bootstrap interval over photographs; then the same for the drop of the probability of the true class.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
import polars as pl
from scipy.stats import rankdata

import unswayed
from unswayed.benchmark import BuildSettings

SEVERITIES, RESAMPLES = range(6), 10_000
WEATHERS = ("fog", "rain", "snow", "night", "shadow", "sun")


def rank_correlation(drops: np.ndarray) -> np.ndarray:
    """Spearman's correlation of the severities with drops (…, severities); 0 where all drops are equal."""
    ranks, order = rankdata(drops, axis=-1), np.arange(drops.shape[-1])
    ranks, order = ranks - ranks.mean(axis=-1, keepdims=True), order - order.mean()
    spread = np.sqrt((ranks**2).sum(axis=-1) * (order**2).sum())
    return (ranks * order).sum(axis=-1) / np.where(spread == 0, 1, spread)


def answers_table(predictions: pl.DataFrame, weather: str, measure: str) -> np.ndarray:
    """(photographs, severities): what was right, or the true class's probability, of complete photographs."""
    names = [f"{weather}-both-{severity}" for severity in SEVERITIES]
    table = predictions.filter(pl.col("edit").is_in(names)).pivot("edit", index="source_id", values=measure)
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
        for measure, weather in itertools.product(("correct", "true_probability"), WEATHERS):
            table = answers_table(answers, weather, measure)
            weights = rng.multinomial(len(table), np.full(len(table), 1 / len(table)), RESAMPLES) / len(table)
            drops = 100 * (table[:, :1] - table)
            low, high = np.quantile(rank_correlation(weights @ drops), (0.025, 0.975))
            means = drops.mean(axis=0)
            shown = " | ".join(f"{drop:.1f}" for drop in means)
            correlation = f"{rank_correlation(means):.2f} ({low:.2f} to {high:.2f})"
            print(f"| {measure} | {weather} | {shown} | {correlation} |", flush=True)


if __name__ == "__main__":
    main()
