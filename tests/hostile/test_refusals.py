"""Hostile files are refused by the commands that open them: no code runs, and no memory or time is spent."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_files import cases
from refusals import MOST_MEMORY, outcome


@pytest.mark.parametrize("name", cases())
def test_a_hostile_file_is_refused_with_the_reason_and_in_little_memory(name: str, tmp_path: Path) -> None:
    found = outcome(cases()[name](tmp_path))
    assert found.refused, found.said
    assert found.memory < MOST_MEMORY
