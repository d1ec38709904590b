"""Workers as actors of a Ray cluster. Tasks and results are small records; pictures never pass through Ray's store."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from unswayed.errors import UserError, first_line
from unswayed.files.storage import copies_folder

from . import EngineSettings
from .processes import ONE_THREAD
from .scheduling import Message, serve

# Seconds after which a run ends if none of its actors could be placed on a machine.
PATIENCE = 300.0
GPU = "cuda"  # the device of an actor that has a GPU: it sees no other


@dataclass(eq=False)
class _Handle:
    """One actor, the reference to its next message, and whether it has sent one."""

    actor: Any
    coming: object
    placed: bool = False


class Actors:
    """A crew of actors. One whose place is a GPU gets a GPU of the cluster, or its share if `settings.per_gpu` use it.

    packed: the pickled worker; places: one actor for each.
    """

    def __init__(self, packed: bytes, places: Sequence[str | None], settings: EngineSettings) -> None:
        self.ray = _connected(settings.address)
        self.places = places
        self.packed, self.share = self.ray.put(packed), 1 / settings.per_gpu if places[0] == GPU else 0
        self.started = time.monotonic()

    def start(self, device: str | None) -> _Handle:
        options = {"num_cpus": 1, "num_gpus": self.share, "max_concurrency": 2, "scheduling_strategy": "SPREAD"}
        kind = self.ray.remote(_Actor).options(**options)
        actor = kind.remote(self.packed, device, os.getcwd(), sys.path, str(copies_folder()))
        self.started = time.monotonic()
        return _Handle(actor, actor.next_message.remote())

    def send(self, worker: _Handle, envelope: tuple[int, object] | None) -> None:
        worker.actor.give.remote(envelope)

    def receive(self, workers: Sequence[_Handle]) -> list[tuple[_Handle, Message]]:
        by_reference = {worker.coming: worker for worker in workers}
        while True:
            try:
                ready = self.ray.wait(list(by_reference), num_returns=1, timeout=5)[0]
            except (self.ray.exceptions.RayError, OSError) as error:
                raise UserError(
                    f"the connection to the Ray cluster was lost: {first_line(error)}", run="the same command again"
                ) from None
            if ready:
                return [(worker := by_reference[reference], self._message(worker)) for reference in ready]
            if not any(worker.placed for worker in workers) and time.monotonic() - self.started > PATIENCE:
                free, all_of_it = (
                    ", ".join(f"{resources.get(name, 0):g} {name}" for name in ("CPU", "GPU"))
                    for resources in (self.ray.available_resources(), self.ray.cluster_resources())
                )
                raise UserError(
                    f"the Ray cluster has no room for an actor with 1 CPU and {self.share:g} GPU; it has "
                    f"{free} free of {all_of_it}",
                    run="ray status",
                )

    def stop(self, workers: Sequence[_Handle]) -> None:
        for worker in workers:
            with contextlib.suppress(self.ray.exceptions.RayError, OSError):
                self.ray.kill(worker.actor)

    def _message(self, worker: _Handle) -> Message:
        try:
            message: Message = self.ray.get(worker.coming)
            worker.placed = True
        except self.ray.exceptions.RayError as error:
            # Ray has no attributes for why an actor died and whether its machine is gone, only the text of its error.
            cause = re.search(r"(?:because|detail:|cause:)\s*(.+)", str(error))
            gone = re.search(r"\bnode (has died|is dead|was preempted)", str(error)) is not None
            died = cause[1].strip() if cause else first_line(error)
            # An actor that cannot be reached may still be alive; its task is not to blame.
            gone = gone or isinstance(error, self.ray.exceptions.ActorUnavailableError)
            message = Message(ended=True, died=died, lost=getattr(error, "preempted", False) or gone)
        if message.ended:
            self.stop([worker])
        else:
            worker.coming = worker.actor.next_message.remote()
        return message


class _Actor:
    """What runs on a machine of the cluster: the worker in a thread, and its messages in both directions."""

    def __init__(self, packed: bytes, device: str | None, folder: str, path: Sequence[str], copies: str) -> None:
        with contextlib.suppress(OSError):
            os.chdir(folder)  # for paths that the user gave relative to it
        os.environ.update(ONE_THREAD)
        os.environ["UNSWAYED_COPIES"] = copies  # so that a path in a working copy is the same object on every machine
        sys.path.extend(folder for folder in path if folder not in sys.path)  # for a worker of the user's own module
        self.inbox: queue.SimpleQueue[tuple[int, object] | None] = queue.SimpleQueue()
        self.outbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.outbox.put(Message())  # it has a machine
        arguments = (packed, device, self.inbox.get, self.outbox.put)
        threading.Thread(target=serve, args=arguments, daemon=True, name="serve").start()

    def give(self, envelope: tuple[int, object] | None) -> None:
        self.inbox.put(envelope)

    def next_message(self) -> Message:
        return self.outbox.get()


def _connected(address: str | None) -> ModuleType:
    """The module `ray`, connected to a cluster."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody
    import ray

    if not ray.is_initialized():
        given = address or os.environ.get("RAY_ADDRESS")
        try:
            host, _, port = (given or "").rpartition(":")
            if host and port.isdecimal() and "/" not in host:
                # Ray itself tries for minutes.
                socket.create_connection((host, int(port)), timeout=10).close()
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError) as error:
            raise UserError(
                f"there is no connection to the Ray cluster {given or 'on this machine'}: {first_line(error)}",
                run="ray status" if given is None else f"ray status --address {given}",
            ) from None
    return ray


class RayEngine:
    """Actors of a Ray cluster."""

    crew = Actors

    @staticmethod
    def cores(settings: EngineSettings) -> int:
        return max(1, int(_connected(settings.address).cluster_resources().get("CPU", 1)))

    @staticmethod
    def places(settings: EngineSettings) -> list[str]:
        """Every GPU of the cluster, `per_gpu` times, or else the given devices or every CPU."""
        wanted = settings.device is None or settings.device.startswith((GPU, "auto"))
        gpus = int(_connected(settings.address).cluster_resources().get("GPU", 0)) if wanted else 0
        if gpus:
            return [GPU] * (gpus * settings.per_gpu)
        return settings.device.split(",") if settings.device else ["cpu"] * RayEngine.cores(settings)

    @staticmethod
    def on_a_machine(settings: EngineSettings, places: Sequence[str]) -> int:
        """How many of the actors one machine of the cluster can have at the same time."""
        kind, each = ("GPU", settings.per_gpu) if places[0] == GPU else ("CPU", 1)
        nodes = [node["Resources"] for node in _connected(settings.address).nodes() if node["Alive"]]
        return min(len(places), max((int(node.get(kind, 0)) * each for node in nodes), default=1) or 1)
