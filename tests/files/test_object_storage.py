"""A benchmark and predictions on S3, Google and Azure, from real servers: killed, resumed and read like local ones."""

from __future__ import annotations

import itertools
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import refusal, run_cli
from store_server import SECRET, Store, serving
from unswayed.files import locks as leases
from unswayed.files import objects

BENCH, PREDICTIONS = "bucket/runs/bench", "bucket/runs/predictions"
BUILD = ["build", "sample", "--renderer", "paste", "--limit", "2", "--recipe", "size=0.05,0.1", "--json"]


@pytest.fixture(scope="module", autouse=True, params=["s3", "gs", "az"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A service that has one empty bucket; the environment leads to it."""
    with pytest.MonkeyPatch.context() as patch, serving(request.param, tmp_path_factory.mktemp("service")) as running:
        for name, value in (("BEAT", 0.2), ("DEAD", 1.0), ("LOOK", 0.1)):
            patch.setattr(leases, name, value)
        running.files().mkdir("bucket")
        yield running


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another machine for each test: nothing of the storage is there yet."""
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def folder(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def printed(*arguments: object, code: int = 0) -> str:
    return run_cli(*arguments, code=code).stdout


def downloads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that are downloaded from now on."""
    seen: list[str] = []
    real = objects.get
    monkeypatch.setattr(objects, "get", lambda place, path: (seen.append(place), real(place, path))[1])
    return seen


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same benchmark, built in a local folder, and its predictions."""
    root = tmp_path_factory.mktemp("local")
    printed(*BUILD, "-o", root / "bench")
    printed("evaluate", root / "bench", "-m", "lite:0", "-o", root / "predictions")
    return root


@pytest.fixture(scope="module")
def built(store: Store, local: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The benchmark, built there by processes that are killed and others that resume; what was there between."""
    cache = tmp_path_factory.mktemp("first") / "cache"
    limit = len(folder(local / "bench")) * 3 // 4
    store.kill([*BUILD, "-o", store.address(BENCH)], cache, lambda written: len(written) == limit)
    between = store.contents(BENCH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSWAYED_CACHE", str(cache))
        told = json.loads(printed(*BUILD, "-o", store.address(BENCH)))
    return {"between": between, "sent": list(store.written), "told": told, "cache": cache}


def test_a_killed_build_leaves_only_whole_objects_and_the_next_one_finishes_it(built, store, local: Path) -> None:
    expected, between = folder(local / "bench"), built["between"]
    assert ".lock" in between
    between = {name: data for name, data in between.items() if not name.startswith(".")}
    assert 0 < len(between) < len(expected)
    assert json.loads(between.pop("benchmark.json"))["kind"] == "build"  # it gets some facts when all is done
    assert {name: data for name, data in expected.items() if name in between} == between
    assert store.contents(BENCH) == expected
    assert built["told"]["root"] == store.address(BENCH)


def test_finished_work_is_not_done_again(built, store: Store) -> None:
    done = {name for name in built["between"] if name.startswith("rows/")}
    assert len(done) == 1
    assert built["told"]["made"] == 1
    assert not {store.address(f"{BENCH}/{name}") for name in done} & set(built["sent"])
    store.written.clear()
    assert json.loads(printed(*BUILD, "-o", store.address(BENCH)))["made"] == 0
    assert not [name for name in store.written if "/images/" in name or "/rows/" in name]


def test_another_machine_verifies_evaluates_analyzes_and_reports(
    built, store: Store, local: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, predictions = store.address(BENCH), store.address(PREDICTIONS)
    assert f"{bench}: " in printed("status", bench)
    got = downloads(monkeypatch)
    assert "no problems" in printed("verify", bench)
    pictures = [name for name in got if "/images/" in name or "/masks/" in name]
    assert len(pictures) == len(set(pictures)) > 0
    evaluate = ["evaluate", bench, "-m", "lite:0", "-o", predictions]
    store.kill(evaluate, machine.with_name("second"), lambda written: written[-1].endswith("lite-0.parquet"))
    assert [name for name in store.contents(PREDICTIONS) if name.startswith(".parts/lite-0-")]
    told = printed(*evaluate)
    assert not [name for name in store.written if "/.parts/" in name]  # nothing was classified again
    assert len([name for name in got if "/images/" in name or "/masks/" in name]) == len(pictures)
    assert told.startswith(f"{predictions}: 10 pictures")
    answers = store.contents(PREDICTIONS)
    assert set(answers) == {"lite-0.json", "lite-0.parquet"} == set(folder(local / "predictions"))
    assert answers["lite-0.parquet"] == (local / "predictions" / "lite-0.parquet").read_bytes()
    assert json.loads(answers["lite-0.json"])["benchmark"]["path"] == bench
    assert SECRET not in str(answers) + str(store.contents(BENCH))

    store.written.clear()
    assert "already evaluated" in printed(*evaluate)
    assert store.written == []

    monkeypatch.setenv("UNSWAYED_CACHE", str(machine.with_name("third")))
    got.clear()
    assert printed("analyze", predictions, "--format", "csv") == printed(
        "analyze", local / "predictions", "--format", "csv"
    )
    assert not [name for name in got if "/images/" in name]
    page = "bucket/runs/report.html"
    assert printed("report", predictions, "-o", store.address(page), "--heat-maps", "0").strip() == store.address(page)
    assert b"size-0.05" in store.files().cat_file(page)
    assert [name for name in got if "/images/" in name]
    assert len(store.contents("bucket/runs")) == len(store.contents(BENCH)) + 3


def test_a_damaged_object_is_found_by_every_machine(built, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    [picture] = [name for name in store.contents(BENCH) if name.startswith("images/size-0.05/")][:1]
    before = store.files().cat_file(f"{BENCH}/{picture}")
    store.files().pipe_file(f"{BENCH}/{picture}", before[:-1] + b"\0")
    try:
        for cache in (built["cache"], built["cache"].with_name("other")):
            monkeypatch.setenv("UNSWAYED_CACHE", str(cache))
            assert f"{picture}: is not the file that was written" in printed("verify", store.address(BENCH), code=1)
    finally:
        store.files().pipe_file(f"{BENCH}/{picture}", before)
    assert "no problems" in printed("verify", store.address(BENCH))


def test_shards_on_two_machines_make_one_benchmark(store: Store, local: Path, machine: Path, monkeypatch) -> None:
    shards = store.address("bucket/shards")
    assert json.loads(printed(*BUILD, "-o", shards, "--shard", "1/2"))["unfinished"] == 1
    monkeypatch.setenv("UNSWAYED_CACHE", str(machine.with_name("second")))
    assert json.loads(printed(*BUILD, "-o", shards, "--shard", "2/2"))["made"] == 1
    assert store.contents("bucket/shards") == folder(local / "bench")


def test_two_builds_into_one_folder_exclude_each_other(store: Store) -> None:
    from unswayed.files.locks import Lock
    from unswayed.files.storage import place_of

    held = Lock(place_of(store.address("bucket/busy")) / ".lock")
    assert held.take()
    try:
        refusal(run_cli(*BUILD, "-o", store.address("bucket/busy")), "another run is building in")
    finally:
        held.release()
    assert store.contents("bucket/busy") == {}


def test_a_bucket_that_vanishes_ends_the_build_and_one_that_returns_continues_it(store: Store, local: Path) -> None:
    brief = store.address("brief/bench")
    store.files().mkdir("brief")
    store.written.clear()

    def vanish() -> None:
        if len(store.written) == 9:
            store.before = None
            store.files().rm("brief", recursive=True)

    store.before = vanish
    refusal(run_cli(*BUILD, "-o", brief), f"cannot write {brief}/", ": there is no such bucket")
    refusal(run_cli("verify", brief), "there is no such bucket")
    store.files().mkdir("brief")
    printed(*BUILD, "-o", brief)
    assert store.contents("brief/bench") == folder(local / "bench")


def test_a_read_only_bucket_is_a_clear_error_and_what_is_there_stays_readable(
    built, store: Store, monkeypatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(store, "refusal", 403)
    told = refusal(run_cli(*BUILD, "-o", store.address("bucket/locked")), "no permission with these credentials")
    assert SECRET not in told + "".join(capfd.readouterr())
    assert "no problems" in printed("verify", store.address(BENCH))


def test_no_bucket_and_no_benchmark_are_told_apart(store: Store) -> None:
    refusal(run_cli("verify", store.address("missing/bench")), "://missing/bench: there is no such bucket")
    refusal(run_cli("verify", store.address("bucket/missing")), "is not a benchmark: it does not exist")
    place = store.address("bucket/missing/one.png")
    assert objects.get(place, Path("unused")) is False
    assert objects.read(place) is None


def test_missing_and_refused_credentials_are_told(
    store: Store, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    if store.scheme == "gs":  # gcsfs then asks without any, which the service refuses
        monkeypatch.setattr(store, "refusal", 401)
        monkeypatch.setattr(store, "refused", "all")
    store.forget()
    told = refusal(run_cli("verify", store.address(BENCH)), "no credentials were found, or they are not accepted")
    assert SECRET not in told + "".join(capfd.readouterr())
    store.forget()


def test_a_network_that_does_not_answer_is_told_within_seconds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PATIENCE", 1.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for name, value in store.environment(f"http://127.0.0.1:{silent.getsockname()[1]}").items():
            monkeypatch.setenv(name, value)
        store.forget()
        started = time.monotonic()
        told = refusal(run_cli("verify", store.address(BENCH)), f"cannot reach {store.address(BENCH)}: no answer")
        assert "within 1 seconds" in told
        assert time.monotonic() - started < 30
    store.forget()


@pytest.mark.parametrize("kind", ["error", "nothing", "half"])
def test_requests_that_fail_now_and_then_change_nothing(
    kind: str, store: Store, local: Path, machine: Path, monkeypatch
) -> None:
    asked, faults = itertools.count(1), []

    def now_and_then(method: str, path: str) -> str | None:
        if next(asked) % 6 or (kind == "half" and method != "GET"):
            return None
        faults.append((method, path))
        return kind

    unsteady = f"bucket/unsteady-{kind}".replace(" ", "-")
    monkeypatch.setattr(store, "fault", now_and_then)
    printed(*BUILD, "-o", store.address(unsteady))
    monkeypatch.setenv("UNSWAYED_CACHE", str(machine / "another"))
    assert "no problems" in printed("verify", store.address(unsteady))
    assert len(faults) > 3
    monkeypatch.undo()
    assert store.contents(unsteady) == folder(local / "bench")


def test_half_of_an_object_is_never_taken_for_all_of_it(built, store: Store, machine: Path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        wrong = re.compile(r"GET /\S*manifest\.parquet(\?alt=media)?")
        patch.setattr(store, "fault", lambda *request: "half as all" if wrong.fullmatch(" ".join(request)) else None)
        refusal(run_cli("verify", store.address(BENCH)), "manifest.parquet: only ", " of its ", " bytes arrived")
    assert "no problems" in printed("verify", store.address(BENCH))
