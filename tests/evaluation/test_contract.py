"""The sanity run on originals: a wrong label order and a wrong transform are told apart and named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from unswayed.analyses.drops.gate import check
from unswayed.evaluation import EvaluateSettings, cards, run_evaluation
from unswayed.evaluation.contract import at_least, check_accuracy, suspect_order
from unswayed.labels import imagenet, own
from unswayed.models import open_model
from unswayed.models.label_mapping import map_labels

SPACE = own(["zebra", "Ant", "cat", "dog", "bee", "emu", "fox", "gnu", "hen", "ibis", "jay", "kiwi"])


def answers_under(meaning: np.ndarray, truth: np.ndarray, wrong: float = 0.1) -> np.ndarray:
    """What a good model answers (output -> class is `meaning`), with a share of mistakes."""
    rng = np.random.default_rng(0)
    answers = np.argsort(meaning)[truth]
    return np.where(rng.random(len(truth)) < wrong, rng.integers(0, len(meaning), len(truth)), answers)


def black(geometry: object, places: np.ndarray) -> torch.Tensor:
    """Black originals in every geometry, one pixel each."""
    return torch.zeros(len(places), 1, 1, 3, dtype=torch.uint8)


def suspicion(meaning: np.ndarray, a_class: int = 5, space=SPACE):  # type: ignore[no-untyped-def]
    truth = np.tile(np.arange(len(space)), a_class)
    mapping = map_labels(space, space, truth)
    return suspect_order(space, mapping, answers_under(meaning, truth), truth)


def test_the_right_order_is_not_suspected() -> None:
    assert suspicion(np.arange(12)) is None


def test_random_answers_suspect_nothing() -> None:
    truth = np.tile(np.arange(12), 5)
    mapping = map_labels(SPACE, SPACE, truth)
    for seed in range(50):
        assert suspect_order(SPACE, mapping, np.random.default_rng(seed).integers(0, 12, 60), truth) is None


def test_thousands_of_originals_are_checked() -> None:
    model, space = open_model("lite:0", device="cpu"), imagenet()
    labels = np.arange(2048) % 1000
    answers = np.where(np.random.default_rng(0).random(2048) < 0.6, labels, (labels * 7 + 3) % 1000)
    assert check_accuracy(model, map_labels(space, space, set(range(1000))), black, labels, answers, answers) is None


def test_a_perfect_model_on_two_photographs_is_not_called_untrained() -> None:
    model, space = open_model("lite:0", device="cpu"), own(["tench", "goldfish"])
    mapping = map_labels(imagenet(), space, [0, 1])
    labels = np.array([0, 1])
    assert check_accuracy(model, mapping, black, labels, np.array([0, 1]), labels) is None


def test_accuracy_is_counted_as_it_is_scored() -> None:
    """Outputs outside the benchmark's classes do not count, so the arg max over all thousand is not the answer."""
    model, space = open_model("lite:0", device="cpu"), own(["tench", "goldfish"])
    mapping = map_labels(imagenet(), space, [0, 1])
    labels = np.arange(16) % 2
    elsewhere = np.full(16, 500)
    assert check_accuracy(model, mapping, black, labels, elsewhere, predicted=labels) is None
    assert "accuracy on 16 originals is 0.0%" in check_accuracy(model, mapping, black, labels, elsewhere, 1 - labels)


@pytest.mark.parametrize(("shift", "words"), [(1, r"output j means class j \+ 1"), (11, "output j means class j - 1")])
def test_a_shift_is_named_even_with_one_picture_a_class(shift: int, words: str) -> None:
    found = suspicion((np.arange(12) + shift) % 12, a_class=1)
    assert found is not None
    import re

    assert re.search(words, found.explanation)


def test_alphabetical_and_text_orders_are_named() -> None:
    alphabetical = np.array(sorted(range(12), key=lambda index: SPACE.classes[index].lower()))
    assert "alphabetical order" in suspicion(alphabetical).explanation
    text = np.array(sorted(range(1000), key=str))
    assert "indices as text" in suspicion(text, 1, imagenet()).explanation


def test_a_few_exchanged_outputs_are_named_though_they_are_also_in_alphabetical_order() -> None:
    found = suspicion(np.array([0, 1, 3, 2]), 4, own(["Birman", "British_Shorthair", "Siamese", "Ragdoll"]))
    assert "alphabetical" not in found.explanation
    assert "output 2 ('Siamese') means 'Ragdoll', output 3 ('Ragdoll') means 'Siamese'" in found.explanation


def test_two_swapped_classes_are_named() -> None:
    meaning = np.arange(12)
    meaning[[2, 3]] = [3, 2]
    found = suspicion(meaning, a_class=8)
    assert "output 2 ('cat') means 'dog'" in found.explanation
    assert "output 3 ('dog') means 'cat'" in found.explanation


def test_warnings_name_what_is_suspected(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    names = ("shifted", "permuted", "bytes_wanted", "constant", "good")
    done = run_evaluation(benchmark, [own_models + name for name in names], tmp_path, EvaluateSettings(device="cpu"))
    warnings = {name: " ".join(done.warnings[own_models + name]) for name in names}
    assert "label order" in warnings["shifted"]
    assert "output j means class j + 1" in warnings["shifted"]
    assert "label order" in warnings["permuted"]
    assert "output 0 ('red') means 'green'" in warnings["permuted"]
    assert "suspected: the transform" in warnings["bytes_wanted"]
    assert "may be untrained" in warnings["constant"]
    assert warnings["good"] == ""


def test_a_suspicion_stays_in_the_card_and_stops_the_gate(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    specs = [f"{name}={own_models}{name}" for name in ("shifted", "constant", "good")]
    run_evaluation(benchmark, specs, tmp_path, EvaluateSettings(device="cpu"))
    found = check(tmp_path, max_drop={"dark": 60})
    assert dict(found.checks.select("model", "verdict").rows()) == {
        "constant": "not measured",
        "good": "pass",
        "shifted": "not measured",
    }
    assert cards(tmp_path)["good"]["originals"]["chance"] == 0.25
    assert cards(tmp_path)["good"]["suspicion"] is None
    assert "output j means class j + 1" in cards(tmp_path)["shifted"]["suspicion"]
    again = run_evaluation(benchmark, specs, tmp_path, EvaluateSettings(device="cpu"))
    assert again.skipped == ("shifted", "constant", "good")
    assert "label order" in again.warnings["shifted"][0]


@given(tries=st.integers(1, 600), share=st.floats(0, 1), chance=st.sampled_from([0.001, 0.01, 0.3, 0.5, 0.99]))
def test_the_probability_of_so_many_successes_is_that_of_the_binomial_distribution(tries, share, chance):
    successes = round(share * tries)
    assert at_least(successes, tries, chance) == pytest.approx(stats.binom.sf(successes - 1, tries, chance), rel=1e-9)
