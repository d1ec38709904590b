"""A file that says what a process was doing when it died, and the search for the picture that ends every process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from unswayed.errors import UserError
from unswayed.files.whole import read_json, remove_file, write_json

from .scheduling import Outcome

MOST_POISONED = 20  # pictures of one task that may end the process that reads them
Part = TypeVar("Part", bound=Any)


class Journal:
    """Writes what a process is about to do, and deletes the file when the block ends, even by an exception."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        remove_file(self.path)

    def __call__(self, kind: str, name: str) -> None:
        """kind: `picture`, which is about to be read, or `model`, which is about to be used."""
        write_json(self.path, {"kind": kind, "name": name})


def isolate(
    part: Part, run: Callable[[Part], Outcome[Part, Any]], journal: Callable[[Part], Path]
) -> tuple[Part, Outcome[Part, Any], str]:
    """Repeat a task whose process died, each time without the picture at which it died, until another cause is left.

    part: the task, a dataclass with the field `skipped` (pairs of a picture and the reason) that writes a journal.
    Returns the last task, its outcome, and the name of the model that was in use if its process died again.
    """
    last_entry(journal(part))  # left by an earlier run
    while True:
        outcome = run(part)
        if outcome.failure is None:
            return part, outcome, ""
        kind, name = last_entry(journal(part)) or ("", "")
        if kind != "picture" or len(part.skipped) >= MOST_POISONED:
            return part, outcome, name if kind == "model" else ""
        part = replace(part, skipped=(*part.skipped, (name, f"{name}: {outcome.failure}")))


def last_entry(path: Path) -> tuple[str, str] | None:
    """Return and delete the last entry of a process that died: a kind and a name; None if there is none."""
    try:
        found = read_json(path)
        return str(found["kind"]), str(found["name"])
    except (UserError, KeyError, TypeError):
        return None
    finally:
        with contextlib.suppress(OSError):
            remove_file(path)
