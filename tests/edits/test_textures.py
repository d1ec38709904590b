from __future__ import annotations

import numpy as np
import pytest

from unswayed.edits.background import TEXTURES


@pytest.mark.parametrize("name", TEXTURES)
@pytest.mark.parametrize("size", [64, 256])
def test_a_texture_is_a_picture_that_its_seed_decides(name: str, size: int) -> None:
    first, same, other = (TEXTURES[name](size, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.shape == (size, size, 3)
    assert first.dtype == np.uint8
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)
    assert first.std() > 20


def test_checker_alternates() -> None:
    board = TEXTURES["checker"](256, np.random.default_rng(0))[16::32, 16::32].sum(axis=2)
    assert (board[:, 1:] != board[:, :-1]).all()
    assert (board[1:] != board[:-1]).all()
    assert len(np.unique(board)) == 2
