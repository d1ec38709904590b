"""The registry: every kind of part (edits, sources, models, removals, …) is one table of lazily loaded declarations.

A room declares its own parts in a `Registry`; other installed packages add theirs as entry points of the group
`unswayed.<kind>s`. Lists in help texts, docs and error messages come from here.
"""

from __future__ import annotations

import functools
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from unswayed.errors import UserError, missing, need, unknown

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """What is known of a part before it is loaded.

    target: `module:name` of the object. help: one line for help texts. usage: how a user writes it, such as
    `folder:PATH`; its name by default. needs: the packages without which it cannot run, `extra`: what installs them.
    runs_code: opening it may run a program of somebody else; uses_network: it may use the network. facts: what else
    the kind wants to know before the part is loaded.
    """

    target: str
    help: str = ""
    usage: str = ""
    needs: tuple[str, ...] = ()
    extra: str = ""
    runs_code: bool = False
    uses_network: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    def missing(self) -> list[str]:
        """The needed packages that are not installed."""
        return missing(self.needs)


def declare(**about: object) -> Callable[[T], T]:
    """Decorate what an entry point names with the fields of a `Part`: `@declare(help="…", runs_code=False)`; without
    it the part may run code and use the network, and its help is the first line of its docstring."""

    def decorated(thing: T) -> T:
        thing.declaration = about  # type: ignore[attr-defined]
        return thing

    return decorated


class Registry(Generic[T]):
    """The parts of one kind by name: the built-in ones in their order, then those of installed packages.

    >>> colors = Registry[str]("color", {"red": Part("string:digits", "warm"), "blue": Part("string:hexdigits")})
    >>> colors.names(), colors.load("red")
    (['red', 'blue'], '0123456789')
    >>> colors.load("rde")
    Traceback (most recent call last):
    unswayed.errors.UserError: there is no color 'rde'; did you mean 'red'?
    allowed: red, blue
    """

    def __init__(
        self,
        kind: str,
        parts: Mapping[str, Part],
        *,
        group: str | None = None,
        check: Callable[[str, object], str | None] | None = None,
        run: str | None = None,
    ):
        """kind: the singular noun of messages. group: of the entry points, `unswayed.<kind>s` if None. check: returns
        what an outside object should be, None if it is. run: the command that lists the parts."""
        self.kind, self.group = kind, group or f"unswayed.{kind.replace(' ', '_')}s"
        self._own, self._check, self._run = dict(parts), check, run

    @property
    def _outside(self) -> dict[str, EntryPoint]:
        points = _entry_points(self.group, tuple(sys.path))
        return {point.name: point for point in points if point.name not in self._own}

    def names(self) -> list[str]:
        return [*self._own, *self._outside]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def is_own(self, name: str) -> bool:
        """Whether the part belongs to this package."""
        return name in self._own

    def part(self, name: str) -> Part:
        """The declaration; that of an installed package is read from its object, which is loaded for it."""
        if name in self._own:
            return self._own[name]
        thing = self.load(name)
        about = getattr(thing, "declaration", {"runs_code": True, "uses_network": True})
        first_line = (getattr(thing, "__doc__", None) or "").strip().partition("\n")[0]
        return Part(self._outside[name].value, **{"help": first_line, **about})

    def usages(self) -> list[str]:
        """How each part is written, for lists of what is allowed."""
        return [(self._own[name].usage if name in self._own else "") or name for name in self.names()]

    def find(self, spec: str) -> tuple[str, str, Part]:
        """The name in `name` or `name:detail`, the detail, and the declaration, whose usage says if it takes one."""
        name, _, detail = spec.partition(":")
        part = self.part(name)
        if detail and ":" not in part.usage:
            raise UserError(f"the {self.kind} is '{spec}'", allowed=", ".join(self.usages()))
        return name, detail, part

    def require(self, name: str) -> Part:
        """The declaration; raises UserError if the name is unknown or a package that it needs is missing."""
        if name not in self._own and name not in self._outside:
            raise unknown(self.kind, name, self.names(), run=self._run)
        part = self.part(name)
        if name in self._own and part.needs:
            need(part.extra or name, *part.needs)
        return part

    def load(self, name: str) -> T:
        """The object itself; raises UserError as `require` does."""
        if name not in self._outside:
            return cast(T, pkgutil.resolve_name(self.require(name).target))
        point = self._outside[name]
        try:
            thing = point.load()
        except Exception as error:
            raise UserError(
                f"the {self.kind} '{name}' of an installed package cannot be loaded: {type(error).__name__}: {error}",
                allowed=f"an entry point of the group {self.group} that can be imported ({point.value})",
            ) from error
        if self._check is not None and (expected := self._check(name, thing)) is not None:
            raise UserError(f"the entry point {name} = {point.value} is no {self.kind}", allowed=expected)
        return cast(T, thing)


@functools.cache
def _entry_points(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The entry points of a group in the packages on this `sys.path`, which take a hundredth of a second to find."""
    return tuple(entry_points(group=group))
