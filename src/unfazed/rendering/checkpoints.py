"""Tensors out of a file that nobody need trust: safetensors, or a `.pt` read without running any code in it."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from unfazed.errors import UserError
from unfazed.files import damage

_NESTS = ("state_dict", "model", "ema")


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Name -> tensor, on the CPU, in the file's own precision."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"the weights {path} are not there", run="unfazed weights")
    found = _safetensors(path) if path.suffix == ".safetensors" or _begins_as_safetensors(path) else _torch(path)
    for nest in _NESTS:
        if isinstance(found, dict) and isinstance(found.get(nest), dict):
            found = found[nest]
    if not isinstance(found, dict) or not found or not all(isinstance(value, Tensor) for value in found.values()):
        raise UserError(f"{path} holds no table of tensors but {_what(found)}", allowed="a state dict")
    strange = next((name for name, value in found.items() if value.is_complex()), None)
    if strange is not None:
        raise UserError(f"{path}: {strange} holds complex numbers", allowed="real numbers")
    return {str(name): value for name, value in found.items()}


def fill(module: nn.Module, tensors: Mapping[str, Tensor], where: str, run: str | None = None) -> None:
    """The tensors in the module's places; if one is missing, foreign or of another shape, `where` is refused."""
    own = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    wrong = [f"{name} is missing" for name in own if name not in tensors]
    wrong += [f"{name} is foreign" for name in tensors if name not in own]
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
    """Refuse weights that are not all finite."""
    broken = [key for key, value in module.state_dict().items() if not bool(value.isfinite().all())]
    if broken:
        shown = ", ".join(broken[:3]) + (" …" if len(broken) > 3 else "")
        raise UserError(
            f"the weights of {name} hold NaN or infinity in {len(broken)} tensors: {shown}",
            allowed="finite numbers",
            run="unfazed weights fetch NAME, or train again",
        )


def _by(shape: Iterable[int]) -> str:
    return "×".join(map(str, shape)) or "a number"


def _begins_as_safetensors(path: Path) -> bool:
    """Whether a file is safetensors whatever its name: the length of a header (at most 100 MB), then the header."""
    with open(path, "rb") as file:
        start = file.read(9)
    return start[8:] == b"{" and int.from_bytes(start[:8], "little") <= 100_000_000


def _safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise UserError(
            f"{path} ({path.stat().st_size:,} bytes) is truncated or no safetensors file: {error}",
            run="unfazed weights fetch NAME, or copy the file again",
        ) from None


def _torch(path: Path) -> Any:
    import torch

    found = damage(path)
    if found is not None:
        raise UserError(f"{path} is damaged: {found}", run="unfazed weights fetch NAME, or copy the file again")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        wanted = _wanted(error)
        if wanted is not None:
            raise UserError(
                f"{path} holds more than tensors (a pickle with code in it), not opened: {wanted}",
                allowed="a plain state dict, or safetensors",
            ) from None
        raise UserError(
            f"{path} ({path.stat().st_size:,} bytes) is no file of weights, or a truncated one: {_begins(path)}",
            allowed=".pt or .safetensors",
            run="unfazed weights fetch NAME, or copy the file again",
        ) from None
    except Exception as error:  # torch reads a damaged file into errors of every kind
        cause = (str(error).splitlines() or [""])[0]
        raise UserError(
            f"{path} ({path.stat().st_size:,} bytes) is truncated or no file of weights: "
            f"{cause if ' ' in cause else _begins(path)}",
            run="unfazed weights fetch NAME, or copy the file again",
        ) from None


def _wanted(error: Exception) -> str | None:
    """The part of torch's long message that says what the pickle wanted to run; None where it is no such pickle."""
    for line in str(error).splitlines():
        if "GLOBAL" in line or "nsupported global" in line or "nsupported class" in line:
            return line.strip()[:160]
    return None


def _begins(path: Path) -> str:
    with open(path, "rb") as file:
        return f"it begins with {file.read(16)!r}"


def _what(found: Any) -> str:
    if isinstance(found, dict):
        return f"a table of {len(found)} entries such as {', '.join(map(str, list(found)[:3])) or 'none'}"
    return f"a {type(found).__name__}"
