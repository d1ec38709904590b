"""`EngineSettings`: where the work of a long command runs. The settings classes of these commands inherit from it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from unswayed.choices import DEVICES, EngineName, Option, check_choice
from unswayed.errors import UserError


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Where the work runs; none of these settings changes a result.

    device: one or several names separated by commas, one process each; None is every visible GPU, or else the CPU.
    per_gpu: with several processes per GPU each gets its share of it. shard: `3/16` is the third of sixteen disjoint
    parts; several parts may write into one folder at the same time.
    """

    engine: Annotated[EngineName, Option("Where the work runs: on this machine or on a Ray cluster.")] = "local"
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
        check_choice("engine", self.engine, EngineName)
        if self.address is not None and self.engine != "ray":
            raise UserError(
                f"the address {self.address} is of no use to the engine {self.engine}", allowed="engine ray"
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
        ranked = sorted(ids, key=lambda one: (hashlib.blake2b(one.encode(), digest_size=8).digest(), one))
        ours = set(ranked[number - 1 :: count])
        return [one for one in ids if one in ours]


def shard_of(text: str) -> tuple[int, int]:
    """
    >>> shard_of("3/16")
    (3, 16)
    """
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise UserError(f"the shard is '{text}'", allowed="I/N with I from 1 to N, such as 3/16")
    return int(number), int(count)
