"""The outcome of one task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Outcome(Generic[Task, Result]):
    """A task with its result, or with the reason why there is none (its process died twice)."""

    task: Task
    result: Result | None = None
    failure: str | None = None
