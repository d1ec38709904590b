"""Hostile pictures among good ones cost a build and an evaluation their own rows and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_pictures import attacks


@pytest.mark.slow
def test_hostile_pictures_cost_their_own_rows_only(tmp_path: Path) -> None:
    for name, _, problems in attacks(tmp_path, few=True):
        assert problems == [], name
