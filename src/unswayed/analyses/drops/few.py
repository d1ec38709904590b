"""What a few photographs can show."""

from __future__ import annotations

TOO_FEW_TO_PASS = 5  # photographs below which a pass says next to nothing
TOO_FEW_TO_RANK = 50  # below, one of them changes an accuracy by more than two points, so models cannot be ranked


def weight_of_one(n: int) -> str:
    """Return how much one of n photographs counts.

    >>> weight_of_one(4)
    'one photograph counts for 25.0 points'
    """
    return (
        f"one photograph counts for {100 / n:.1f} points" if n > 1 else "nothing can be concluded from one photograph"
    )
