"""Pickles from outside: plain data comes through, anything that would run is refused by file name."""

import collections
import os
import pickle
import resource

import numpy as np
import pytest
from hostile_files import BOMBS

from unswayed.errors import BadPicture
from unswayed.sources.pickles import parse_pickle, read_pickle

PLAIN = {"wings": b"iVBOR\x00\xff", "text": "äx", "numbers": [1, 2.5, -(2**70), True, None, ("a",)], "empty": b""}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_comes_through_in_every_protocol(tmp_path, protocol):
    path = tmp_path / "plain.pkl"
    path.write_bytes(pickle.dumps(PLAIN, protocol))
    assert read_pickle(path) == PLAIN


class Runs:
    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_a_pickle_that_would_run_a_command_is_refused_and_does_not_run_it(tmp_path, protocol):
    path, mark = tmp_path / "evil_attr_dict.pkl", tmp_path / "mark"
    path.write_bytes(pickle.dumps({"wings": Runs(os.system, f"touch {mark}")}, protocol))
    with pytest.raises(BadPicture, match=r"evil_attr_dict\.pkl: refused, because the pickle would import .*system"):
        read_pickle(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "value",
    [
        Runs(eval, "1"),
        Runs(bytes, 10**12),
        Runs(bytes, 1),
        collections.OrderedDict(a=1),
        np.float64(1),
        np.zeros(3),
        len,
    ],
)
def test_whatever_needs_an_import_is_refused(tmp_path, value):
    path = tmp_path / "other.pkl"
    path.write_bytes(pickle.dumps({"a": value}))
    with pytest.raises(BadPicture, match=r"other\.pkl: (refused|the pickle is damaged)"):
        read_pickle(path)


def test_text_cannot_be_decoded_by_a_codec_of_the_pickles_choice(tmp_path):
    import codecs

    path = tmp_path / "codec.pkl"
    path.write_bytes(pickle.dumps(Runs(codecs.encode, "abc", "rot13"), 2))
    with pytest.raises(BadPicture, match="bytes with an unknown encoding"):
        read_pickle(path)


@pytest.mark.parametrize("name", BOMBS)
def test_a_pickle_that_would_take_all_memory_or_time_is_refused_at_once(name):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if name == "a large memo":
        assert parse_pickle(BOMBS[name], "bomb.pkl") is None
    else:
        with pytest.raises(BadPicture, match=r"bomb\.pkl: (refused|the pickle is damaged)"):
            parse_pickle(BOMBS[name], "bomb.pkl")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_a_damaged_a_missing_and_an_empty_file_are_named(tmp_path):
    path = tmp_path / "bad.pkl"
    for data in (b"", b"\x80\x04\x95", b"not a pickle"):
        path.write_bytes(data)
        with pytest.raises(BadPicture, match=r"bad\.pkl: the pickle is damaged"):
            read_pickle(path)
    with pytest.raises(BadPicture, match=r"gone\.pkl: cannot be read"):
        read_pickle(tmp_path / "gone.pkl")
