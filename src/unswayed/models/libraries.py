"""Imports torchvision and timm in a third of the time; whatever needs one of them imports this first.

Both import torch's compiler, which takes longer than all the rest: torchvision for a function that only `roi_align`
calls, timm to mark functions that must not be compiled. timm also imports the client of Weights & Biases where that is
installed, for its own training script. Stand-ins take their places while timm is imported.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


def _is_compile_supported(device_type: str) -> bool:
    from torch._dynamo.utils import is_compile_supported

    return is_compile_supported(device_type)


def _disable(function: Function, recursive: bool = True, *, reason: str | None = None) -> Function:
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function


def _stand_in(name: str, **functions: Callable[..., object]) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(functions)
    return module


def _import_timm() -> None:
    stand_ins = {
        "torch._dynamo": _stand_in("torch._dynamo", disable=_disable),
        "torch._dynamo.utils": _stand_in("torch._dynamo.utils", is_compile_supported=_is_compile_supported),
        "wandb": None,  # so that its import fails, as where it is not installed
    }
    if stand_ins.keys() & sys.modules.keys():
        return
    sys.modules.update(stand_ins)  # type: ignore[arg-type]
    with contextlib.suppress(Exception):  # another version of timm needs more: it is imported again by who uses it
        importlib.import_module("timm")
    for name in stand_ins:
        sys.modules.pop(name, None)


_import_timm()
import timm  # noqa: E402, F401
import torchvision  # noqa: E402, F401
