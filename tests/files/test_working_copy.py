"""The working copy of a folder in storage: what is downloaded, uploaded and removed, and in which order."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from command_line import refused
from unswayed.errors import UserError
from unswayed.files import objects
from unswayed.files.storage import fetch_missing, fetch_pictures, local_copy, reachable_copy, refresh
from unswayed.files.whole import remove_file, remove_folder, write_bytes, write_json

BENCH = "memory://bucket/bench"


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fsspec.AbstractFileSystem]:
    """An empty storage, and a machine without working copies."""
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path / "cache"))
    files = fsspec.filesystem("memory")
    files.makedirs("/bucket", exist_ok=True)
    yield files
    files.store.clear()


@pytest.fixture
def transfers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the objects that are downloaded from now on."""
    seen: list[str] = []
    real = objects.get
    monkeypatch.setattr(
        objects, "get", lambda place, path: (seen.append(place.removeprefix(f"{BENCH}/")), real(place, path))[1]
    )
    return seen


def fill(memory: fsspec.AbstractFileSystem, **more: bytes) -> None:
    there = {
        "benchmark.json": b"{}",
        "rows/dog.json": b"[]",
        "images/size/dog.png": b"picture",
        "masks/size/dog.png": b"m",
    }
    for name, data in {**there, **more}.items():
        memory.pipe_file(f"{BENCH}/{name}", data)


def names(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def stored(memory: fsspec.AbstractFileSystem) -> dict[str, bytes]:
    return {name.removeprefix("/bucket/bench/"): memory.cat_file(name) for name in memory.find("/bucket/bench")}


def test_opening_a_folder_downloads_everything_but_the_pictures(memory) -> None:
    fill(memory)
    root = local_copy(BENCH)
    assert names(root) == {"benchmark.json", "rows/dog.json"}
    fetch_pictures(root, ["images/size/dog.png"])
    assert (root / "images/size/dog.png").read_bytes() == b"picture"
    assert "masks/size/dog.png" not in names(root)
    fetch_pictures(root)
    assert "masks/size/dog.png" in names(root)


def test_what_has_not_changed_is_not_downloaded_again(memory, transfers: list[str]) -> None:
    fill(memory)
    root = local_copy(BENCH)
    fetch_pictures(root)
    assert len(transfers) == 4
    transfers.clear()
    refresh(root)
    fetch_pictures(root)
    assert transfers == []
    memory.pipe_file(f"{BENCH}/rows/dog.json", b"{}")
    memory.pipe_file(f"{BENCH}/images/size/dog.png", b"another")
    refresh(root)
    fetch_pictures(root)
    assert transfers == ["rows/dog.json", "images/size/dog.png"]
    assert (root / "images/size/dog.png").read_bytes() == b"another"


def test_a_file_that_was_damaged_in_the_copy_is_downloaded_again(memory) -> None:
    fill(memory)
    root = local_copy(BENCH)
    fetch_pictures(root)
    (root / "images/size/dog.png").write_bytes(b"damaged")
    (root / "masks/size/dog.png").unlink()
    fetch_pictures(root)
    assert (root / "images/size/dog.png").read_bytes() == b"picture"
    assert (root / "masks/size/dog.png").read_bytes() == b"m"


def test_what_was_removed_from_storage_disappears(memory) -> None:
    fill(memory)
    root = local_copy(BENCH)
    fetch_pictures(root)
    memory.rm_file(f"{BENCH}/rows/dog.json")
    memory.rm_file(f"{BENCH}/images/size/dog.png")
    refresh(root)
    fetch_pictures(root)
    assert names(root) == {"benchmark.json", "masks/size/dog.png"}


def test_pictures_of_a_replaced_manifest_are_not_kept(memory) -> None:
    fill(memory, **{"manifest.parquet": b"first"})
    root = local_copy(BENCH)
    fetch_pictures(root)
    memory.pipe_file(f"{BENCH}/manifest.parquet", b"other")
    memory.pipe_file(f"{BENCH}/images/size/dog.png", b"changed")
    refresh(root)
    assert fetch_missing(root / "images/size/dog.png")
    assert (root / "images/size/dog.png").read_bytes() == b"changed"


def test_a_written_file_is_uploaded_before_it_appears(memory, monkeypatch: pytest.MonkeyPatch) -> None:
    root = local_copy(BENCH)
    assert not root.exists()
    write_json(root / "benchmark.json", {"seed": 0})
    write_bytes(root / "images/size/dog.png", b"picture")
    assert stored(memory) == {"benchmark.json": b'{\n "seed": 0\n}\n', "images/size/dog.png": b"picture"}
    assert names(root) == set(stored(memory))

    def refuse(*given: object, **options: object) -> None:
        raise PermissionError("Access Denied: key AKIASECRET")

    monkeypatch.setattr(type(memory), "put_file", refuse)
    for write in (
        lambda: write_bytes(root / "rows/dog.json", b"[]"),
        lambda: write_bytes(root / "images/size/cat.png", b"picture"),
    ):
        with pytest.raises(UserError, match=r"cannot write memory://bucket/bench/\S+: no permission") as caught:
            write()
        assert "AKIASECRET" not in str(caught.value)
    assert names(root) - {name for name in names(root) if name.endswith(".part")} == set(stored(memory))


def test_intermediate_results_and_temporary_files_stay_on_the_machine(memory) -> None:
    root = local_copy(BENCH)
    write_bytes(root / ".cache" / "hole.png", b"hole")
    write_bytes(root / "rows" / "dog.json", b"[]")
    (root / "rows" / ".dog.json.part").write_bytes(b"[")
    refresh(root)
    assert set(stored(memory)) == {"rows/dog.json"}
    assert (root / ".cache" / "hole.png").exists()
    remove_folder(root / ".cache")
    assert not (root / ".cache").exists()


def test_removed_files_and_folders_are_removed_from_storage(memory) -> None:
    root = local_copy(BENCH)
    for name in ("a.failed.json", ".parts/a/0.parquet", ".parts/a/1.parquet", ".parts/b/0.parquet"):
        write_bytes(root / name, b"x")
    remove_file(root / "a.failed.json")
    remove_file(root / "a.failed.json")
    remove_folder(root / ".parts" / "a")
    remove_folder(root / ".parts" / "a")
    assert set(stored(memory)) == {".parts/b/0.parquet"} == names(root)


def test_a_local_folder_is_left_alone(tmp_path: Path) -> None:
    write_bytes(tmp_path / "bench" / "a.json", b"{}")
    refresh(tmp_path / "bench")
    fetch_pictures(tmp_path / "bench")
    assert not fetch_missing(tmp_path / "bench" / "b.png")
    assert local_copy(tmp_path / "bench") == tmp_path / "bench"
    remove_file(tmp_path / "bench" / "a.json")
    remove_folder(tmp_path / "bench")
    assert not (tmp_path / "bench").exists()


def test_names_that_would_lead_out_of_the_copy_are_not_downloaded(memory, tmp_path: Path) -> None:
    fill(memory)
    inside = local_copy(BENCH).parents[1]
    memory.store["/bucket/bench/../../../evil.json"] = memory.store["/bucket/bench/benchmark.json"]
    memory.store["/bucket/bench/images/../../evil.png"] = memory.store["/bucket/bench/benchmark.json"]
    root = local_copy(BENCH)
    fetch_pictures(root, ["../../evil.png", "images/../../evil.png"])
    assert not list(tmp_path.rglob("evil*"))
    assert inside.is_dir()


def test_a_file_can_have_an_address_too(memory) -> None:
    memory.pipe_file("memory://bucket/gate.toml", b"max = 1")
    assert local_copy("memory://bucket/gate.toml").read_bytes() == b"max = 1"


def test_a_storage_that_does_not_answer_is_an_error_and_the_old_copy_stays(memory, monkeypatch) -> None:
    fill(memory)
    local_copy(BENCH)
    monkeypatch.setattr(objects, "PATIENCE", 0.2)
    monkeypatch.setattr(type(memory), "ls", lambda *given, **options: time.sleep(2))
    with pytest.raises(UserError, match=r"cannot reach memory://bucket/bench: no answer within 0.2 seconds"):
        local_copy(BENCH)
    assert (reachable_copy(BENCH) / "benchmark.json").exists()


def test_a_missing_bucket_and_a_missing_folder_are_told_apart(memory) -> None:
    assert not local_copy("memory://bucket/missing").exists()
    with pytest.raises(UserError, match=r"cannot read memory://missing/bench: there is no such bucket"):
        local_copy("memory://missing/bench")


def refusal(text: str, **facts: object) -> Exception:
    """An error that carries its HTTP status as the libraries of Google and Azure do."""
    error = RuntimeError(text)
    error.__dict__.update(facts)
    return error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (refusal("SECRET", code=401), "no credentials were found, or they are not accepted"),
        (refusal("SECRET", status_code=403, response=object()), "no permission with these credentials"),
        (OSError("Forbidden: b/bucket/o SECRET"), "no permission with these credentials"),
        (refusal("SECRET", status_code=409, error_code="ContainerBeingDeleted"), "ContainerBeingDeleted"),
    ],
)
def test_the_errors_of_google_and_azure_are_explained_without_their_text(memory, error, cause, monkeypatch) -> None:
    def fail(*given: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(type(memory), "ls", fail)
    with refused(given=rf"cannot read {BENCH}: {cause}") as caught:
        local_copy(BENCH)
    assert "SECRET" not in str(caught.value)


def test_a_working_copy_can_be_deleted_at_any_time(memory, tmp_path: Path) -> None:
    fill(memory)
    root = local_copy(BENCH)
    shutil.rmtree(tmp_path / "cache")
    assert names(local_copy(BENCH)) == {"benchmark.json", "rows/dog.json"}
    [index] = (tmp_path / "cache" / "remote" / ".known").iterdir()
    index.write_text("not JSON")
    os.utime(root / "benchmark.json", (1, 1))
    assert names(local_copy(BENCH)) == {"benchmark.json", "rows/dog.json"}


@pytest.mark.parametrize(("scheme", "package"), [("s3", "s3fs"), ("gs", "gcsfs"), ("az", "adlfs")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(scheme, package, monkeypatch) -> None:
    monkeypatch.setattr("unswayed.errors.find_spec", lambda name: None)
    with pytest.raises(UserError, match=rf"'{package}'.*\n.*pip install 'unswayed\[{scheme}\]'"):
        local_copy(f"{scheme}://bucket/bench")
