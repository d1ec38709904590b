"""Addresses of object storage and the paths of their working copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from unswayed.errors import UserError
from unswayed.files.storage import address, address_of, is_address, place_of, shown


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("given", ["s3://bucket/a/b", "s3://bucket//a/b/", Path("s3://bucket/a/b")])
def test_an_address_has_one_working_copy_however_it_is_written(given: str | Path, cache: Path) -> None:
    assert is_address(given)
    assert place_of(given) == cache / "remote" / "s3" / "bucket" / "a" / "b"
    assert address_of(place_of(given)) == "s3://bucket/a/b"


def test_a_path_is_no_address_and_a_file_address_is_a_path(tmp_path: Path) -> None:
    for given in ("bench", "images:photos", "C:/bench", "lite:0", tmp_path):
        assert not is_address(given)
        assert place_of(given) == Path(given)
        assert address_of(place_of(given)) is None
        assert address(given) == str(given)
    assert place_of(f"file://{tmp_path}/bench") == tmp_path / "bench"


def test_a_file_of_a_working_copy_has_its_own_address() -> None:
    assert address(place_of("gs://bucket/bench") / "rows" / "dog.json") == "gs://bucket/bench/rows/dog.json"


def test_a_cache_behind_a_link_has_the_same_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path / "link"))
    assert address_of(place_of("az://box/bench").resolve()) == "az://box/bench"


def test_the_copies_can_be_elsewhere_than_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSWAYED_COPIES", str(tmp_path / "copies"))
    assert place_of("s3://bucket/bench") == tmp_path / "copies" / "s3" / "bucket" / "bench"
    assert address_of(tmp_path / "copies" / "s3" / "bucket" / "bench") == "s3://bucket/bench"


@pytest.mark.parametrize("given", ["s3://", "s3:///", "s3://bucket/../other", "gs://bucket/a\0b", "az://./x"])
def test_an_address_without_a_bucket_or_with_a_way_out_is_refused(given: str) -> None:
    with pytest.raises(UserError, match="is not an address"):
        place_of(given)


def test_credentials_in_an_address_are_refused_and_not_repeated() -> None:
    with pytest.raises(UserError, match="credentials in the environment") as caught:
        place_of("s3://KEY:SECRET@bucket/bench")
    assert "SECRET" not in str(caught.value)


def test_messages_show_addresses() -> None:
    place = place_of("s3://bucket/bench")
    assert shown(f"{place}/benchmark.json is not JSON") == "s3://bucket/bench/benchmark.json is not JSON"
    assert shown("/data/bench is not a benchmark") == "/data/bench is not a benchmark"
