"""Locks and leases: one holder at a time, taken over after a kill, whatever the clocks say."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from unswayed.errors import UserError
from unswayed.files import locks as leases
from unswayed.files import whole as file_systems
from unswayed.files.locks import Lease, Lock, Slot, alone, held_locks, is_held
from unswayed.files.storage import place_of
from unswayed.files.whole import write_bytes

HOLD = """
import sys
from pathlib import Path
from unswayed.files.locks import Lock
from unswayed.files import locks as leases
leases.BEAT = 0.2
lock = Lock(Path(sys.argv[1]))
assert lock.take()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["file", "object"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The path of a lock where leases are used: as on a network file system, and in object storage."""
    monkeypatch.setenv("UNSWAYED_CACHE", str(tmp_path / "cache"))
    if request.param == "file":
        monkeypatch.setenv("UNSWAYED_LOCKS", "lease")
    for name, value in (("BEAT", 0.05), ("DEAD", 0.6), ("LOOK", 0.02)):
        monkeypatch.setattr(leases, name, value)
    yield tmp_path / ".lock" if request.param == "file" else place_of("memory://bucket/bench") / ".lock"
    fsspec.filesystem("memory").store.clear()


def stopped(path: Path) -> Lease:
    """A lease that is held and no longer renewed, as after the kill of its process."""
    lease = Lease(Slot(path))
    assert lease.take()
    lease._stop.set()
    lease._thread.join()
    return lease


def test_one_holder_at_a_time_and_the_next_after_its_release(path: Path) -> None:
    first, second = Lock(path), Lock(path)
    assert not is_held(path)
    assert first.take()
    assert is_held(path)
    assert not second.take()
    with pytest.raises(UserError, match="busy"), alone(path, "busy"):
        pass
    second.release()
    assert not Lock(path).take()
    first.release()
    assert not is_held(path)
    assert second.take()
    second.release()
    assert Slot(path).read() is None


def test_the_held_ones_of_several_locks_are_found_at_once(path: Path) -> None:
    shards = [Lock(path.with_name(f".lock.{one}-of-3")) for one in (1, 2)]
    assert all(shard.take() for shard in shards)
    stopped(path.with_name(".lock.3-of-3"))
    assert held_locks(path.parent, ".lock") == {".lock.1-of-3", ".lock.2-of-3"}
    assert held_locks(path.parent, ".lock", but=".lock.1-of-3") == {".lock.2-of-3"}
    for shard in shards:
        shard.release()
    assert held_locks(path.parent, ".lock") == set()


def test_a_long_look_at_other_locks_says_what_it_waits_for_and_a_short_one_nothing(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Lock(path)
    assert own.take()
    monkeypatch.setattr(leases, "QUIET", 0.0)
    assert held_locks(path.parent, ".lock", but=".lock") == set()
    assert capsys.readouterr().err == ""
    dead = stopped(path.with_name(".lock.3-of-3"))
    assert held_locks(path.parent, ".lock", but=".lock") == set()
    told = f"waiting at most 0.1 s to see whether another run still holds {dead.slot}\n"
    assert capsys.readouterr().err == told
    monkeypatch.setattr(leases, "QUIET", 60.0)
    assert held_locks(path.parent, ".lock", but=".lock") == set()
    assert capsys.readouterr().err == ""
    own.release()


def test_a_lease_that_is_not_renewed_is_taken_over_and_its_old_holder_leaves_it_alone(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = stopped(path)
    new = Lock(path)
    assert capsys.readouterr().err == ""
    assert new.take()
    place = Slot(path)
    told = f"waiting at most 0.6 s: another run holds {place}; this one continues if it was killed\n"
    assert capsys.readouterr().err == told and str(place).endswith("/.lock")
    old.release()
    assert is_held(path)
    assert not Lock(path).take()
    new.release()
    assert Slot(path).read() is None


def test_a_holder_that_continues_after_a_takeover_does_not_renew_the_lease_of_the_new_one(path: Path) -> None:
    old = stopped(path)
    new = Lock(path)
    assert new.take()
    old._hold()
    old._thread.join(5)
    assert not old._thread.is_alive()
    assert new._lease._is_ours()
    new.release()


def test_of_several_that_find_a_dead_lease_one_gets_it(path: Path) -> None:
    stopped(path)
    locks = [Lock(path) for _ in range(6)]
    got: list[bool] = []
    threads = [threading.Thread(target=lambda one=one: got.append(one.take())) for one in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [False] * 5 + [True]
    for lock in locks:
        lock.release()


def test_a_takeover_that_was_killed_is_itself_taken_over(path: Path) -> None:
    dead = stopped(path)
    seen = dead.slot.read()
    assert seen is not None
    claim = Lease(dead.slot.beside(leases.hashlib.sha256(seen).hexdigest()[:16]))
    assert claim.take()
    claim._stop.set()
    claim._thread.join()
    lock = Lock(path)
    assert lock.take()
    lock.release()


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_the_clock_of_the_day_may_jump(path: Path, jump: float, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = Lock(path)
    assert holder.take()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    assert not Lock(path).take()
    holder.release()
    stopped(path)
    assert Lock(path).take()


def test_an_observer_that_was_paused_looks_again_before_it_takes_over(path: Path, monkeypatch) -> None:
    holder = Lock(path)
    assert holder.take()
    calls: list[float] = []
    real = time.monotonic

    def paused() -> float:
        calls.append(real())
        return real() + (1e6 if len(calls) > 1 else 0)  # a steady clock that ran on while this process did not

    monkeypatch.setattr(leases.time, "sleep", lambda seconds: threading.Event().wait(0.2))
    monkeypatch.setattr(leases.time, "monotonic", paused)
    assert not Lock(path).take()
    monkeypatch.undo()
    holder.release()


def test_renewing_does_not_bring_back_a_folder_that_was_removed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("UNSWAYED_LOCKS", "lease")
    monkeypatch.setattr(leases, "BEAT", 0.05)
    lock = Lock(tmp_path / "bench" / ".lock")
    assert lock.take()
    (tmp_path / "bench" / ".lock").unlink()
    (tmp_path / "bench").rmdir()
    lock._lease._thread.join(5)
    lock.release()
    assert not (tmp_path / "bench").exists()


@pytest.mark.parametrize("kind", ["flock", "lease"])
def test_the_lock_of_a_killed_process_is_taken_over(kind: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("UNSWAYED_LOCKS", kind)
    monkeypatch.setattr(leases, "DEAD", 2.0)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path / ".lock"], **pipes) as process:
        assert process.stdout.readline() == b"held\n"
        assert is_held(tmp_path / ".lock")
        assert not Lock(tmp_path / ".lock").take()
        process.send_signal(signal.SIGKILL)
    lock = Lock(tmp_path / ".lock")
    assert lock.take()
    lock.release()
    assert os.listdir(tmp_path) == []


def test_a_pipe_in_place_of_a_lease_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.lock")
    with pytest.raises(UserError, match=r"the lock .*a\.lock is no file"):
        Slot(tmp_path / "a.lock").read()


def test_leases_are_used_on_network_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = os.stat(tmp_path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(file_systems, "_MOUNTS", mounts)
    for kind, network in (("ext4", False), ("nfs4", True), ("fuse.sshfs", True), ("fuseblk", False), ("lustre", True)):
        file_systems._is_network.cache_clear()
        mounts.write_text(
            f"22 1 0:1 / /x rw - proc proc rw\n30 1 {number} / /y rw,relatime shared:1 - {kind} host:/y rw\n"
        )
        assert file_systems.needs_leases(tmp_path) is network
        write_bytes(tmp_path / "bench" / "a.json", b"{}")
        assert os.listdir(tmp_path / "bench") == ["a.json"]
    file_systems._is_network.cache_clear()
    monkeypatch.setenv("UNSWAYED_LOCKS", "leese")
    with pytest.raises(UserError, match="did you mean 'lease'"):
        file_systems.needs_leases(tmp_path)


def test_a_file_system_without_locks_gets_a_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise OSError(errno.ENOSYS, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(leases, "BEAT", 0.05)
    first, second = Lock(tmp_path / ".lock"), Lock(tmp_path / ".lock")
    assert first.take()
    assert not second.take()
    first.release()
    assert second.take()
    second.release()
