"""What a reader of a table of drops must know beside its numbers: suspicions, failures, a benchmark that was moved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unswayed.analyses.drops.sweeps import levels_found
from unswayed.evaluation.facts import read_facts
from unswayed.evaluation.model_cards import sentences, suspicion_in
from unswayed.evaluation.predictions import each_model, model_names, overlap_of, read_cards, read_failures


def remark_lines(
    predictions: str | Path,
    models: Sequence[str] | None = None,
    common: bool = False,
    other: str | Path | None = None,
) -> list[str]:
    """Return sentences that a reader of these models' numbers must know, each once: the suspicions and remarks in their
    cards, and how much is common.

    other: the folder of the last model's predictions, if it is another one.
    """
    chosen = list(models or model_names(predictions))
    parts = [(predictions, chosen)] if other is None else [(predictions, chosen[:-1]), (other, chosen[-1:])]
    lines = [line for place, names in parts for line in sentences(read_cards(place), names)]
    if common and len(chosen) > 1:
        known = [(name, place) for place, names in parts for name in names]
        calls = [(name if other is None else f"{name} in {place}", place, name) for name, place in known]
        lines.append(f"Note: {overlap_of(calls)}.")
    return list(dict.fromkeys(lines))


def suspicious_models(predictions: str | Path) -> frozenset[str]:
    """Return the models whose cards have a suspicion."""
    return frozenset(name for name, card in read_cards(predictions).items() if suspicion_in(card))


def swept(predictions: str | Path, benchmark: str | Path | None = None) -> str:
    """Return which levels the predictions have, for a table that needs more of them."""
    facts = read_facts(predictions, benchmark, common=True)
    edits = {edit for _, rows in each_model(predictions, ("model", "edit")) for edit in rows["edit"].unique()}
    return f"levels found: {levels_found(facts.sorted(edits), facts)}"


def moved_lines(predictions: str | Path) -> list[str]:
    """A line where the benchmark is not at the place that the cards name, which leaves its controls unknown."""
    return list(read_facts(predictions, common=True).absent)


def failure_lines(predictions: str | Path) -> list[str]:
    """Return a line for each model whose last evaluation failed, and what that means for its numbers."""
    means = {True: "its numbers are from an earlier evaluation", False: "it has no numbers"}
    return [
        f"the last evaluation of {model} failed with: {reason}; {means[earlier]}"
        for model, reason, earlier in read_failures(predictions)
    ]
