"""Every reader answers damaged and hostile files with a UserError or a value, never with another exception."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz_readers import MOST_MEMORY, READERS, SLOWEST, Reader, drawn, fuzz, known, limited_memory, own_folder

from unswayed.errors import UserError

INPUTS = 10_000
SLOWEST_HERE = 4 * SLOWEST  # a library that is imported for one of the inputs counts as well


@pytest.fixture(autouse=True)
def folder() -> Iterator[Path]:
    with own_folder() as made:
        yield made


@pytest.mark.parametrize("name", [name for name in READERS if known(name)])
def test_inputs_that_escaped_once_do_not_again(name: str) -> None:
    reader = READERS[name]()
    with limited_memory():
        for data in known(name):
            with contextlib.suppress(UserError):  # any other error fails the test
                reader.read(data)


@pytest.mark.no_cover  # which takes as long as the readers themselves; their own tests cover them
@pytest.mark.parametrize("name", READERS)
def test_a_reader_raises_nothing_but_user_errors(name: str) -> None:
    reader = READERS[name]()
    with limited_memory():
        assert [what for _, what in fuzz(reader, drawn(name, 0), INPUTS, SLOWEST_HERE)] == []


def test_inputs_that_take_too_much_memory_or_time_are_escapes() -> None:
    def spin(data: bytes) -> None:
        while data != b"whole":
            pass

    greedy = Reader([b"whole"], lambda data: data == b"whole" or bytes(2 * MOST_MEMORY), lambda *_: b"large")
    with limited_memory():
        assert [what for _, what in fuzz(greedy, drawn("greedy", 0), 1)] == ["MemoryError: "]
    slow = Reader([b"whole"], spin, lambda *_: b"slow")
    assert [what.partition(":")[0] for _, what in fuzz(slow, drawn("slow", 0), 1, 0.1)] == ["TooSlowError"]
