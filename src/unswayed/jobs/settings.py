"""`EngineSettings`: where the work of a long command runs, and the devices that networks run on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol

from unswayed.choices import DEVICES, Option
from unswayed.errors import UserError, unknown
from unswayed.registry import Part, Registry

if TYPE_CHECKING:
    import torch

    from .scheduling import Crew


class Engine(Protocol):
    """Where the workers of a run are."""

    def crew(self, packed: bytes, places: Sequence[str | None], settings: EngineSettings) -> Crew:
        """What starts workers in these places; packed: the pickled worker."""

    def cores(self, settings: EngineSettings) -> int:
        """How many CPU cores there are."""

    def places(self, settings: EngineSettings) -> list[str]:
        """The devices of the workers: those given; by default every GPU, else the CPU, or every CPU of a cluster. Which
        GPUs there are is known only on the machines of a Ray cluster, so there each is named `cuda`."""

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

    engine: Annotated[
        str,
        Option(
            "Where the work runs: on this machine or on a Ray cluster.", metavar="|".join(_BUILT_IN), values=ENGINES
        ),
    ] = "local"
    address: Annotated[
        str | None,
        Option("The Ray cluster [default: $RAY_ADDRESS, otherwise one on this machine].", metavar="HOST:PORT"),
    ] = None
    shard: Annotated[
        str | None, Option("Only part I of N disjoint parts of the photographs; for job arrays.", metavar="I/N")
    ] = None
    per_gpu: Annotated[int, Option("Processes that share one GPU.", metavar="N", least=1)] = 1
    device: Annotated[str | None, DEVICES] = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise unknown("engine", self.engine, ENGINES)
        if self.address is not None and not ENGINES.part(self.engine).facts.get("address"):
            reached = [name for name in ENGINES if ENGINES.part(name).facts.get("address")]
            raise UserError(
                f"the engine {self.engine} has no address, and {self.address} is given",
                allowed=f"an address for the engine {' or '.join(reached)}",
            )
        if self.per_gpu < 1:
            raise UserError(f"{self.per_gpu} processes per GPU", allowed="1 or more")
        if self.shard is not None:
            shard_of(self.shard)

    def part(self, ids: Sequence[str]) -> list[str]:
        """The ids that belong to this shard, in their order; all of them without a shard.

        >>> parts = [EngineSettings(shard=f"{i}/2").part(["ant", "bee", "cat", "dog"]) for i in (1, 2)]
        >>> sorted(parts[0] + parts[1])
        ['ant', 'bee', 'cat', 'dog']
        """
        if self.shard is None:
            return list(ids)
        number, count = shard_of(self.shard)
        # By hash, so that the parts are of equal size and each holds all classes, in whatever order the ids come.
        ranked = sorted(ids, key=lambda item: (hashlib.blake2b(item.encode(), digest_size=8).digest(), item))
        ours = set(ranked[number - 1 :: count])
        return [item for item in ids if item in ours]


def shard_of(text: str) -> tuple[int, int]:
    """
    >>> shard_of("3/16")
    (3, 16)
    """
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise UserError(f"the shard is '{text}'", allowed="I/N with I from 1 to N, such as 3/16")
    return int(number), int(count)


_TYPES = ("cpu", "cuda", "mps")


def choose_device(name: str | None = None) -> torch.device:
    """The named device; by default the first GPU, else the CPU."""
    import torch

    if name in (None, "auto"):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(str(name))
    except RuntimeError:
        device = None
    if device is None or device.type not in _TYPES:
        raise UserError(f"device is '{name}'", allowed="auto, cpu, cuda, cuda:1, mps")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UserError(f"device is '{name}', but torch {torch.__version__} sees no Apple GPU here", allowed="cpu")
    if device.type == "cuda" and not torch.cuda.is_available():
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
        found = [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cpu"]
    else:
        found = [str(choose_device(name.strip())) for name in str(names).split(",")]
    return [name for name in found for _ in range(per_gpu if name.startswith("cuda") else 1)]


def device_at(place: str | None, asked: str | None) -> str | None:
    """The device for a model that is opened at `place`, the device of a worker process, or None in this process.

    asked: what the user asked for. If that is nothing, a GPU is made the current one and None is returned: a model that
    cannot use a GPU would refuse a named one.
    """
    if asked is not None:
        return place or asked.partition(",")[0]
    if place is not None and place.startswith("cuda"):
        import torch

        if ":" in place:  # an actor of a Ray cluster sees only its own GPU, which is the current one
            torch.cuda.set_device(place)
        return None
    return place
