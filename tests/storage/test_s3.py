"""A benchmark and predictions on S3, from a real server: killed, resumed, evaluated and reported like local ones."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from unfazed.cli import build_app
from unfazed.errors import UserError
from unfazed.storage import leases, objects

s3fs = pytest.importorskip("s3fs", reason="needs the extra s3: make setup-integrations")
moto = pytest.importorskip("moto.server", reason="needs moto[server]: make setup-integrations")
s3_models = pytest.importorskip("moto.s3.models")

BENCH, PREDICTIONS = "s3://bucket/runs/bench", "s3://bucket/runs/predictions"
BUILD = ["build", "sample", "--renderer", "paste", "--limit", "2", "--recipe", "size=0.05,0.1", "--json"]


class Server:
    """What the server has received: the names of the objects written, less locks and heartbeats, and what to do before
    each is stored."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.before: Callable[[Any], object] | None = None

    def kill(self, command: list[str], cache: Path, when: Callable[[list[str]], bool]) -> None:
        """Run a command in processes of its own and kill them at once when the objects written fulfill `when`."""
        self.written.clear()
        program = [sys.executable, "-c", "from unfazed.cli import main; main()", *command]
        environment = {**os.environ, "UNFAZED_CACHE": str(cache)}
        with subprocess.Popen(program, env=environment, stdout=subprocess.DEVNULL, start_new_session=True) as process:
            self.before = lambda backend: when(self.written) and os.killpg(process.pid, signal.SIGKILL)
        self.before = None
        assert process.returncode == -signal.SIGKILL
        self.written.clear()

    def put(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def put_object(backend: Any, bucket_name: str, key_name: str, *given: Any, **options: Any) -> Any:
            if not key_name.rpartition("/")[2].startswith(".") and not key_name.endswith(".lock"):
                self.written.append(f"s3://{bucket_name}/{key_name}")
                if self.before is not None:
                    self.before(backend)
            return real(backend, bucket_name, key_name, *given, **options)

        return put_object


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[Server]:
    """A server of S3 that has one empty bucket; the environment leads to it."""
    with pytest.MonkeyPatch.context() as patch:
        seen = Server()
        patch.setattr(s3_models.S3Backend, "put_object", seen.put(s3_models.S3Backend.put_object))
        running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        running.start()
        host, port = running.get_host_and_port()
        for name, value in (
            ("AWS_ENDPOINT_URL", f"http://{host}:{port}"),
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "VERYSECRET"),
            ("AWS_DEFAULT_REGION", "us-east-1"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ):
            patch.setenv(name, value)
        patch.setattr(leases, "BEAT", 0.2)
        patch.setattr(leases, "DEAD", 1.0)
        patch.setattr(leases, "LOOK", 0.1)
        s3fs.S3FileSystem.clear_instance_cache()
        bucket().mkdir("bucket")
        yield seen
        running.stop()
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another machine for each test: nothing of the storage is there yet."""
    monkeypatch.setenv("UNFAZED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def bucket() -> Any:
    return s3fs.S3FileSystem(use_listings_cache=False)


def contents(address: str) -> dict[str, bytes]:
    files = bucket()
    root = address.removeprefix("s3://")
    return {name.removeprefix(f"{root}/"): files.cat_file(name) for name in files.find(root)}


def folder(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(build_app(), [str(one) for one in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


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
    run(*BUILD, "-o", root / "bench")
    run("evaluate", root / "bench", "-m", "lite:0", "-o", root / "predictions")
    return root


@pytest.fixture(scope="module")
def on_s3(server: Server, local: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The benchmark, built on S3 by processes that are killed and others that resume; what was there between."""
    cache = tmp_path_factory.mktemp("first") / "cache"
    limit = len(folder(local / "bench")) * 3 // 4
    server.kill([*BUILD, "-o", BENCH], cache, lambda written: len(written) == limit)
    between = contents(BENCH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNFAZED_CACHE", str(cache))
        built = json.loads(run(*BUILD, "-o", BENCH))
    return {"between": between, "sent": list(server.written), "built": built, "cache": cache}


def test_a_killed_build_leaves_only_whole_objects_and_the_next_one_finishes_it(on_s3, local: Path) -> None:
    expected, between = folder(local / "bench"), on_s3["between"]
    assert ".lock" in between
    between = {name: data for name, data in between.items() if not name.startswith(".")}
    assert 0 < len(between) < len(expected)
    assert json.loads(between.pop("benchmark.json"))["kind"] == "build"  # it gets some facts when all is done
    assert {name: data for name, data in expected.items() if name in between} == between
    assert contents(BENCH) == expected
    assert on_s3["built"]["root"] == BENCH


def test_finished_work_is_not_done_again(on_s3, server: Server) -> None:
    done = {name for name in on_s3["between"] if name.startswith("rows/")}
    assert len(done) == 1
    assert on_s3["built"]["made"] == 1
    assert not {f"{BENCH}/{name}" for name in done} & set(on_s3["sent"])
    server.written.clear()
    assert json.loads(run(*BUILD, "-o", BENCH))["made"] == 0
    assert not [name for name in server.written if "/images/" in name or "/rows/" in name]


def test_another_machine_verifies_evaluates_analyzes_and_reports(
    on_s3, server: Server, local: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"{BENCH}: " in run("status", BENCH)
    got = downloads(monkeypatch)
    assert "no problems" in run("verify", BENCH)
    pictures = [name for name in got if "/images/" in name or "/masks/" in name]
    assert len(pictures) == len(set(pictures)) > 0
    evaluate = ["evaluate", BENCH, "-m", "lite:0", "-o", PREDICTIONS]
    server.kill(evaluate, machine.with_name("second"), lambda written: written[-1].endswith("lite-0.parquet"))
    assert [name for name in contents(PREDICTIONS) if name.startswith(".parts/lite-0-")]
    told = run(*evaluate)
    assert not [name for name in server.written if "/.parts/" in name]  # nothing was classified again
    assert len([name for name in got if "/images/" in name or "/masks/" in name]) == len(pictures)
    assert told.startswith(f"{PREDICTIONS}: 10 pictures")
    answers = contents(PREDICTIONS)
    assert set(answers) == {"lite-0.json", "lite-0.parquet"} == set(folder(local / "predictions"))
    assert answers["lite-0.parquet"] == (local / "predictions" / "lite-0.parquet").read_bytes()
    assert json.loads(answers["lite-0.json"])["benchmark"]["path"] == BENCH
    assert "VERYSECRET" not in str(answers) + str(contents(BENCH))

    server.written.clear()
    assert "already evaluated" in run(*evaluate)
    assert server.written == []

    monkeypatch.setenv("UNFAZED_CACHE", str(machine.with_name("third")))
    got.clear()
    assert run("analyze", PREDICTIONS, "--format", "csv") == run("analyze", local / "predictions", "--format", "csv")
    assert not [name for name in got if "/images/" in name]
    page = "s3://bucket/runs/report.html"
    assert run("report", PREDICTIONS, "-o", page, "--heat-maps", "0").strip() == page
    assert b"size-0.05" in bucket().cat_file(page)
    assert [name for name in got if "/images/" in name]
    assert len(contents("s3://bucket/runs")) == len(contents(BENCH)) + 3


def test_a_damaged_object_is_found_by_every_machine(on_s3, monkeypatch: pytest.MonkeyPatch) -> None:
    [picture] = [name for name in contents(BENCH) if name.startswith("images/size-0.05/")][:1]
    before = bucket().cat_file(f"{BENCH}/{picture}")
    bucket().pipe_file(f"{BENCH}/{picture}", before[:-1] + b"\0")
    try:
        for cache in (on_s3["cache"], on_s3["cache"].with_name("other")):
            monkeypatch.setenv("UNFAZED_CACHE", str(cache))
            assert f"{picture}: is not the file that was written" in run("verify", BENCH, code=1)
    finally:
        bucket().pipe_file(f"{BENCH}/{picture}", before)
    assert "no problems" in run("verify", BENCH)


def test_shards_on_two_machines_make_one_benchmark(local: Path, machine: Path, monkeypatch) -> None:
    shards = "s3://bucket/shards"
    assert json.loads(run(*BUILD, "-o", shards, "--shard", "1/2"))["unfinished"] == 1
    monkeypatch.setenv("UNFAZED_CACHE", str(machine.with_name("second")))
    assert json.loads(run(*BUILD, "-o", shards, "--shard", "2/2"))["made"] == 1
    assert contents(shards) == folder(local / "bench")


def test_two_builds_into_one_folder_exclude_each_other(machine: Path) -> None:
    from unfazed.locks import Lock
    from unfazed.storage.addresses import place_of

    held = Lock(place_of("s3://bucket/busy") / ".lock")
    assert held.take()
    try:
        with pytest.raises(UserError, match="another run is building in"):
            run(*BUILD, "-o", "s3://bucket/busy")
    finally:
        held.release()
    assert contents("s3://bucket/busy") == {}


def test_a_bucket_that_vanishes_ends_the_build_and_one_that_returns_continues_it(server: Server, local: Path) -> None:
    bucket().mkdir("brief")
    server.written.clear()

    def vanish(backend: Any) -> None:
        if len(server.written) == 9:
            backend.buckets.pop("brief")
            s3_models.s3_backends.bucket_accounts.pop("brief")
            raise s3_models.MissingBucket(bucket="brief")

    server.before = vanish
    with pytest.raises(UserError, match=r"cannot write s3://brief/bench/\S+: there is no such bucket"):
        run(*BUILD, "-o", "s3://brief/bench")
    server.before = None
    with pytest.raises(UserError, match="there is no such bucket"):
        run("verify", "s3://brief/bench")
    bucket().mkdir("brief")
    run(*BUILD, "-o", "s3://brief/bench")
    assert contents("s3://brief/bench") == folder(local / "bench")


def test_a_read_only_bucket_is_a_clear_error_and_what_is_there_stays_readable(on_s3, monkeypatch) -> None:
    real = s3fs.S3FileSystem._call_s3

    async def call(self: Any, method: str, *given: Any, **options: Any) -> Any:
        if method == "put_object":
            raise PermissionError("Access Denied VERYSECRET")
        return await real(self, method, *given, **options)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", call)
    with pytest.raises(UserError, match="no permission with these credentials") as caught:
        run(*BUILD, "-o", "s3://bucket/locked")
    assert "VERYSECRET" not in str(caught.value)
    assert "no problems" in run("verify", BENCH)


def test_no_bucket_no_benchmark_and_no_credentials_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"s3://missing/bench: there is no such bucket"):
        run("verify", "s3://missing/bench")
    with pytest.raises(UserError, match="is not a benchmark: it does not exist"):
        run("verify", "s3://bucket/missing")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(UserError, match="no credentials were found"):
        run("verify", BENCH)
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_network_that_does_not_answer_is_told_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PATIENCE", 1.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        s3fs.S3FileSystem.clear_instance_cache()
        started = time.monotonic()
        with pytest.raises(UserError, match=f"cannot reach {BENCH}: no answer within 1 seconds"):
            run("verify", BENCH)
        assert time.monotonic() - started < 30
    s3fs.S3FileSystem.clear_instance_cache()
