"""`run_tasks(worker, tasks)`: run tasks here, in processes or on a Ray cluster, and yield results as they finish.

`EngineSettings` says where the work of a long command runs, and on which devices networks run.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from unswayed.choices import DEVICES, check_settings, option
from unswayed.errors import UserError, unknown
from unswayed.registry import Part, Registry

from .scheduling import Counted, Crew, Here, Outcome, Schedule, Watch, WorkerState, attempt

if TYPE_CHECKING:
    import torch

__all__ = ["ENGINES", "EngineSettings", "Outcome", "Watch", "WorkerState", "engine_of", "run_tasks"]


class Engine(Protocol):
    """Where the workers of a run are."""

    def crew(self, packed: bytes, places: Sequence[str | None], settings: EngineSettings) -> Crew:
        """What starts workers in these places; packed: the pickled worker."""

    def cores(self, settings: EngineSettings) -> int:
        """How many CPU cores there are."""

    def places(self, settings: EngineSettings) -> list[str]:
        """The devices of the workers: those given; by default every GPU (each named `cuda` where only other machines
        know which there are), else the CPU, or every CPU of a cluster."""

    def on_a_machine(self, settings: EngineSettings, places: Sequence[str]) -> int:
        """How many of the workers in these places share the cores of one machine."""


# facts: `this_process`: a single worker may run in this process; `address`: the engine is reached at an address.
_BUILT_IN = {
    "local": Part("unswayed.jobs.processes:LocalEngine", "processes of this machine", facts={"this_process": True}),
    "ray": Part(
        "unswayed.jobs.ray_cluster:RayEngine", "a Ray cluster", needs=("ray",), extra="ray", facts={"address": True}
    ),
}
ENGINES: Registry[Engine] = Registry("engine", _BUILT_IN)


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Where the work runs; none of these settings changes a result.

    device: one or several names separated by commas, one process each; None is every visible GPU, or else the CPU.
    per_gpu: with several processes per GPU each gets its share of it. shard: `3/16` is the third of sixteen disjoint
    parts; several parts may write into one folder at the same time.
    """

    engine: str = option(
        "local",
        "Where the work runs: on this machine or on a Ray cluster.",
        metavar="|".join(_BUILT_IN),
        values=ENGINES,
    )
    address: str | None = option(
        None, "The Ray cluster [default: $RAY_ADDRESS, otherwise one on this machine].", metavar="HOST:PORT"
    )
    shard: str | None = option(
        None, "Only part I of N disjoint parts of the photographs; for job arrays.", metavar="I/N"
    )
    per_gpu: int = option(1, "Processes that share one GPU.", metavar="N", least=1)
    device: str | None = option(None, DEVICES)

    def __post_init__(self) -> None:
        self.part(())  # refuses a shard that is none
        if self.engine not in ENGINES:
            raise unknown("engine", self.engine, ENGINES)
        if self.address is not None and not ENGINES.part(self.engine).facts.get("address"):
            reached = [name for name in ENGINES if ENGINES.part(name).facts.get("address")]
            raise UserError(
                f"the engine {self.engine} has no address, and {self.address} is given",
                allowed=f"an address for the engine {' or '.join(reached)}",
            )
        check_settings(self)

    @property
    def parts(self) -> tuple[int, int]:
        """The number of the part that this run makes, from 1 on, and how many parts there are.

        >>> EngineSettings(shard="3/16").parts, EngineSettings().parts
        ((3, 16), (1, 1))
        """
        number, _, count = ("1/1" if self.shard is None else self.shard).partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise UserError(f"the shard is '{self.shard}'", allowed="I/N with I from 1 to N, such as 3/16")
        return int(number), int(count)

    def part(self, ids: Sequence[str]) -> list[str]:
        """The ids that belong to this shard, in their order; all of them without a shard.

        >>> parts = [EngineSettings(shard=f"{i}/2").part(["ant", "bee", "cat", "dog"]) for i in (1, 2)]
        >>> sorted(parts[0] + parts[1])
        ['ant', 'bee', 'cat', 'dog']
        """
        number, count = self.parts
        # By hash, so that the parts are of equal size and each holds all classes, in whatever order the ids come.
        ranked = sorted(ids, key=lambda item: (hashlib.blake2b(item.encode(), digest_size=8).digest(), item))
        ours = set(ranked[number - 1 :: count])
        return [item for item in ids if item in ours]


_TYPES = ("cpu", "cuda", "mps")


def choose_device(name: str | None = None) -> torch.device:
    """The named device; by default the first GPU of NVIDIA or Apple, else the CPU."""
    import torch

    if name in (None, "auto"):
        return torch.device(choose_devices()[0].partition(":")[0])
    try:
        device = torch.device(str(name))
    except RuntimeError:
        device = None
    if device is None or device.type not in _TYPES:
        raise UserError(f"device is '{name}'", allowed="auto, cpu, cuda, cuda:1, mps")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UserError(f"device is '{name}', but torch {torch.__version__} sees no Apple GPU here", allowed="cpu")
    if device.type == "cuda" and not torch.cuda.device_count():  # unlike `is_available`, it does not start the driver
        raise UserError(
            f"device is '{name}', but torch {torch.__version__} sees no GPU here", allowed="cpu", run="nvidia-smi"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device is '{name}'", allowed=f"cuda:0 to cuda:{torch.cuda.device_count() - 1}")
    return device


def choose_devices(names: str | None = None, per_gpu: int = 1) -> list[str]:
    """One device name for each process: those given, separated by commas; by default every visible GPU, else the CPU.

    per_gpu: how many processes share each GPU.

    >>> choose_devices("cpu,cpu")
    ['cpu', 'cpu']
    """
    import torch

    if names in (None, "auto"):
        other = "mps" if torch.backends.mps.is_available() else "cpu"
        devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())] or [other]
    else:
        devices = [str(choose_device(name.strip())) for name in str(names).split(",")]
    return [name for name in devices for _ in range(per_gpu if name.startswith("cuda") else 1)]


def device_at(device: str | None, asked: str | None) -> str | None:
    """The device for a model that is opened at `device`, that of a worker process, or None in this process.

    asked: what the user asked for. If that is nothing, a GPU is made the current one and None is returned: a model that
    cannot use a GPU would refuse a named one.
    """
    if asked is not None:
        return device or asked.partition(",")[0]
    if device is not None and device.startswith("cuda"):
        import torch

        if ":" in device:  # an actor of a Ray cluster sees only its own GPU, which is the current one
            torch.cuda.set_device(device)
        return None
    return device


Task = TypeVar("Task")


def run_tasks(
    worker: Any,
    tasks: Iterable[Task],
    workers: int = 1,
    settings: EngineSettings | None = None,
    *,
    devices: Sequence[str] = (),
    apart: bool = False,
    watch: Watch | None = None,
    counted: Counted | None = None,
) -> Iterator[Outcome[Task, Any]]:
    """One `Outcome` for every task, in the order in which they finish; tasks are begun in the order given.

    worker: a picklable callable. Each process gets it once, so what it loads for its first task is kept for the next.
        It is called with a task. If it has a method `stream(tasks)`, that is called instead, with an iterator of
        tasks, and yields an `Outcome` for each in any order; so it can prepare tasks before it finishes others. Its
        tasks must be hashable.
    workers: how many processes. One runs in this process, task by task, as the results are requested, unless `apart`.
    settings: the engine. Its shard is not applied here: the caller selects the tasks with `settings.part`.
    devices: one process for each of these devices instead of `workers`; the worker is called with `device=NAME` too.
        `engine_of(settings).places(settings)` are those of the engine.
    apart: also a single worker has a process for itself, so that one that crashes costs only its task.
    watch: is called with the states of all processes, this one if it does the work, when one of them changes.
    counted: is called with what a worker passes to its attribute `counted`, if it has one: how much more of a task is
        done. What was counted for a task that failed is counted back.

    A UserError of a worker ends the run and is raised here. A task that raises another exception, or whose process
    dies (killed, out of memory, crashed, its machine lost), is repeated, and if it fails again, the outcome has the
    reason and the run goes on.

    >>> [outcome.result for outcome in run_tasks(abs, [-1, -2])]
    [1, 2]
    """
    from .processes import preload

    if workers < 1:
        raise UserError(f"the number of workers is {workers}", allowed="1 or more")
    places: Sequence[str | None] = devices or [None] * workers
    here = len(places) == 1 and (settings is None or ENGINES.part(settings.engine).facts.get("this_process", False))
    packed = None if here and not apart else _packed(worker, optional=here)
    if packed is not None:
        preload(worker)
        settings = settings or EngineSettings()
        crew = ENGINES.load(settings.engine).crew(packed, places, settings)
        return Schedule(crew, tasks, watch, counted).run()
    process = Here(places[0] or "this process", places[0], watch)
    if counted is not None and hasattr(worker, "counted"):

        def count(more: int) -> None:
            counted(more)
            process.tell()

        worker.counted = count
    return _run_here(worker, tasks, process)


def engine_of(settings: EngineSettings) -> Engine:
    """The engine of the settings, which knows its cores and devices.

    >>> settings = EngineSettings(device="cpu,cpu")
    >>> engine_of(settings).places(settings)
    ['cpu', 'cpu']
    """
    return ENGINES.load(settings.engine)


def _packed(worker: object, optional: bool) -> bytes | None:
    """The pickled worker; optional: None where a process that has not run the user's script cannot receive it."""
    from .processes import defined_in_script

    try:
        packed = pickle.dumps(worker)
    except Exception:
        if not optional:
            raise
        return None
    return None if optional and defined_in_script(packed) else packed


def _run_here(worker: object, tasks: Iterable[Task], process: Here) -> Iterator[Outcome[Task, object]]:
    keywords = {} if process.device is None else {"device": process.device}

    def one_by_one() -> Iterator[Outcome[Task, object]]:
        for task in tasks:
            result, failure = attempt(worker, task, keywords)
            yield Outcome(task, *((result, None) if failure is None else attempt(worker, task, keywords)))

    process.tell()
    for outcome in worker.stream(iter(tasks), **keywords) if hasattr(worker, "stream") else one_by_one():
        process.tell(finished=1)
        yield outcome
