"""The names that a setting with a fixed list of values may have: for type checkers, `--help` and shell completion."""

from __future__ import annotations

from typing import Any, Literal, get_args

from .errors import unknown

Frame = Literal["object", "center", "squash"]
RendererName = Literal["diffusion", "paste"]
SamplerName = Literal["auto", "ancestral", "ddim", "dpm", "dpm-sde"]
GuidanceName = Literal["paper", "released", "calibrated"]
Precision = Literal["fp32", "bf16", "fp16"]
Quality = Literal["strict", "report", "off"]
EngineName = Literal["local"]
TransformName = Literal["own", "paper"]
TableFormat = Literal["table", "csv", "json", "markdown", "latex"]


def check_choice(kind: str, value: str, choices: Any) -> None:
    """Refuse a value that the Literal `choices` does not list.

    >>> check_choice("framing", "objekt", Frame)
    Traceback (most recent call last):
    unfazed.errors.UserError: there is no framing 'objekt'; did you mean 'object'?
    allowed: object, center, squash
    """
    if value not in get_args(choices):
        raise unknown(kind, value, get_args(choices))


def stored_frame(name: str) -> str:
    """The framing that a file names; older files spell `center` as `centre`."""
    return "center" if name == "centre" else name
