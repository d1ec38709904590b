"""Every reader answers damaged and hostile files with a UserError or a value, never with another exception."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz_readers import READERS, drawn, fuzz, known, own_folder

from unfazed.errors import UserError

INPUTS = 10_000


@pytest.fixture(autouse=True)
def folder() -> Iterator[Path]:
    with own_folder() as made:
        yield made


@pytest.mark.parametrize("name", READERS)
def test_inputs_that_escaped_once_do_not_again(name: str) -> None:
    reader = READERS[name]()
    for data in known(name):
        with contextlib.suppress(UserError):  # any other error fails the test
            reader.read(data)


@pytest.mark.parametrize("name", READERS)
def test_a_reader_raises_nothing_but_user_errors(name: str) -> None:
    assert [what for _, what in fuzz(READERS[name](), drawn(name, 0), INPUTS)] == []
