"""Settings: the names that a setting may have, how the command line offers it, and how Python takes it as a keyword.

A settings class is a frozen dataclass of the room that uses it. Its fields are written once: a command gets an option
for each field that is declared with `option`, and a function decorated with `takes` gets a keyword for each field.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections import ChainMap, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, field, fields
from pathlib import PurePath
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from unswayed.errors import UserError, unknown

Frame = Literal["object", "center", "squash"]
SamplerName = Literal["auto", "ancestral", "ddim", "dpm", "dpm-sde"]
GuidanceName = Literal["paper", "released", "calibrated"]
Precision = Literal["fp32", "bf16", "fp16"]
Quality = Literal["strict", "report", "off"]
TransformName = Literal["own", "paper"]
Convention = Literal["default", "released"]
ClassColumn = Literal["label", "predicted"]
WideMeasure = Literal["drop", "accuracy"]
Draw = Literal["worst", "even"]
LeftOut = Literal["doubted"]
TableFormat = Literal["table", "csv", "json", "markdown", "latex"]


@dataclass(frozen=True)
class Option:
    """How the command line offers a field of a settings class.

    help: one sentence, or a function that returns it; `{values}` in it is replaced by the values. flags: its names,
    where they are not that of the field. values: what the shell completes, such as a registry, or a function that
    returns it. least, most: the range of a number. read: makes the field's value of the text, or of the
    list of texts for a field that holds several. panel: of the help, with a title of its own.
    """

    help: str | Callable[[], str]
    metavar: str | None = None
    flags: tuple[str, ...] = ()
    values: Iterable[str] | Callable[[], Iterable[str]] = ()
    least: float | None = None
    most: float | None = None
    read: Callable[..., object] | None = None
    panel: str | None = None

    @property
    def range(self) -> str:
        """The numbers that are allowed, in words; empty for any."""
        if self.least is None:
            return ""
        return f"{self.least:g} or more" if self.most is None else f"{self.least:g} to {self.most:g}"

    def all_values(self) -> list[str]:
        return list(self.values() if callable(self.values) else self.values)

    def text(self) -> str:
        """The help with the list of values."""
        help = self.help() if callable(self.help) else self.help
        return help.replace("{values}", ", ".join(f"`{value}`" for value in self.all_values()))


T = TypeVar("T")


def option(default: T, help: str | Callable[[], str] | Option, *details: Any, **named: Any) -> T:
    """Return the field of a settings class with this default; help: and the details of an `Option`, or a whole one that
    several classes share."""
    declared = help if isinstance(help, Option) else Option(help, *details, **named)
    setting: T = field(default=default, metadata={"option": declared})
    return setting


LEAVE_OUT = Option("Leave out photographs whose masks are doubted: a warning, or a low confidence.")
# Not a list of choices: a machine may have any number of GPUs.
DEVICE = Option(
    "Where networks run [default: the first GPU, otherwise the CPU].",
    metavar="cpu|cuda|cuda:N|mps",
    values=("cpu", "cuda", "cuda:0", "cuda:1", "mps"),
)
# The same for commands that use several devices at once.
DEVICES = Option(
    "Where networks run, several separated by commas [default: every GPU, otherwise the CPU].",
    metavar=DEVICE.metavar,
    values=DEVICE.values,
)


def check_choice(kind: str, value: str, choices: object) -> None:
    """Refuse a value that the Literal `choices` does not list.

    >>> check_choice("framing", "objekt", Frame)
    Traceback (most recent call last):
    unswayed.errors.UserError: there is no framing 'objekt'; did you mean 'object'?
    allowed: object, center, squash
    """
    if value not in get_args(choices):
        raise unknown(kind, value, get_args(choices))


@functools.cache
def offered(kind: Any) -> tuple[tuple[Field[object], object, Option], ...]:
    """Each field of a settings class that has an option, with its type and that option."""
    # The names that a module imports only for type checkers stand for `object`.
    names = ChainMap(*(vars(sys.modules[base.__module__]) for base in kind.__mro__), defaultdict(lambda: object))
    hints = get_type_hints(kind, localns=names)
    declared: tuple[Field[object], ...] = fields(kind)
    return tuple((item, hints[item.name], item.metadata["option"]) for item in declared if "option" in item.metadata)


def check_settings(settings: Any) -> None:
    """Refuse a value that its field does not allow: a name that its Literal does not list, a number out of its range.

    >>> @dataclass(frozen=True)
    ... class Framing:
    ...     frame: Frame | None = option(None, "How photographs are framed.")
    ...     runs: int = option(1, "How many.", least=1)
    >>> check_settings(Framing(runs=0))
    Traceback (most recent call last):
    unswayed.errors.UserError: the setting runs is 0
    allowed: 1 or more
    """
    for declared, kind, offer in offered(settings.__class__):
        value = getattr(settings, declared.name)
        literals = [member for member in (kind, *get_args(kind)) if get_origin(member) is Literal]
        if isinstance(value, str) and literals:
            check_choice(declared.name.replace("_", " "), value, literals[0])
        least, most = offer.least, offer.most
        if isinstance(value, int | float) and least is not None and not least <= value <= (most or float("inf")):
            raise UserError(f"the setting {declared.name} is {value}", allowed=offer.range)


A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
Settings = TypeVar("Settings")
Result = TypeVar("Result", covariant=True)
Fields = ParamSpec("Fields")
Others = ParamSpec("Others")
Whole = ParamSpec("Whole")


class Takes(Protocol[Whole, Fields, Result]):
    """A function that takes its settings as an object, or the object's fields as keywords."""

    @overload
    def __call__(self, *args: Whole.args, **kwargs: Whole.kwargs) -> Result: ...
    @overload
    def __call__(self, *args: Fields.args, **kwargs: Fields.kwargs) -> Result: ...


class takes(Generic[Fields, Settings]):
    """Decorate a function whose parameter `settings` is of this class: it also takes the fields as keywords.

    Type checkers and `help` show the fields with their types.

    >>> @dataclass(frozen=True)
    ... class Greeting:
    ...     word: str = "hello"
    >>> @takes(Greeting)
    ... def greet(name: str, settings: Greeting) -> str:
    ...     return f"{settings.word} {name}"
    >>> greet("Ann"), greet("Ann", word="bye"), greet("Ann", Greeting(word="bye"))
    ('hello Ann', 'bye Ann', 'bye Ann')
    """

    def __init__(self, settings: Callable[Fields, Settings]) -> None:
        self.settings = settings

    @overload
    def __call__(
        self, function: Callable[Concatenate[A, B, C, Settings, Others], Result]
    ) -> Takes[Concatenate[A, B, C, Settings, Others], Concatenate[A, B, C, Fields], Result]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[A, B, Settings, Others], Result]
    ) -> Takes[Concatenate[A, B, Settings, Others], Concatenate[A, B, Fields], Result]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[A, Settings, Others], Result]
    ) -> Takes[Concatenate[A, Settings, Others], Concatenate[A, Fields], Result]: ...
    def __call__(self, function: Callable[..., object]) -> object:
        own = inspect.signature(function).parameters
        position = list(own).index("settings")
        names = [field.name for field in fields(self.settings) if field.init]  # type: ignore[arg-type]

        @functools.wraps(function)
        def called(*arguments: object, **keywords: Any) -> object:
            values = {name: keywords.pop(name) for name in names if name in keywords and name not in own}
            for name in keywords:
                if name not in own:
                    raise unknown("setting", name, [*names, *(other for other in own if other != "settings")])
            if len(arguments) <= position and keywords.get("settings") is None:
                keywords["settings"] = self.settings(**values)  # type: ignore[call-arg]
            elif values:
                raise UserError(f"both settings and {', '.join(values)} are given", allowed="one of them")
            check_settings(keywords["settings"] if "settings" in keywords else arguments[position])
            return function(*arguments, **keywords)

        of_fields = inspect.signature(self.settings).parameters.values()
        before = [parameter for parameter in own.values() if parameter.name != "settings"]
        after = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in of_fields if parameter.name not in own]
        called.__signature__ = inspect.Signature([*before, *after])  # type: ignore[attr-defined]
        return called


LINE = 120


class OneLine:
    """A dataclass of results with `repr=False`: its `repr` fits in one line, with the size of what is long.

    >>> @dataclass(frozen=True, repr=False)
    ... class Result(OneLine):
    ...     name: str
    ...     rows: list[int]
    >>> Result("bench", list(range(1000)))
    Result(name='bench', rows=<1000>)
    """

    def __repr__(self: Any) -> str:
        parts = (f"{field.name}={_short(getattr(self, field.name))}" for field in fields(self) if field.repr)
        text = f"{type(self).__name__}({', '.join(parts)})"
        return text if len(text) <= LINE else f"{text[: LINE - 2]}…)"


def _short(value: object) -> str:
    value = str(value) if isinstance(value, PurePath) else value
    if isinstance(value, str | int | float | None) or not hasattr(value, "__len__"):
        text = repr(value)
        return text if len(text) <= 40 and "\n" not in text else f"{text.splitlines()[0][:39]}…"
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"<{' x '.join(map(str, shape))}>"
    text = repr(value) if len(value) <= 4 else ""
    return text if text and len(text) <= 40 and "\n" not in text else f"<{len(value)}>"
