"""The result of an export, whatever the format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Show = Callable[[int, int], None]  # called with the pictures done and in all


@dataclass(frozen=True)
class Exported:
    """The folder or the name of the dataset, its pictures, and those without a label."""

    place: str
    pictures: int
    unlabeled: int = 0
