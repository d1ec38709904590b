"""Suspicions and remarks about models, read from their cards and repeated by every analysis.

A suspicion says that a number measured with the model means nothing, and no gate passes: labels in another order, a
wrong transform, untrained weights, wrong masks, photographs of the training, answers mostly of other classes.
A remark says what a reader must know beside numbers that are right, and gates pass: outputs that are no logits, a
few answers of other classes, automatic masks, repeated photographs, a few photographs of the training.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from unswayed.errors import UnswayedWarning

Cards = Mapping[str, Mapping[str, Any]]


def suspicion_in(card: Mapping[str, Any]) -> str | None:
    """Return what `evaluate` found suspicious about a model, as one sentence; None if nothing."""
    found = card.get("suspicion")
    return str(found) if found else None


def chance_in(card: Mapping[str, Any]) -> float:
    """Return the accuracy of guessing, in [0, 1]; 0 if the card does not state it."""
    originals = card.get("originals")
    return float(originals.get("chance") or 0) if isinstance(originals, Mapping) else 0.0


def suspicions(cards: Cards, models: Iterable[str] | None = None) -> list[str]:
    """Return the suspicions about these models, or about all."""
    return [found for card in _chosen(cards, models) if (found := suspicion_in(card))]


def remarks(cards: Cards, models: Iterable[str] | None = None) -> list[str]:
    """Return what else a reader of the numbers of these models, or of all, must know; each remark once."""
    found = (card.get("remarks") for card in _chosen(cards, models))
    return list(dict.fromkeys(str(one) for listed in found if isinstance(listed, list) for one in listed))


def sentences(cards: Cards, models: Iterable[str] | None = None) -> list[str]:
    """Return the suspicions about these models, or about all, and then the remarks, as sentences for a reader."""
    chosen = list(cards if models is None else models)
    return [
        *(f"Suspicious: {one}." for one in suspicions(cards, chosen)),
        *(f"Note: {one}." for one in remarks(cards, chosen)),
    ]


def warn_of_suspicions(cards: Cards, models: Iterable[str] | None = None) -> None:
    """Warn of the suspicions and remarks about these models, for callers in Python."""
    for text in sentences(cards, models):
        warnings.warn(text, UnswayedWarning, stacklevel=3)


def _chosen(cards: Cards, models: Iterable[str] | None) -> list[Mapping[str, Any]]:
    return [cards[name] for name in (cards if models is None else models) if name in cards]
