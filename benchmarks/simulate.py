"""Wall time on many GPUs, stragglers and lost machines: discrete events around the schedule of the engine itself.

    python benchmarks/simulate.py                                       # ImageNet-E with the full-size network
    python benchmarks/simulate.py --photographs 10919 --seconds 2.18 --gpus 8 64
    python benchmarks/simulate.py --check                               # against a real Ray cluster; needs ray

Only the machines are simulated. Which worker gets which task, and what happens to the tasks of a dead one, is decided
by `unswayed.jobs.scheduling.Schedule`, as in every run. Tasks are photographs in the order of the source, whatever
they take; a worker takes some of them in advance, since it prepares them while it renders others. --check runs the
same tasks (they sleep) on a Ray cluster of two nodes, then again with one node killed in the middle, and compares the
wall times with the simulation.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unswayed.jobs import EngineSettings, run_tasks
from unswayed.jobs.scheduling import Message, Schedule

NOTICED = 5


@dataclass(eq=False)
class Node:
    """A machine: how many workers it has room for, how much slower it is than others, and whether it is there."""

    room: int
    slowdown: float = 1.0
    there: bool = True


@dataclass(eq=False)
class Worker:
    """A worker: its node once it has one, the tasks it was given, and what it is doing."""

    node: Node | None = None
    given: deque[tuple[int, float]] = field(default_factory=deque)
    asked: bool = False
    dismissed: bool = False
    since: float = 0.0
    ended: bool = False


class Machines:
    """A crew of simulated workers: tasks are seconds, and time passes only in `receive`.

    startup: seconds until a new worker asks for its first task; ahead: how many tasks it takes in advance; losses:
    (when, number of the node, seconds until it is back or None); noticed: seconds until a loss is known. wasted:
    seconds of work that died with its worker.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        startup: float,
        ahead: int = 1,
        losses: Sequence[tuple[float, int, float | None]] = (),
        noticed: float = 0.0,
    ) -> None:
        self.nodes, self.startup, self.ahead, self.noticed = nodes, startup, ahead, noticed
        self.places: list[str | None] = [None] * sum(node.room for node in nodes)
        self.now, self.wasted, self.busy = 0.0, 0.0, 0.0
        self.pending: deque[Worker] = deque()
        self.messages: deque[tuple[Worker, Message]] = deque()
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.alive: list[Worker] = []
        for when, number, absence in losses:
            self.at(when, lambda node=nodes[number], absence=absence: self.lose(node, absence))

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (when, next(self.order), action))

    def start(self, place: str | None) -> Worker:
        worker = Worker()
        self.pending.append(worker)
        self.place()
        return worker

    def place(self) -> None:
        """Give waiting workers room, on the node that has most of it."""
        while self.pending:
            node = max((node for node in self.nodes if node.there), key=lambda node: node.room, default=None)
            if node is None or node.room == 0:
                return
            worker = self.pending.popleft()
            worker.node = node
            node.room -= 1
            self.alive.append(worker)
            self.at(self.now + self.startup, lambda worker=worker: self.ask(worker))

    def ask(self, worker: Worker) -> None:
        if not worker.ended and not worker.asked and not worker.dismissed and len(worker.given) < self.ahead:
            worker.asked = True
            self.messages.append((worker, Message(wants=True)))

    def send(self, worker: Worker, envelope: tuple[int, Any] | None) -> None:
        worker.asked = False
        if envelope is None:
            worker.dismissed = True
            if not worker.given:
                self.end(worker)
            return
        worker.given.append(envelope)
        if len(worker.given) == 1:
            self.begin(worker)
        self.ask(worker)

    def begin(self, worker: Worker) -> None:
        assert worker.node is not None
        worker.since = self.now
        self.at(self.now + worker.given[0][1] * worker.node.slowdown, lambda: self.finish(worker))

    def finish(self, worker: Worker) -> None:
        if worker.ended:
            return
        number, _ = worker.given.popleft()
        self.busy += self.now - worker.since
        self.messages.append((worker, Message(number=number)))
        if worker.given:
            self.begin(worker)
        elif worker.dismissed:
            self.end(worker)
        self.ask(worker)

    def end(self, worker: Worker) -> None:
        self.leave(worker)
        self.messages.append((worker, Message(ended=True)))
        self.place()

    def leave(self, worker: Worker) -> None:
        worker.ended = True
        self.alive.remove(worker)
        assert worker.node is not None
        worker.node.room += 1

    def lose(self, node: Node, absence: float | None) -> None:
        node.there = False
        lost = Message(ended=True, died="its machine was lost", lost=True)
        for worker in [one for one in self.alive if one.node is node]:
            self.wasted += self.now - worker.since if worker.given else 0.0
            self.leave(worker)
            self.at(self.now + self.noticed, lambda worker=worker: self.messages.append((worker, lost)))
        if absence is not None:
            self.at(self.now + absence, lambda: self.come_back(node))

    def come_back(self, node: Node) -> None:
        node.there = True
        self.place()

    def receive(self, workers: Sequence[Worker]) -> list[tuple[Worker, Message]]:
        while not self.messages:
            self.now, _, action = heapq.heappop(self.events)
            action()
        found, self.messages = list(self.messages), deque()
        # The schedule hears of one thing at a time, as from real processes; the rest waits for its next question.
        self.messages.extend(found[1:])
        return found[:1]

    def stop(self, workers: Sequence[Worker]) -> None:
        pass


@dataclass(frozen=True)
class Run:
    """A simulated run: its wall time, the share of it that workers were busy, tasks done, and seconds of lost work."""

    seconds: float
    busy: float
    done: int
    wasted: float


def simulated(tasks: Sequence[float], machines: Machines) -> Run:
    """Run the tasks (seconds each) in the order given: how long each takes is not known before."""
    outcomes = list(Schedule(machines, tasks).run())
    done = sum(outcome.failure is None for outcome in outcomes)
    return Run(machines.now, machines.busy / (machines.now * len(machines.places)), done, machines.wasted)


def cluster(gpus: int, per_node: int, slow: float = 0.0, seed: int = 0) -> list[Node]:
    """Nodes of `per_node` GPUs; slow: the share of them that takes twice as long, at least one of several."""
    count = -(-gpus // per_node)
    slowed = max(1, round(slow * count)) if slow and count > 1 else 0
    nodes = [Node(min(per_node, gpus - per_node * number)) for number in range(count)]
    for number in np.random.default_rng(seed).permutation(count)[:slowed]:
        nodes[number].slowdown = 2.0
    return nodes


def table(options: argparse.Namespace) -> None:
    """Print wall times by number of GPUs: undisturbed, with slow machines, and with machines that are lost."""
    rng = np.random.default_rng(0)
    # Photographs differ: some edits are not possible, and a size or position takes half the passes of a background.
    sigma = np.sqrt(np.log(1 + options.variation**2))
    tasks = options.seconds * rng.lognormal(-(sigma**2) / 2, sigma, options.photographs)
    print(f"{options.photographs:,} photographs, {tasks.sum() / 3600:,.1f} GPU-hours, {options.per_node} GPUs a "
          f"machine, {options.startup:g} s to start a worker")  # fmt: skip
    print(
        f"{'GPUs':>6} {'wall time':>10} {'busy':>6} | {'slow machines':>14} | {'machines lost':>14} {'work lost':>10}"
    )
    for gpus in options.gpus:
        plain = simulated(tasks, Machines(cluster(gpus, options.per_node), options.startup, options.ahead))
        nodes = cluster(gpus, options.per_node, options.slow)
        slow = simulated(tasks, Machines(nodes, options.startup, options.ahead))
        nodes = cluster(gpus, options.per_node)
        lost = np.random.default_rng(1).permutation(len(nodes))[: max(1, round(options.lost * len(nodes)))]
        losses = [
            (plain.seconds * (0.3 + 0.4 * place / len(lost)), int(one), options.absence)
            for place, one in enumerate(lost)
        ]
        hit = simulated(tasks, Machines(nodes, options.startup, options.ahead, losses, options.noticed))
        assert plain.done == slow.done == hit.done == len(tasks), "a task was lost"
        print(f"{gpus:6,} {shown(plain.seconds):>10} {plain.busy:6.1%} | {shown(slow.seconds):>14} | "
              f"{shown(hit.seconds):>14} {hit.wasted:8.0f} s")  # fmt: skip


def shown(seconds: float) -> str:
    return (
        f"{seconds / 3600:.1f} h"
        if seconds > 5400
        else f"{seconds / 60:.1f} min"
        if seconds > 90
        else f"{seconds:.0f} s"
    )


def check(options: argparse.Namespace) -> None:
    """Run sleeping tasks on a Ray cluster of two nodes and in the simulation, undisturbed and with a node killed."""
    import ray
    from ray.cluster_utils import Cluster

    tasks = sorted(np.random.default_rng(0).lognormal(-0.5, 0.6, options.tasks).tolist(), reverse=True)
    # A lost node is noticed after NOTICED seconds without an answer.
    health = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 1000,
        "health_check_failure_threshold": NOTICED,
    }
    real_cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False, "_system_config": health}
    )
    node, worst = real_cluster.add_node(num_cpus=2), 0.0
    settings = EngineSettings(engine="ray", address=real_cluster.address)
    try:
        for name, kill in (("undisturbed", False), ("one node killed", True)):
            started, arrived, losses = time.perf_counter(), [], []
            for outcome in run_tasks(time.sleep, tasks, workers=4, settings=settings):
                assert outcome.failure is None, outcome.failure
                arrived.append((time.perf_counter() - started, outcome.task))
                if kill and not losses and len(arrived) == len(tasks) // 3:
                    losses = [(time.perf_counter() - started, 1, None)]
                    real_cluster.remove_node(node, allow_graceful=False)
            # Four actors sleep through their first tasks at once, so the first four arrivals tell when they started.
            startup = float(np.median([when - task for when, task in arrived[:4]]))
            seconds = arrived[-1][0]
            model = simulated(tasks, Machines([Node(2), Node(2)], startup, 1, losses, NOTICED))
            assert len(arrived) == model.done == len(tasks)
            ratio = (model.seconds - startup) / (seconds - startup)
            worst = max(worst, abs(ratio - 1))
            real, model_took = seconds - startup, model.seconds - startup
            print(f"{name}: {len(tasks)} tasks of {sum(tasks):.0f} s, {real:.1f} s on Ray, {model_took:.1f} simulated "
                  f"({ratio:.2f}), after {startup:.1f} s to start")  # fmt: skip
    finally:
        ray.shutdown()
        real_cluster.shutdown()
    print(f"the simulated times are within {worst:.0%} of the real ones")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64, 128, 256])
    parser.add_argument("--photographs", type=int, default=4352)
    parser.add_argument("--seconds", type=float, default=2.48, help="of a GPU for the edits of one photograph")
    parser.add_argument("--variation", type=float, default=0.25, help="standard deviation of that, relative to it")
    parser.add_argument("--per-node", type=int, default=8, help="GPUs of one machine")
    parser.add_argument("--startup", type=float, default=90.0, help="seconds to start a worker and compile its network")
    parser.add_argument("--ahead", type=int, default=4, help="photographs that a worker takes in advance")
    parser.add_argument("--slow", type=float, default=0.1, help="share of machines at half speed, in the second column")
    parser.add_argument("--lost", type=float, default=0.1, help="share of machines lost, at least one, in the third")
    parser.add_argument("--absence", type=float, default=600.0, help="seconds until a lost machine is back")
    parser.add_argument("--noticed", type=float, default=30.0, help="seconds until Ray knows that a machine is lost")
    parser.add_argument("--check", action="store_true", help="compare with a real Ray cluster on this machine")
    parser.add_argument("--tasks", type=int, default=60, help="of --check")
    options = parser.parse_args()
    if options.check:
        check(options)
    else:
        table(options)


if __name__ == "__main__":
    main()
