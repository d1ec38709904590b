"""The names that a setting with a fixed list of values may have: for type checkers, `--help` and shell completion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from unswayed.errors import unknown

Frame = Literal["object", "center", "squash"]
RendererName = Literal["diffusion", "paste"]
SamplerName = Literal["auto", "ancestral", "ddim", "dpm", "dpm-sde"]
GuidanceName = Literal["paper", "released", "calibrated"]
Precision = Literal["fp32", "bf16", "fp16"]
Quality = Literal["strict", "report", "off"]
TransformName = Literal["own", "paper"]
Convention = Literal["default", "released"]
ClassColumn = Literal["label", "predicted"]
WideMeasure = Literal["drop", "accuracy"]
TableFormat = Literal["table", "csv", "json", "markdown", "latex"]


@dataclass(frozen=True)
class Option:
    """How the command line offers a field of a settings class: its help, metavar and name there, values to complete,
    the least number."""

    help: str
    metavar: str | None = None
    name: str | None = None
    values: Iterable[str] = ()
    least: int | None = None


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


def check_choice(kind: str, value: str, choices: Any) -> None:
    """Refuse a value that the Literal `choices` does not list.

    >>> check_choice("framing", "objekt", Frame)
    Traceback (most recent call last):
    unswayed.errors.UserError: there is no framing 'objekt'; did you mean 'object'?
    allowed: object, center, squash
    """
    if value not in get_args(choices):
        raise unknown(kind, value, get_args(choices))


def stored_frame(name: str) -> str:
    """The framing that a file names; older files spell `center` as `centre`."""
    return "center" if name == "centre" else name
