"""Whether two ways of making the same pictures are equivalent to a classifier: paired differences over photographs.

Every difference is that of two pictures of one photograph under one edit. The edits and classifiers of one photograph
are not independent, so the interval is clustered by photograph. Equivalent means that the 90 % interval lies within the
margin, which is the same as two one-sided tests at 5 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Difference:
    """A mean difference with its 90 % interval over n photographs."""

    mean: float
    low: float
    high: float
    n: int

    def verdict(self, margin: float) -> str:
        """`equivalent` within ± margin, `different` if the whole interval lies outside, else `cannot tell`."""
        if -margin < self.low and self.high < margin:
            return "equivalent"
        return "different" if self.low > margin or self.high < -margin else "cannot tell"

    def needed(self, margin: float) -> int | None:
        """How many photographs would show equivalence if the difference were as measured; None if no number would."""
        room, half = margin - abs(self.mean), (self.high - self.low) / 2
        # One photograph has an interval without end, from which no number follows.
        return int(np.ceil(self.n * (half / room) ** 2)) if room > 0 and np.isfinite(half) else None

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ({self.low:+.2f} to {self.high:+.2f})"


def mean_difference(photograph: np.ndarray, values: np.ndarray) -> Difference:
    """The mean of values (N,), some of each photograph (N,), with its 90 % interval clustered by photograph."""
    from scipy.stats import t

    there = np.isfinite(values)
    names, place = np.unique(photograph[there], return_inverse=True)
    n = len(names)
    if n < 2:
        return Difference(float(np.mean(values[there])) if n else float("nan"), -np.inf, np.inf, n)
    sums, counts = np.bincount(place, weights=values[there]), np.bincount(place)
    mean = sums.sum() / counts.sum()
    error = np.sqrt(n / (n - 1) * np.square(sums - mean * counts).sum()) / counts.sum()
    half = t.ppf(0.95, n - 1) * error
    return Difference(float(mean), float(mean - half), float(mean + half), n)
