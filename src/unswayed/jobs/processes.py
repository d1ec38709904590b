"""Workers in processes of this machine, each with one thread of torch and OpenCV.

On Linux, a server process imports what the first worker needs and is copied for each process, so that a new one starts
in a fraction of a second. Elsewhere a process with libraries cannot be copied safely, and each imports them itself.

A process receives the worker once, then one task whenever it wants one. When the parent is gone, the pipe closes and
the process ends, so a killed run leaves no process behind.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker, spawn
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from . import EngineSettings, choose_devices
from .scheduling import Message, serve

# Two torch threads on one core are many times slower than one, so each worker has one thread.
LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
ONE_THREAD = dict.fromkeys(LIBRARIES, "1")
START = "forkserver" if sys.platform == "linux" else "spawn"
# What a new process inherits is set for a moment, which two threads must not do at the same time.
_STARTING = threading.Lock()
SLOW_IMPORTS = ("torch", "torchvision", "timm", "cv2", "pyarrow.parquet", "scipy.special")


@dataclass(eq=False)
class _Process:
    process: BaseProcess
    pipe: Connection

    def message(self) -> Message:
        """The next message, which there is; the cause of its death where the pipe is closed."""
        try:
            message: Message = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            cause = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
            message = Message(ended=True, died=cause + ", most likely out of memory" * (cause == "SIGKILL"))
        if message.ended:
            self.pipe.close()
            self.process.join()
        return message


class LocalEngine:
    """Processes of this machine."""

    @staticmethod
    def crew(packed: bytes, places: Sequence[str | None], settings: EngineSettings) -> Processes:
        return Processes(packed, places)

    @staticmethod
    def cores(settings: EngineSettings) -> int:
        return os.cpu_count() or 1

    @staticmethod
    def places(settings: EngineSettings) -> list[str]:
        return choose_devices(settings.device, settings.per_gpu)

    @staticmethod
    def on_a_machine(settings: EngineSettings, places: Sequence[str]) -> int:
        return len(places)


class Processes:
    """A crew of processes; packed: the pickled worker; places: one process for each, told its device."""

    def __init__(self, packed: bytes, places: Sequence[str | None]) -> None:
        self.packed, self.places = packed, places

    def start(self, device: str | None) -> _Process:
        ours, theirs = multiprocessing.Pipe()
        kind: Any = multiprocessing.get_context(START)
        with _inherited(), contextlib.nullcontext() if defined_in_script(self.packed) else _without_script():
            # The server keeps the environment that it was started in, so the current one is sent.
            process = kind.Process(target=_main, args=(theirs, device, dict(os.environ)), daemon=True)
            process.start()
        theirs.close()
        with contextlib.suppress(OSError):  # it has died already, which its closed pipe shows
            ours.send_bytes(self.packed)
        return _Process(process, ours)

    def send(self, worker: _Process, envelope: tuple[int, object] | None) -> None:
        with contextlib.suppress(OSError):
            worker.pipe.send(envelope)

    def receive(self, workers: Sequence[_Process]) -> list[tuple[_Process, Message]]:
        ready = set(map(id, wait([worker.pipe for worker in workers])))
        return [(worker, worker.message()) for worker in workers if id(worker.pipe) in ready]

    def stop(self, workers: Sequence[_Process]) -> None:
        """Close every pipe, which ends the processes at once."""
        for worker in workers:
            worker.pipe.close()
        for worker in workers:
            worker.process.join(timeout=5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


@contextlib.contextmanager
def _without_script() -> Iterator[None]:
    """A block in which this thread starts processes that do not run the user's script again.

    So a script that calls us needs no `if __name__ == "__main__"`.
    """
    prepare, thread = spawn.get_preparation_data, threading.get_ident()

    def prepared(name: str) -> dict[str, object]:
        data = prepare(name)
        own = threading.get_ident() == thread
        return {key: data[key] for key in data if not (own and key.startswith("init_main_"))}

    spawn.get_preparation_data = prepared
    try:
        yield
    finally:
        spawn.get_preparation_data = prepare


def preload(worker: object) -> list[str]:
    """Let the server import the module of a worker, and what is slow to import and was imported here, before it is
    copied; this has an effect only until the server has started. A worker, or its class, may list its `imports` itself
    instead."""
    slow = getattr(worker, "imports", None) or [name for name in SLOW_IMPORTS if name in sys.modules]
    modules = [str(getattr(worker, "__module__", None) or __name__), *slow]
    multiprocessing.set_forkserver_preload(modules)
    return modules


def start_server(modules: Iterable[str]) -> None:
    """Start the server before its first process is needed, so that it imports beside what this process does."""
    if START == "forkserver":
        multiprocessing.set_forkserver_preload(list(modules))
        with _inherited():
            forkserver.ensure_running()


def _main(pipe: Connection, device: str | None, environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    if "cv2" in sys.modules:  # imported by the server, perhaps before it could read the number of threads
        sys.modules["cv2"].setNumThreads(1)
    multiprocessing.current_process().daemon = False  # so that it may have worker processes of its own
    if not hasattr(signal, "pthread_sigmask"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `_inherited` does elsewhere
    inbox: queue.SimpleQueue[tuple[int, object] | None] = queue.SimpleQueue()
    lock = threading.Lock()

    def listen() -> None:
        """Put tasks into the inbox; end this process, whatever it is doing, when the parent is gone."""
        try:
            while True:
                inbox.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(1)

    def send(message: Message) -> None:
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        with lock, contextlib.suppress(OSError):
            pipe.send_bytes(data)

    try:
        packed = pipe.recv_bytes()
    except (EOFError, OSError):  # the parent is gone already
        os._exit(1)
    threading.Thread(target=listen, daemon=True, name="listen").start()
    serve(packed, device, inbox.get, send)
    os._exit(0)  # without waiting for threads and libraries


def defined_in_script(packed: bytes) -> bool:
    """Whether a pickled worker needs something that is defined in the user's script."""
    return b"__main__" in packed


@contextlib.contextmanager
def _inherited() -> Iterator[None]:
    """Set what a new process inherits: the number of threads, which libraries read when they are first imported, and
    the blocked signal of Ctrl-C, which reaches only the parent; that then ends its processes."""
    with _STARTING:
        before = {name: os.environ[name] for name in ONE_THREAD if name in os.environ}
        masks = hasattr(signal, "pthread_sigmask")  # not on Windows
        if masks:
            resource_tracker.ensure_running()  # its first start would unblock the signal
            signals = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        os.environ.update(ONE_THREAD)
        try:
            yield
        finally:
            for name in ONE_THREAD.keys() - before.keys():
                os.environ.pop(name, None)
            os.environ.update(before)
            if masks:
                signal.pthread_sigmask(signal.SIG_SETMASK, signals)
