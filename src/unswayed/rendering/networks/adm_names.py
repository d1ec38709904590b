"""Conversion of ADM weights from guided-diffusion's names to diffusers' names, without loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unswayed.errors import UserError


@dataclass(frozen=True)
class Layout:
    """The architecture of an ADM network as its tensors show it; channels and attention by level, the finest first.

    base: the width that the levels' multipliers multiply, and the width of the timestep embedding's sinusoids.
    """

    channels: tuple[int, ...]
    attention: tuple[bool, ...]
    base: int
    layers: int
    outputs: int
    classes: int | None
    scale_shift: bool
    residual_resampling: bool


def convert(
    tensors: dict[str, Tensor], parts: Iterable[tuple[str, str, str]], settled: dict[str, Any], name: str, kind: str
) -> dict[str, Tensor]:
    """The same numbers under diffusers' names, float32; every tensor is used once or the file is refused.

    parts: (old prefix, new prefix, kind of part); kind: what the file should contain, for an error.
    """
    remaining = dict(tensors)
    made: dict[str, Tensor] = {}
    old = ""
    try:
        for old, new, part in parts:
            if part == "attention":
                made.update(moved_attention(remaining, old, new, settled))
            elif part == "tensor":
                made[new] = remaining.pop(old).float()
            else:
                for old_part, new_part in PARTS[part].items():
                    made.update(moved(remaining, f"{old}{old_part}", f"{new}{new_part}"))
    except KeyError as error:
        raise UserError(f"{name} is not {kind}: it lacks {error.args[0]}") from None
    except (IndexError, RuntimeError, ZeroDivisionError):
        raise UserError(f"{name} is not {kind}: {old} has an unexpected shape") from None
    if remaining:
        raise UserError(
            f"{name} is not {kind}: {len(remaining)} of its tensors, such as {next(iter(remaining))}, do not belong"
        )
    return made


BLOCK = {
    ".in_layers.0": ".norm1",
    ".in_layers.2": ".conv1",
    ".emb_layers.1": ".time_emb_proj",
    ".out_layers.0": ".norm2",
    ".out_layers.3": ".conv2",
    ".skip_connection?": ".conv_shortcut",
}
PARTS: dict[str, dict[str, str]] = {
    "layer": {"": ""},
    "block": BLOCK,
    "down": {".op": ".conv"},
    "up": {".conv": ".conv"},
}


def network_parts(layout: Layout) -> Iterator[tuple[str, str, str]]:
    """(old prefix, new prefix, kind) of every part of the network, in guided-diffusion's order."""
    yield "time_embed.0", "time_embedding.linear_1", "layer"
    yield "time_embed.2", "time_embedding.linear_2", "layer"
    if layout.classes is not None:
        yield "label_emb", "class_embedding", "layer"
    yield "input_blocks.0.0", "conv_in", "layer"
    levels = len(layout.channels)
    resample = "block" if layout.residual_resampling else ""
    position = 1
    for level, attends in enumerate(layout.attention):
        for layer in range(layout.layers):
            yield f"input_blocks.{position}.0", f"down_blocks.{level}.resnets.{layer}", "block"
            if attends:
                yield f"input_blocks.{position}.1", f"down_blocks.{level}.attentions.{layer}", "attention"
            position += 1
        if level < levels - 1:
            yield f"input_blocks.{position}.0", f"down_blocks.{level}.downsamplers.0", resample or "down"
            position += 1
    yield "middle_block.0", "mid_block.resnets.0", "block"
    yield "middle_block.1", "mid_block.attentions.0", "attention"
    yield "middle_block.2", "mid_block.resnets.1", "block"
    position = 0
    for level, attends in enumerate(reversed(layout.attention)):
        for layer in range(layout.layers + 1):
            yield f"output_blocks.{position}.0", f"up_blocks.{level}.resnets.{layer}", "block"
            if attends:
                yield f"output_blocks.{position}.1", f"up_blocks.{level}.attentions.{layer}", "attention"
            if layer == layout.layers and level < levels - 1:
                place = 2 if attends else 1
                yield f"output_blocks.{position}.{place}", f"up_blocks.{level}.upsamplers.0", resample or "up"
            position += 1
    yield "out.0", "conv_norm_out", "layer"
    yield "out.2", "conv_out", "layer"


def moved(remaining: dict[str, Tensor], old: str, new: str) -> dict[str, Tensor]:
    """The weight and bias of one layer, taken out of `remaining`; `?` marks an optional layer."""
    optional = old.endswith("?")
    old = old.removesuffix("?")
    if optional and f"{old}.weight" not in remaining:
        return {}
    made = {f"{new}.weight": remaining.pop(f"{old}.weight").float()}
    if f"{old}.bias" in remaining:
        made[f"{new}.bias"] = remaining.pop(f"{old}.bias").float()
    return made


def moved_attention(remaining: dict[str, Tensor], old: str, new: str, settled: dict[str, Any]) -> dict[str, Tensor]:
    made = moved(remaining, f"{old}.norm", f"{new}.group_norm")
    for name in ("weight", "bias"):
        fused = remaining.pop(f"{old}.qkv.{name}").float()
        channels = fused.shape[0] // 3
        heads = settled["num_heads"] or channels // settled["num_head_channels"]
        for letter, rows in zip("qkv", split_qkv(fused, heads, settled["qkv_order"]), strict=True):
            made[f"{new}.to_{letter}.{name}"] = rows.reshape(channels, -1) if name == "weight" else rows
    projection = moved(remaining, f"{old}.proj_out", f"{new}.to_out.0")
    projection[f"{new}.to_out.0.weight"] = projection[f"{new}.to_out.0.weight"].flatten(1)
    return {**made, **projection}


def split_qkv(fused: Tensor, heads: int, order: str) -> tuple[Tensor, ...]:
    """q, k and v rows (C, …) of fused rows (3C, …): [head][qkv][channel] (legacy) or [qkv][head][channel] (new).

    Three equal chunks of legacy rows would load without an error and compute wrong results.
    """
    rows = fused.shape[0]
    if order == "new":
        return torch.chunk(fused, 3, dim=0)
    split = fused.view(heads, 3, rows // (3 * heads), *fused.shape[1:])
    return tuple(split[:, part].reshape(rows // 3, *fused.shape[1:]) for part in range(3))
