"""Files appear whole or not at all."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unswayed.errors import UserError
from unswayed.files.locks import alone
from unswayed.files.whole import canonical, check_writable, read_json, sha256, whole, write_bytes, write_json


def test_a_file_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "deep" / "er" / "file"
    with whole(path) as file:
        file.write(b"abc")
        assert not path.exists()
    assert path.read_bytes() == b"abc"
    assert os.listdir(path.parent) == ["file"]


def test_a_block_that_fails_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), whole(path) as file:
        file.write(b"%d" % (1 // 0))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_what_windows_refuses_is_not_asked_of_it(tmp_path, monkeypatch):
    """It renames and removes no file that is open; its Python has no fcntl."""
    path, replace = tmp_path / "file", os.replace

    def rename(part, to):
        held = {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.exists()}
        assert str(part) not in held
        replace(part, to)

    monkeypatch.setattr("unswayed.files.whole.fcntl", None)
    monkeypatch.setattr(os, "replace", rename)
    with whole(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "it is open")

    with alone(path.with_name(".lock")):
        monkeypatch.setattr(Path, "unlink", refuse)
    with alone(path.with_name(".lock")):
        pass


def test_a_new_file_has_the_rights_that_the_umask_leaves(tmp_path):
    code = "import sys; from unswayed.files.whole import write_bytes; write_bytes(sys.argv[1], b'')"
    subprocess.run([sys.executable, "-c", code, tmp_path / "file"], check=True, umask=0o027)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(("number", "words"), [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "no permission")])
def test_a_full_disk_and_a_missing_permission_are_said_in_words(tmp_path, number, words):
    with pytest.raises(UserError, match=words), whole(tmp_path / "file"):
        raise OSError(number, "as the system calls it")
    assert os.listdir(tmp_path) == []


def test_a_path_through_a_file_is_said_in_words(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError, match="cannot write"):
        write_bytes(tmp_path / "file" / "below", b"")


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_what_is_no_file_at_the_place_of_a_temporary_one_is_left_alone(tmp_path, kind):
    part = tmp_path / ".file.part"
    {"folder": part.mkdir, "link": lambda: part.symlink_to("/etc/hostname"), "pipe": lambda: os.mkfifo(part)}[kind]()
    write_bytes(tmp_path / "file", b"whole")
    assert (tmp_path / "file").read_bytes() == b"whole"
    assert sorted(os.listdir(tmp_path)) == [".file.part", "file"]
    assert not (tmp_path / "file").is_symlink()


def test_a_folder_is_no_place_for_a_file(tmp_path):
    with pytest.raises(UserError, match="is a folder"):
        check_writable(tmp_path)


def test_json_comes_back_and_equal_records_are_equal_bytes(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1, "a": ["ü", None]})
    write_json(tmp_path / "b.json", {"a": ["ü", None], "b": 1})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert read_json(tmp_path / "a.json") == {"a": ["ü", None], "b": 1}
    assert sha256(tmp_path / "a.json") == sha256(tmp_path / "b.json")


def test_json_that_is_not_there_or_not_json_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nothing\.json does not exist"):
        read_json(tmp_path / "nothing.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(UserError, match=r"bad\.json is not readable JSON"):
        read_json(tmp_path / "bad.json")


def test_canonical_json_has_one_spelling():
    assert canonical({"b": 1.5, "a": [1, "é"]}) == '{"a":[1,"é"],"b":1.5}'
    assert json.loads(canonical({"b": 1.5, "a": [1, "é"]})) == {"a": [1, "é"], "b": 1.5}


def test_sha256_is_the_known_one(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
