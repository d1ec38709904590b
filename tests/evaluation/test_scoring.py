"""Columns from logits: the definitions, on random logits and on ties."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unswayed.evaluation.passes import score
from unswayed.labels import imagenet, own
from unswayed.models.label_mapping import LabelMapping, map_labels


def scored(logits: torch.Tensor, labels: torch.Tensor, mapping: LabelMapping) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in score(logits, mapping.apply(logits), labels).items()}


SPACE = own([f"class {index}" for index in range(7)])
SAME = map_labels(SPACE, SPACE, range(7))


@given(st.lists(st.integers(-3, 3), min_size=7, max_size=7), st.integers(0, 6))
@settings(max_examples=100, deadline=None)
def test_rank_one_is_the_answer_also_among_ties(values: list[int], label: int) -> None:
    logits = torch.tensor([values], dtype=torch.float32)
    scores = scored(logits, torch.tensor([label]), SAME)
    assert (scores["rank"][0] == 1) == (scores["predicted"][0] == label)
    assert scores["rank"][0] == 1 + sum(
        v > values[label] or (v == values[label] and i < label) for i, v in enumerate(values)
    )


def test_probabilities_energy_and_top_five() -> None:
    logits = torch.randn(4, 7, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([3, 0, -1, 6])
    scores = scored(logits, labels, SAME)
    shares = torch.softmax(logits, 1).numpy()
    assert np.allclose(scores["probability"], shares.max(1), atol=1e-6)
    assert np.allclose(scores["true_probability"][[0, 1, 3]], shares[[0, 1, 3], [3, 0, 6]], atol=1e-6)
    assert np.isnan(scores["true_probability"][2])
    assert scores["rank"][2] == 0
    assert np.allclose(scores["energy"], np.log(np.exp(logits.numpy()).sum(1)), atol=1e-5)
    assert (scores["top"] == np.argsort(-shares, 1)[:, :5]).all()
    assert np.allclose(scores["top_probabilities"], -np.sort(-shares, 1)[:, :5], atol=1e-6)


def test_answers_are_in_the_benchmarks_space() -> None:
    mapping = map_labels(imagenet(), own(["goldfish", "tench"]), [0, 1])
    logits = torch.full((1, 1000), -5.0)
    logits[0, 0], logits[0, 500] = 2.0, 9.0  # tench; another class that the benchmark does not have
    scores = scored(logits, torch.tensor([1]), mapping)
    assert scores["predicted"][0] == 1
    assert scores["raw"][0] == 500
    assert scores["top"].shape == (1, 2)


def test_not_a_number_is_seen() -> None:
    logits = torch.zeros(2, 7)
    logits[1, 2] = float("nan")
    assert scored(logits, torch.tensor([0, 1]), SAME)["finite"].tolist() == [True, False]
