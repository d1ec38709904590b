"""What rendering alone costs a classifier: the fall of the true class's probability, with intervals over scenes.

    for S in 0 1 2 3 4; do
        unswayed build sample --recipe inversion,background-random,size-0.05,reinsertion --steps 20 --seed $S -o b-$S
        unswayed evaluate b-$S -m lite:0 -m lite:1 -m lite:2 -o predictions-$S
    done
    python benchmarks/network_cost.py predictions-*

Seeds of a scene are averaged first; 10,000 bootstrap resamples over scenes.
"""

from __future__ import annotations

import sys

import numpy as np
import polars as pl

from unswayed.evaluation import read_predictions

BEYOND = {"size-0.05": "reinsertion", "background-random": "inversion"}


def main(folders: list[str]) -> None:
    answers = pl.concat([read_predictions(folder) for folder in folders])
    means = answers.group_by("model", "edit", "source_id").agg(pl.col("true_probability").mean())
    scenes = sorted(answers["source_id"].unique().to_list())
    weights = np.random.default_rng(0).multinomial(len(scenes), [1 / len(scenes)] * len(scenes), 10_000) / len(scenes)

    def shown(values: np.ndarray) -> str:
        low, high = np.quantile(weights @ values, (0.025, 0.975))
        return f"{values.mean():+.3f} ({low:+.3f} to {high:+.3f})"

    for model in sorted(means["model"].unique()):
        mine = means.filter(pl.col("model") == model).sort("source_id")
        by_edit = {
            str(edit): rows["true_probability"].to_numpy()
            for (edit,), rows in mine.group_by("edit")
            if len(rows) == len(scenes)
        }
        print(f"{model}, n {len(scenes)}: original {by_edit['original'].mean():.3f}")
        for edit in sorted(set(by_edit) - {"original", "source"}):
            print(f"  fall under {edit}: {shown(by_edit['original'] - by_edit[edit])}")
        for edit, control in BEYOND.items():
            if edit in by_edit and control in by_edit:
                print(f"  {edit} beyond {control}: {shown(by_edit[control] - by_edit[edit])}")


if __name__ == "__main__":
    main(sys.argv[1:])
