"""Hostile files are refused by the commands that open them: no code runs, and no memory or time is spent."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_files import BOMBS, SEGMENTATIONS, cases
from refusals import MOST_MEMORY, outcome

# Every kind of file once; `python tests/hostile/refusals.py` takes all of them, and the readers' own tests the others.
CHOSEN = [name for name in cases() if not name.startswith("build")]
CHOSEN += [f"build coco: {next(iter(SEGMENTATIONS))}", f"build rival10: {next(iter(BOMBS))}"]


@pytest.mark.parametrize("name", CHOSEN)
def test_a_hostile_file_is_refused_with_the_reason_and_in_little_memory(name: str, tmp_path: Path) -> None:
    found = outcome(cases()[name](tmp_path))
    assert found.refused, found.said
    assert found.memory < MOST_MEMORY
