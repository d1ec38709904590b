from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time

import pytest

import crew
from command_line import refused
from outside_package import path_with
from unswayed.errors import UserError
from unswayed.jobs import EngineSettings, WorkerState, choose_device, choose_devices, run_tasks
from unswayed.jobs.monitor import View
from unswayed.jobs.resources import prefetch


@pytest.mark.parametrize("workers", [1, 3])
def test_every_task_has_its_result(workers):
    outcomes = list(run_tasks(crew.double, range(20), workers=workers))
    assert {outcome.task: outcome.result for outcome in outcomes} == {n: 2 * n for n in range(20)}


def test_one_worker_runs_here_and_only_when_asked():
    outcomes = run_tasks(lambda n: (os.getpid(), n), iter(range(10)))
    assert next(outcomes).result == (os.getpid(), 0)


def test_a_process_keeps_its_worker_and_one_thread():
    seen = [outcome.result for outcome in run_tasks(crew.Counting(), range(12), workers=2)]
    assert os.getpid() not in {pid for pid, _ in seen}
    assert sum(max(calls for pid, calls in seen if pid == one) for one in {pid for pid, _ in seen}) == 12
    [outcome] = run_tasks(crew.whoami, [0], workers=2)
    assert outcome.result[1] == {"torch": 1, "opencv": 1}


def test_tasks_are_taken_only_as_processes_are_free():
    taken = []
    outcomes = run_tasks(crew.double, (taken.append(n) or n for n in range(1000)), workers=2)
    next(outcomes)
    outcomes.close()
    assert len(taken) <= 4


def test_a_worker_that_dies_once_is_replaced(tmp_path):
    outcomes = list(run_tasks(crew.Fragile((3, 4), str(tmp_path)), range(8), workers=2))
    assert sorted(outcome.result for outcome in outcomes) == list(range(8))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["3", "4"]


def test_a_task_that_kills_twice_is_recorded_and_the_rest_done():
    outcomes = {o.task: o for o in run_tasks(crew.Fragile((0, 5)), range(8), workers=2)}
    assert sorted(outcomes) == list(range(8))
    assert {task for task, o in outcomes.items() if o.failure} == {0, 5}
    assert "died twice" in outcomes[5].failure
    assert "SIGKILL" in outcomes[5].failure


@pytest.mark.parametrize("apart", [False, True])
def test_what_a_worker_counts_is_heard_while_its_task_runs(apart, tmp_path):
    counts = []
    for _ in run_tasks(crew.Counted((), str(tmp_path)), range(2), apart=apart, counted=counts.append):
        assert len(counts) > 1
    assert sum(counts) == 20


@pytest.mark.parametrize("apart", [False, True])
def test_a_worker_that_counts_nothing_runs_all_the_same(apart):
    assert [one.result for one in run_tasks(abs, [-1, -2], apart=apart, counted=print)] == [1, 2]


def test_what_was_counted_before_a_death_is_counted_back(tmp_path):
    counts = []
    list(run_tasks(crew.Counted((1,), str(tmp_path)), range(3), workers=2, counted=counts.append))
    assert min(counts) < 0
    assert sum(counts) == 30


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_ends_the_run_with_itself(workers):
    with refused(given="number 0 will not do", allowed="none"):
        list(run_tasks(crew.complain, [0], workers=workers))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_that_fails_twice_is_recorded_with_its_reason_and_the_rest_done(workers, tmp_path):
    outcomes = {one.task: one for one in run_tasks(crew.Misreading((1, 2), str(tmp_path)), range(4), workers=workers)}
    assert {task: one.failure for task, one in outcomes.items()} == {
        **dict.fromkeys(range(4)),
        1: "EOFError: too short",
    }
    assert outcomes[2].result == 2  # it failed only once


def test_an_early_exit_ends_the_processes():
    outcomes = run_tasks(crew.slow, [0.01, 600, 600], workers=2)
    pid = next(outcomes).result
    started = time.monotonic()
    outcomes.close()
    assert time.monotonic() - started < 60
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_ctrl_c_ends_everything_quietly(tmp_path):
    """A real interrupt to the whole process group, as a terminal sends it."""
    script = tmp_path / "main.py"
    script.write_text(
        textwrap.dedent("""
        import crew
        from unswayed.jobs import EngineSettings, run_tasks
        if __name__ == "__main__":
            for outcome in run_tasks(crew.slow, [0.01, 0.02, 600, 600], workers=2):
                print(outcome.result, flush=True)
        """)
    )
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path_with()},
    )
    pids = {int(process.stdout.readline()) for _ in range(2)}
    time.sleep(0.5)  # now it waits for the two long tasks, as it does when a person interrupts it
    os.killpg(process.pid, 2)
    _, errors = process.communicate(timeout=60)
    assert errors.count("Traceback") == 1
    assert "KeyboardInterrupt" in errors
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_bad_requests():
    with pytest.raises(UserError, match="the number of workers is 0"):
        run_tasks(crew.double, [], workers=0)
    with refused("did you mean 'local'", given="'locale'"):
        EngineSettings(engine="locale")
    with refused(given="the shard is '5/4'", allowed="I/N with I from 1 to N"):
        EngineSettings(shard="5/4")
    with pytest.raises(UserError, match="the engine local has no address"):
        EngineSettings(address="head:6379")


def test_ray_that_is_not_installed_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with refused(given=r"needs the package 'ray'.*", run=r"pip install 'unswayed\[ray\]'"):
        run_tasks(crew.double, [1], settings=EngineSettings(engine="ray"))


def test_shards_are_disjoint_equal_and_independent_of_the_order():
    ids = [f"photograph{number}" for number in range(50)]
    parts = [EngineSettings(shard=f"{number}/4").part(ids) for number in (1, 2, 3, 4)]
    assert sorted(one for part in parts for one in part) == sorted(ids)
    assert {len(part) for part in parts} == {12, 13}
    assert set(EngineSettings(shard="2/4").part(ids[::-1])) == set(parts[1])
    assert EngineSettings().part(ids) == ids


def test_one_process_per_device_is_told_its_device(tmp_path):
    outcomes = list(run_tasks(crew.Placed(str(tmp_path)), range(6), devices=["cpu", "cpu:1"]))
    assert len(outcomes) == 6
    assert sorted(device for device, _ in {outcome.result for outcome in outcomes}) == ["cpu", "cpu:1"]
    [alone] = run_tasks(crew.Placed(str(tmp_path)), [0], devices=["cpu"])
    assert alone.result == ("cpu", os.getpid())


def test_a_single_worker_apart_survives_a_crash_of_its_process():
    outcomes = {one.task: one.failure for one in run_tasks(crew.Fragile((1,)), range(3), apart=True)}
    assert outcomes == {
        0: None,
        1: "the process that worked on it died twice (SIGKILL, most likely out of memory)",
        2: None,
    }


def test_a_worker_that_cannot_be_sent_runs_here_though_it_is_to_be_apart():
    assert [one.result for one in run_tasks(lambda n: (os.getpid(), n), [1], apart=True)] == [(os.getpid(), 1)]


@pytest.mark.parametrize("devices", [["cpu"], ["cpu", "cpu"]])
def test_a_stream_finishes_tasks_in_its_own_order(devices):
    outcomes = list(run_tasks(crew.Pairs(), range(9), devices=devices))
    assert {outcome.task: outcome.result for outcome in outcomes} == {n: 2 * n for n in range(9)}


def test_a_task_that_kills_a_stream_is_found_among_its_neighbors():
    outcomes = {one.task: one for one in run_tasks(crew.Pairs(deadly=4), range(9), devices=["cpu", "cpu"])}
    assert {task for task, one in outcomes.items() if one.failure} == {4}
    assert {task: one.result for task, one in outcomes.items() if task != 4} == {n: 2 * n for n in range(9) if n != 4}


def test_the_neighbors_of_a_deadly_task_that_its_worker_had_not_begun_are_done(tmp_path):
    made = run_tasks(crew.Cautious(0, str(tmp_path)), range(4), devices=["cpu"], apart=True)
    outcomes = {one.task: one for one in made}
    assert {task: one.result for task, one in outcomes.items()} == {0: None, 1: 2, 2: 4, 3: 6}


def test_workers_that_cannot_start_end_the_run():
    with pytest.raises(UserError, match="no worker could be started: exit code 7"):
        list(run_tasks(crew.Stillborn(), range(3), workers=2))


def test_the_states_of_the_processes_are_told():
    seen = []
    list(run_tasks(crew.double, range(4), workers=2, watch=seen.append))
    assert sum(state.finished for state in seen[-1]) == 4
    assert {state.name for state in seen[-1]} == {"worker 1", "worker 2"}
    assert {state.state for states in seen for state in states} >= {"starting", "working"}


def test_the_state_of_this_process_is_told_where_it_does_the_work(tmp_path):
    seen = []
    list(run_tasks(crew.Counted((), str(tmp_path)), range(2), devices=(), watch=seen.append, counted=lambda more: None))
    assert {state.name for states in seen for state in states} == {"this process"}
    assert [states[0].finished for states in seen][:2] == [0, 0]  # it counts while its first task runs
    assert seen[-1][0].finished == 2


def test_a_worker_whose_network_waits_for_pictures_says_how_long():
    seen = []
    list(run_tasks(crew.waits, [0.3, 0.3], workers=2, watch=seen.append))
    assert max(state.waited for states in seen for state in states) > 0
    view = View("build", "passes", workers=(WorkerState("cuda:0", "cuda:0", "working", 1, 3, waited=0.4),))
    assert view.remarks == ["cuda:0 waits for pictures 40% of the time (see --workers)"]


@pytest.mark.parametrize("start", ["forkserver", "spawn"])  # spawn: as on macOS and Windows
def test_a_script_without_a_main_guard_starts_processes(start, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import crew\n"
        f"import unswayed.jobs.processes\nunswayed.jobs.processes.START = '{start}'\n"
        "from unswayed.jobs import EngineSettings, run_tasks\n"
        "print(sorted(one.result for one in run_tasks(crew.double, range(3), workers=2)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": path_with()}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100, env=environment)
    assert (done.stdout, done.returncode) == ("[0, 2, 4]\n", 0), done.stderr


def test_processes_that_cannot_be_copied_are_started_anew(monkeypatch):
    monkeypatch.setattr("unswayed.jobs.processes.START", "spawn")
    outcomes = run_tasks(crew.double, range(4), workers=2)
    assert {outcome.task: outcome.result for outcome in outcomes} == {n: 2 * n for n in range(4)}


def test_the_gpu_of_a_mac_is_chosen_where_there_is_no_other(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert (choose_devices(), choose_device().type) == (["mps"], "mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert (choose_devices(), choose_device().type) == (["cpu"], "cpu")


def test_ahead_keeps_order_works_ahead_and_passes_errors_on():
    fetched = []

    def items():
        for number in range(5):
            fetched.append(number)
            yield number
        raise ValueError("the well is dry")

    stream = prefetch(items(), count=2)
    assert next(stream) == 0
    deadline = time.monotonic() + 30
    while len(fetched) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert fetched == [0, 1, 2, 3]  # one given, two ready, one in hand
    assert [next(stream) for _ in range(4)] == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="dry"):
        next(stream)


def test_ahead_stops_when_left_early():
    closed = []

    def items():
        try:
            yield from range(1000)
        finally:
            closed.append(True)

    stream = prefetch(items(), count=1)
    next(stream)
    stream.close()
    assert closed == [True]
