"""A second, plain reading of guided-diffusion's networks, straight from a state dict under its own names.

Slow and literal on purpose: the package goes through diffusers' modules, this goes through nothing but torch functions,
and `test_adm.py` holds it to the original implementation's recorded outputs before it judges anything else.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor


def random_state(
    channels: tuple[int, ...],
    attention: tuple[bool, ...],
    layers: int = 1,
    *,
    classes: int | None = None,
    residual: bool = True,
    scale_shift: bool = True,
    outputs: int = 6,
    base: int | None = None,
    seed: int = 0,
) -> dict[str, Tensor]:
    """A state dict of random weights with the shapes and names that guided-diffusion's `UNetModel` would have.

    base: its model_channels, by default the first width.
    """
    generator = torch.Generator().manual_seed(seed)
    state: dict[str, Tensor] = {}
    first = channels[0]
    base = first if base is None else base
    wide = 4 * base

    def layer(name: str, *shape: int) -> None:
        fan = math.prod(shape[1:]) if len(shape) > 1 else 1
        state[f"{name}.weight"] = torch.randn(shape, generator=generator) / math.sqrt(fan)
        state[f"{name}.bias"] = 0.1 * torch.randn(shape[0], generator=generator)

    def norm(name: str, width: int) -> None:
        state[f"{name}.weight"] = 1 + 0.1 * torch.randn(width, generator=generator)
        state[f"{name}.bias"] = 0.1 * torch.randn(width, generator=generator)

    def block(name: str, inputs: int, width: int) -> None:
        norm(f"{name}.in_layers.0", inputs)
        layer(f"{name}.in_layers.2", width, inputs, 3, 3)
        layer(f"{name}.emb_layers.1", 2 * width if scale_shift else width, wide)
        norm(f"{name}.out_layers.0", width)
        layer(f"{name}.out_layers.3", width, width, 3, 3)
        if inputs != width:
            layer(f"{name}.skip_connection", width, inputs, 1, 1)

    def attend(name: str, width: int) -> None:
        norm(f"{name}.norm", width)
        layer(f"{name}.qkv", 3 * width, width, 1)
        layer(f"{name}.proj_out", width, width, 1)

    layer("time_embed.0", wide, base)
    layer("time_embed.2", wide, wide)
    if classes is not None:
        state["label_emb.weight"] = torch.randn(classes, wide, generator=generator)
    layer("input_blocks.0.0", first, 3, 3, 3)
    skips, width, place = [first], first, 1
    for level, (target, attends) in enumerate(zip(channels, attention, strict=True)):
        for _ in range(layers):
            block(f"input_blocks.{place}.0", width, target)
            width = target
            if attends:
                attend(f"input_blocks.{place}.1", width)
            skips.append(width)
            place += 1
        if level < len(channels) - 1:
            if residual:
                block(f"input_blocks.{place}.0", width, width)
            else:
                layer(f"input_blocks.{place}.0.op", width, width, 3, 3)
            skips.append(width)
            place += 1
    block("middle_block.0", width, width)
    attend("middle_block.1", width)
    block("middle_block.2", width, width)
    place = 0
    for level, (target, attends) in reversed(list(enumerate(zip(channels, attention, strict=True)))):
        for turn in range(layers + 1):
            block(f"output_blocks.{place}.0", width + skips.pop(), target)
            width, sub = target, 1
            if attends:
                attend(f"output_blocks.{place}.1", width)
                sub = 2
            if level and turn == layers:
                if residual:
                    block(f"output_blocks.{place}.{sub}", width, width)
                else:
                    layer(f"output_blocks.{place}.{sub}.conv", width, width, 3, 3)
            place += 1
    norm("out.0", first)
    layer("out.2", outputs, first, 3, 3)
    return state


def classifier_state(base: int = 32, depth: int = 1, classes: int = 11, places: int = 16) -> dict[str, Tensor]:
    """A noisy classifier of the 64×64 layout (multipliers 1, 2, 3, 4) cut to its encoder."""
    widths = tuple(base * m for m in (1, 2, 3, 4))
    full = random_state(widths, (False, False, True, True), depth)
    state = {name: value for name, value in full.items() if not name.startswith(("output_blocks", "out."))}
    generator = torch.Generator().manual_seed(5)
    wide = widths[-1]
    shapes = {
        "out.0.weight": (wide,),
        "out.0.bias": (wide,),
        "out.2.positional_embedding": (wide, places + 1),
        "out.2.qkv_proj.weight": (3 * wide, wide, 1),
        "out.2.qkv_proj.bias": (3 * wide,),
        "out.2.c_proj.weight": (classes, wide, 1),
        "out.2.c_proj.bias": (classes,),
    }
    return {**state, **{name: torch.randn(shape, generator=generator) / wide**0.5 for name, shape in shapes.items()}}


def written(folder: Path, state: dict[str, Tensor], **config: object) -> Path:
    """A checkpoint with its sidecar."""
    save_file({name: value.contiguous() for name, value in state.items()}, folder / "net_weights.safetensors")
    if config:
        (folder / "net.json").write_text(json.dumps({"config": config}))
    return folder / "net_weights.safetensors"


def forward(
    state: dict[str, Tensor],
    x: Tensor,
    t: Tensor,
    layers: int,
    *,
    y: Tensor | None = None,
    head_channels: int | None = None,
    heads: int | None = None,
    order: str = "legacy",
) -> Tensor:
    """The raw output of `UNetModel`."""
    embedding = embed(state, t)
    if y is not None:
        embedding = embedding + state["label_emb.weight"][y]

    def attend(name: str, h: Tensor) -> Tensor:
        count = heads if heads is not None else h.shape[1] // head_channels
        return attention_block(state, name, h, count, order)

    count = _count(state, "input_blocks")
    h = conv(state, "input_blocks.0.0", x, padding=1)
    skips = [h]
    for place in range(1, count):
        name = f"input_blocks.{place}"
        if f"{name}.0.op.weight" in state:
            h = conv(state, f"{name}.0.op", h, stride=2, padding=1)
        else:
            h = residual_block(state, f"{name}.0", h, embedding, "down" if place % (layers + 1) == 0 else None)
        if f"{name}.1.qkv.weight" in state:
            h = attend(f"{name}.1", h)
        skips.append(h)
    h = residual_block(state, "middle_block.0", h, embedding)
    h = attend("middle_block.1", h)
    h = residual_block(state, "middle_block.2", h, embedding)
    for place in range(_count(state, "output_blocks")):
        name = f"output_blocks.{place}"
        h = residual_block(state, f"{name}.0", torch.cat([h, skips.pop()], dim=1), embedding)
        for sub in (1, 2):
            if f"{name}.{sub}.qkv.weight" in state:
                h = attend(f"{name}.{sub}", h)
            elif f"{name}.{sub}.in_layers.0.weight" in state:
                h = residual_block(state, f"{name}.{sub}", h, embedding, "up")
            elif f"{name}.{sub}.conv.weight" in state:
                h = conv(state, f"{name}.{sub}.conv", F.interpolate(h, scale_factor=2.0, mode="nearest"), padding=1)
    return conv(state, "out.2", F.silu(norm(state, "out.0", h)), padding=1)


def classify(state: dict[str, Tensor], x: Tensor, t: Tensor, depth: int, head_channels: int) -> Tensor:
    """The logits of `EncoderUNetModel` with attention pooling; every (depth + 1)-th block halves the picture."""
    embedding = embed(state, t)
    h = conv(state, "input_blocks.0.0", x, padding=1)
    for place in range(1, _count(state, "input_blocks")):
        name = f"input_blocks.{place}"
        h = residual_block(state, f"{name}.0", h, embedding, "down" if place % (depth + 1) == 0 else None)
        if f"{name}.1.qkv.weight" in state:
            h = attention_block(state, f"{name}.1", h, h.shape[1] // head_channels, "legacy")
    h = residual_block(state, "middle_block.0", h, embedding)
    h = attention_block(state, "middle_block.1", h, h.shape[1] // head_channels, "legacy")
    h = residual_block(state, "middle_block.2", h, embedding)
    flat = F.silu(norm(state, "out.0", h)).flatten(2)
    tokens = torch.cat([flat.mean(-1, keepdim=True), flat], -1) + state["out.2.positional_embedding"]
    rows = F.conv1d(tokens, state["out.2.qkv_proj.weight"], state["out.2.qkv_proj.bias"])
    mixed = attention(*rows.chunk(3, dim=1), heads=flat.shape[1] // head_channels)
    return F.conv1d(mixed, state["out.2.c_proj.weight"], state["out.2.c_proj.bias"])[:, :, 0]


def embed(state: dict[str, Tensor], t: Tensor) -> Tensor:
    width = state["time_embed.0.weight"].shape[1]
    angles = t[:, None].float() * torch.exp(-math.log(10000) * torch.arange(width // 2) / (width // 2))[None]
    waves = torch.cat([angles.cos(), angles.sin()], dim=1)
    hidden = F.silu(F.linear(waves, state["time_embed.0.weight"], state["time_embed.0.bias"]))
    return F.linear(hidden, state["time_embed.2.weight"], state["time_embed.2.bias"])


def residual_block(
    state: dict[str, Tensor], name: str, x: Tensor, embedding: Tensor, resample: str | None = None
) -> Tensor:
    def resized(h: Tensor) -> Tensor:
        if resample == "down":
            return F.avg_pool2d(h, 2)
        return F.interpolate(h, scale_factor=2.0, mode="nearest") if resample == "up" else h

    h = conv(state, f"{name}.in_layers.2", resized(F.silu(norm(state, f"{name}.in_layers.0", x))), padding=1)
    x = resized(x)
    shift = F.linear(F.silu(embedding), state[f"{name}.emb_layers.1.weight"], state[f"{name}.emb_layers.1.bias"])
    shift = shift[:, :, None, None]
    if shift.shape[1] == 2 * h.shape[1]:
        scale, shift = shift.chunk(2, dim=1)
        h = norm(state, f"{name}.out_layers.0", h) * (1 + scale) + shift
    else:
        h = norm(state, f"{name}.out_layers.0", h + shift)
    h = conv(state, f"{name}.out_layers.3", F.silu(h), padding=1)
    if f"{name}.skip_connection.weight" in state:
        x = conv(state, f"{name}.skip_connection", x)
    return x + h


def attention_block(state: dict[str, Tensor], name: str, x: Tensor, heads: int, order: str) -> Tensor:
    flat = x.flatten(2)
    rows = F.conv1d(norm(state, f"{name}.norm", flat), state[f"{name}.qkv.weight"], state[f"{name}.qkv.bias"])
    if order == "new":
        q, k, v = rows.chunk(3, dim=1)
    else:
        n, width, places = rows.shape
        q, k, v = rows.reshape(n * heads, width // heads, places).split(width // heads // 3, dim=1)
        q, k, v = (part.reshape(n, -1, places) for part in (q, k, v))
    mixed = attention(q, k, v, heads)
    return x + F.conv1d(mixed, state[f"{name}.proj_out.weight"], state[f"{name}.proj_out.bias"]).reshape(x.shape)


def attention(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """softmax(qᵀk / √d) v for q, k, v (N, heads · d, places)."""
    n, width, places = q.shape
    q, k, v = (part.reshape(n * heads, width // heads, places) for part in (q, k, v))
    weights = torch.softmax(torch.einsum("bct,bcs->bts", q, k) / math.sqrt(width // heads), dim=-1)
    return torch.einsum("bts,bcs->bct", weights, v).reshape(n, width, places)


def norm(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return F.group_norm(x, 32, state[f"{name}.weight"], state[f"{name}.bias"], eps=1e-5)


def conv(state: dict[str, Tensor], name: str, x: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    return F.conv2d(x, state[f"{name}.weight"], state[f"{name}.bias"], stride=stride, padding=padding)


def _count(state: dict[str, Tensor], prefix: str) -> int:
    return 1 + max(int(key.split(".")[1]) for key in state if key.startswith(f"{prefix}."))
