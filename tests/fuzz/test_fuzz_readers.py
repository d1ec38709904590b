"""Every reader answers damaged and hostile files with a UserError or a value, never with another exception."""

from __future__ import annotations

import contextlib

import pytest
from fuzz_readers import READERS, fuzz, known

from unfazed.errors import UserError

INPUTS = 10_000


@pytest.mark.parametrize("name", READERS)
def test_inputs_that_escaped_once_do_not_again(name: str) -> None:
    reader = READERS[name]()
    for data in known(name):
        with contextlib.suppress(UserError):  # any other error fails the test
            reader.read(data)


@pytest.mark.parametrize("name", READERS)
def test_a_reader_raises_nothing_but_user_errors(name: str) -> None:
    escapes = fuzz(name, INPUTS)
    assert [f"{type(error).__name__}: {error}" for _, error in escapes] == []
