"""The weights of a network: read its file's tensors, check them and load them into the module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from unswayed.errors import UserError
from unswayed.files.tensor_files import read_tensor_file

_NESTS = ("state_dict", "model", "ema")


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Name -> tensor, on the CPU, in the file's own precision."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"there is no weights file {path}", run="unswayed weights")
    found = read_tensor_file(path, run="unswayed weights fetch NAME, or copy the file again")
    for nest in _NESTS:
        if isinstance(found, dict) and isinstance(found.get(nest), dict):
            found = found[nest]
    if not isinstance(found, dict) or not found or not all(isinstance(value, Tensor) for value in found.values()):
        raise UserError(f"{path} holds {_what(found)} instead of a table of tensors", allowed="a state dict")
    strange = next((name for name, value in found.items() if value.is_complex()), None)
    if strange is not None:
        raise UserError(f"{path}: {strange} holds complex numbers", allowed="real numbers")
    return {str(name): value for name, value in found.items()}


def fill(module: nn.Module, tensors: Mapping[str, Tensor], where: str, run: str | None = None) -> None:
    """Load the tensors into the module; raises UserError if one is missing, unexpected or has another shape."""
    own = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    wrong = [f"{name} is missing" for name in own if name not in tensors]
    wrong += [f"{name} is unexpected" for name in tensors if name not in own]
    wrong += [
        f"{name} is {_by(tensors[name].shape)}, not {_by(shape)}"
        for name, shape in own.items()
        if name in tensors and tuple(tensors[name].shape) != shape
    ]
    if wrong:
        raise UserError(
            f"the weights in {where} do not fit the network: {len(wrong)} tensors, first {wrong[0]}", run=run
        )
    module.load_state_dict(dict(tensors))


def refuse_broken(module: nn.Module, name: str) -> None:
    """Raises UserError if a weight is not finite."""
    broken = [key for key, value in module.state_dict().items() if not bool(value.isfinite().all())]
    if broken:
        shown = ", ".join(broken[:3]) + (" …" if len(broken) > 3 else "")
        raise UserError(
            f"the weights of {name} hold NaN or infinity in {len(broken)} tensors: {shown}",
            allowed="finite numbers",
            run="unswayed weights fetch NAME, or train again",
        )


def _by(shape: Iterable[int]) -> str:
    return "×".join(map(str, shape)) or "a number"


def _what(found: Any) -> str:
    if isinstance(found, dict):
        return f"a table of {len(found)} entries such as {', '.join(map(str, list(found)[:3])) or 'none'}"
    return f"a {type(found).__name__}"
