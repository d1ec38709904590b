"""A folder of predictions holds the answers to one benchmark; one that has grown is still the same."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from color_world import copied
from unswayed.errors import UserError
from unswayed.evaluation import cards, run_evaluation
from unswayed.evaluation.settings import EvaluateSettings


def test_another_benchmark_into_the_same_folder_is_refused(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    there = tmp_path / "predictions"
    run_evaluation(benchmark, [own_models + "good"], there)
    other = copied(benchmark, tmp_path / "other", seed=7)
    with pytest.raises(UserError, match="contains predictions for another benchmark") as refused:
        run_evaluation(other, [own_models + "good"], there)
    assert "seed:" in str(refused.value)


def test_the_hash_is_that_of_the_pictures_not_of_the_place(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    moved = copied(benchmark, tmp_path / "moved")
    for name, where in (("one", benchmark), ("two", moved)):
        run_evaluation(where, [own_models + "good"], tmp_path / name)
    one, two = (next(iter(cards(tmp_path / name).values()))["benchmark"]["identity"] for name in ("one", "two"))
    assert one == two


def test_more_of_the_same_benchmark_is_welcome(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    there = tmp_path / "predictions"
    run_evaluation(benchmark, [own_models + "good"], there, EvaluateSettings(limit=2))
    done = run_evaluation(benchmark, [own_models + "good"], there)
    assert done.scored and not done.failed
    (card,) = cards(there).values()
    table = parquet.read_table(there / f"{card['file']}.parquet")
    assert table.num_rows == card["rows"] == done.pictures
    assert len(set(table["picture"].to_pylist())) > 1
