"""Suspicions about models, read from their cards: labels in another order, a wrong transform, untrained weights.

`evaluate` finds them on the originals (`contract.py`). A number that is measured with such a model says nothing about
the model, so every analysis repeats the suspicion and no gate passes. Every analysis also repeats a remark, about
outputs that are no logits, but accuracies are right and gates pass.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from unfazed.errors import UnfazedWarning

Cards = Mapping[str, Mapping[str, Any]]


def suspicion_in(card: Mapping[str, Any]) -> str | None:
    """Return what `evaluate` found suspicious about a model, as one sentence; None if nothing."""
    found = card.get("suspicion")
    return str(found) if found else None


def chance_in(card: Mapping[str, Any]) -> float:
    """Return the accuracy of guessing, in [0, 1]; 0 if the card does not state it."""
    originals = card.get("originals")
    return float(originals.get("chance") or 0) if isinstance(originals, Mapping) else 0.0


def remarks(cards: Cards, models: Iterable[str] | None = None) -> list[str]:
    """Return what else a reader of the numbers of these models, or of all, must know; each remark once."""
    chosen = list(cards) if models is None else [name for name in models if name in cards]
    found = (cards[name].get("remarks") for name in chosen)
    return list(dict.fromkeys(str(one) for listed in found if isinstance(listed, list) for one in listed))


def suspicions(cards: Cards, models: Iterable[str] | None = None) -> list[str]:
    """Return the suspicions and remarks about these models, or about all."""
    chosen = list(cards) if models is None else [name for name in models if name in cards]
    return [*(found for name in chosen if (found := suspicion_in(cards[name]))), *remarks(cards, chosen)]


def warn_of_suspicions(cards: Cards, models: Iterable[str] | None = None) -> None:
    """Warn of the suspicions about these models, for callers in Python."""
    for text in suspicions(cards, models):
        warnings.warn(text, UnfazedWarning, stacklevel=3)
