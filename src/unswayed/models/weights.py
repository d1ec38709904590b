"""Weights: reading without unpickling code, removal of wrappers and prefixes, and hashing."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import nn

from unswayed.errors import UserError, first_line
from unswayed.files.tensor_files import read_tensor_file
from unswayed.specs import Spec

# Keys under which training scripts store a state dict; the averaged weights first, since papers report those.
EMA = ("state_dict_ema", "model_ema", "ema")
WRAPPERS = (*EMA, "state_dict", "model_state_dict", "model_state", "model", "net", "module")
PREFIXES = ("module.", "model.", "_orig_mod.", "net.", "network.", "encoder.", "backbone.", "base_model.", "0.", "1.")


def read_state(path: str | Path) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint file by name; safetensors, or a torch file that holds only tensors."""
    path = Path(path)
    if not os.path.isfile(path):
        raise UserError(f"there is no checkpoint {str(path)[:300]}")
    return unwrap(read_tensor_file(path), str(path))


def unwrap(value: object, where: str = "the checkpoint") -> dict[str, torch.Tensor]:
    """The state dict inside a training script's checkpoint: under `state_dict`, `model`, `ema` …"""
    for _ in range(4):
        if not isinstance(value, Mapping):
            break
        if value and all(_is_plain(name, entry) for name, entry in value.items()):
            return dict(value)
        inner = next((value[key] for key in WRAPPERS if isinstance(value.get(key), Mapping) and value[key]), None)
        if inner is None:
            tensors = {name: entry for name, entry in value.items() if _is_plain(name, entry)}
            if tensors:
                return tensors
            break
        value = inner
    raise UserError(f"{where} holds no state dict", allowed=f"a dict of tensors, plain or under {', '.join(WRAPPERS)}")


def _is_plain(name: object, value: object) -> bool:
    """Whether an entry of a checkpoint is a name and an ordinary tensor, neither sparse nor quantized."""
    if not isinstance(name, str) or not isinstance(value, torch.Tensor):
        return False
    return value.layout == torch.strided and not value.is_quantized and value.device.type == "cpu"


def load_foreign(module: nn.Module, state: Mapping[str, torch.Tensor], where: str) -> None:
    """Load `state` into `module`, without the prefix whose removal matches most names; every tensor must fit."""
    wanted = module.state_dict()
    best = best_names(state, module)
    optional = {
        name for name in wanted if name.endswith(("num_batches_tracked", "attn_mask", "relative_position_index"))
    }
    missing = sorted(set(wanted) - set(best) - optional)
    if missing:
        raise UserError(
            f"{where} lacks {len(missing)} of the {len(wanted)} tensors of {type(module).__name__}, "
            f"first {missing[0]!r}; it holds names like {next(iter(state), 'none')!r}",
            allowed=f"names like {next(iter(wanted))!r}, with at most one common prefix",
        )
    for name, tensor in wanted.items():
        if name in best and best[name].shape != tensor.shape:
            is_last = name.rsplit(".", 1)[0] == list(wanted)[-1].rsplit(".", 1)[0]
            classes = " (another number of classes?)" if tensor.ndim <= 2 and is_last else ""
            raise UserError(
                f"{where}: {name} is {tuple(best[name].shape)}, but the network's is {tuple(tensor.shape)}{classes}"
            )
    module.load_state_dict({name: best[name] for name in wanted if name in best}, strict=False)


def best_names(state: Mapping[str, torch.Tensor], module: nn.Module) -> dict[str, torch.Tensor]:
    """The state under its own names or without prefixes, whichever fits the tensors of `module` best."""
    wanted = module.state_dict()

    def fitting(names: Mapping[str, torch.Tensor]) -> int:
        return sum(name in names and names[name].shape == tensor.shape for name, tensor in wanted.items())

    candidates: list[dict[str, torch.Tensor]] = []
    queue = [dict(state)]
    while queue and len(candidates) < 32:
        names = queue.pop(0)
        candidates.append(names)
        for prefix in PREFIXES:
            cut = {name[len(prefix) :]: tensor for name, tensor in names.items() if name.startswith(prefix)}
            if cut:
                queue.append(cut)
    return max(candidates, key=fitting)


def classes_in(state: Mapping[str, torch.Tensor], module: nn.Module, layer: str) -> int | None:
    """The number of classes a checkpoint of `module` was trained for: the rows of its classifier `layer`.

    module: the architecture with any number of classes. None if the checkpoint holds no such layer.
    """
    weight = best_names(state, module).get(f"{layer}.weight")
    return None if weight is None else int(weight.shape[0])


@contextlib.contextmanager
def available(spec: Spec, instead: str = "give ?checkpoint=FILE") -> Iterator[None]:
    """A block in which a library downloads or reads weights; the first line of its error is the reason in ours."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the weights of {spec} could not be loaded: {first_line(error)}",
            run=f"the command once with an internet connection, or {instead}",
        ) from error


def linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    """A linear layer with this weight (outputs, inputs) and bias (outputs,), zeros if None."""
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.zero_() if bias is None else layer.bias.copy_(bias)
    return layer


def tensors_in(value: object, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a state dict by name; quantized and sparse ones as the numbers that they stand for."""
    if isinstance(value, torch.Tensor) and hasattr(value, "__tensor_flatten__"):
        value = {inner: getattr(value, inner) for inner in value.__tensor_flatten__()[0]}
    if isinstance(value, torch.Tensor):
        dense = value if value.layout == torch.strided else value.to_dense()
        yield name, dense.dequantize() if dense.is_quantized else dense
    elif isinstance(value, (Mapping, list, tuple)):  # a quantized layer packs its weight and its bias into a tuple
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from tensors_in(item, f"{name}.{key}" if name else str(key))


def weights_hash(module: nn.Module) -> str | None:
    """SHA-256 over every parameter and buffer (name, shape, type, bytes): the same on all devices, None without any."""
    digest, empty = hashlib.sha256(), True
    for name, tensor in tensors_in(dict(sorted(module.state_dict().items()))):
        if not name.endswith("num_batches_tracked"):
            data, empty = tensor.detach().to("cpu").contiguous(), False
            digest.update(f"{name} {tuple(data.shape)} {data.dtype};".encode())
            digest.update(data.reshape(-1).view(torch.uint8).numpy().data)
    return None if empty else digest.hexdigest()
