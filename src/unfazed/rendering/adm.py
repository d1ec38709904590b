"""guided-diffusion's ADM networks as diffusers' `UNet2DModel`: configuration read off the tensors, weights renamed losslessly.

The tensors tell widths, levels, blocks, attention, classes and learned variance. What leaves no trace in them (head
width, order of the fused qkv rows, β schedule, picture size) comes from, in this order: the caller, a sidecar JSON
beside the file, the table of known files, guided-diffusion's defaults; and where two answers remain, the file is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unfazed.errors import UserError
from unfazed.files import read_json, sha256

from .checkpoints import read_tensors
from .diffusers_unet import build_unet, known_facts
from .network import Network

FACTS = ("num_head_channels", "num_heads", "qkv_order", "beta_schedule", "image_size")
QKV_ORDERS = ("legacy", "new")
# guided-diffusion's defaults: channel multipliers by picture size. 64×64 shares its levels with nothing else.
_SIZES = {(0.5, 1, 1, 2, 2, 4, 4): 512, (1, 1, 2, 2, 4, 4): 256, (1, 1, 2, 3, 4): 128, (1, 2, 3, 4): 64}


@dataclass(frozen=True)
class Layout:
    """What the tensors of an ADM network tell; channels and attention by level, the finest first."""

    channels: tuple[int, ...]
    attention: tuple[bool, ...]
    base: int
    layers: int
    outputs: int
    classes: int | None
    scale_shift: bool
    residual_resampling: bool


def load_adm(path: str | Path, **facts: Any) -> Network:
    """The network of an original `.pt` or `.safetensors` state dict, in float32; `facts` (see FACTS) overrule what is known."""
    path = Path(path)
    known_facts(facts, FACTS)
    tensors = read_tensors(path)
    layout = deduce(tensors, path.name)
    settled = settle(layout, path, facts)
    heads = settled.get("num_heads")
    unet = build_unet(unet_config(layout, settled), heads)
    unet.unet.load_state_dict(convert(tensors, layout, settled, path.name))
    return Network(
        unet.eval().requires_grad_(False),
        name=path.stem,
        size=settled["image_size"],
        variance_type="learned_range" if layout.outputs == 6 else "fixed",
        beta_schedule=settled["beta_schedule"],
        classes=layout.classes,
        weights_hash=sha256(path),
    )


def deduce(tensors: dict[str, Tensor], name: str) -> Layout:
    """The layout of a state dict under guided-diffusion's names."""
    needed = ("input_blocks.0.0.weight", "time_embed.0.weight", "middle_block.0.in_layers.0.weight", "out.2.weight")
    absent = [key for key in needed if key not in tensors]
    if absent:
        raise UserError(
            f"{name} is no guided-diffusion network: of {len(tensors)} tensors none is called {', '.join(absent)}; "
            f"it begins with {', '.join(list(tensors)[:3])}",
            allowed="an ADM state dict (guided-diffusion), a diffusers UNet2DModel folder, or compact",
            run="unfazed weights",
        )
    if tensors["input_blocks.0.0.weight"].shape[1] != 3:
        raise UserError(
            f"{name} takes {tensors['input_blocks.0.0.weight'].shape[1]} channels: an upsampler", allowed="3"
        )
    up = _count(tensors, "output_blocks")
    ends = [i for i in range(up) if _resampler(tensors, i) is not None]
    levels = len(ends) + 1
    layers, rest = divmod(up, levels)
    if rest or _count(tensors, "input_blocks") != levels * layers:
        raise UserError(f"{name}: {_count(tensors, 'input_blocks')} input and {up} output blocks fit no ADM network")
    firsts = [1 + level * layers for level in range(levels)]
    return Layout(
        channels=tuple(_width(tensors, first, name) for first in firsts),
        attention=tuple(f"input_blocks.{first}.1.qkv.weight" in tensors for first in firsts),
        base=tensors["input_blocks.0.0.weight"].shape[0],
        layers=layers - 1,
        outputs=tensors["out.2.weight"].shape[0],
        classes=tensors["label_emb.weight"].shape[0] if "label_emb.weight" in tensors else None,
        scale_shift=tensors["input_blocks.1.0.emb_layers.1.weight"].shape[0] == 2 * _width(tensors, 1, name),
        residual_resampling=not ends or "in_layers.0.weight" in str(_resampler(tensors, ends[0])),
    )


def settle(layout: Layout, path: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """The facts that the tensors leave open, each from the nearest place that states it; refused when in doubt."""
    from .weights import KNOWN

    listed = dict(KNOWN[path.stem].facts) if path.stem in KNOWN else {}
    stated = {**listed, **read_sidecar(path), **{key: value for key, value in facts.items() if value is not None}}
    if "num_heads" in facts and "num_head_channels" not in facts:
        stated.pop("num_head_channels", None)
    doubts = []
    widths = {c for c, attends in zip(layout.channels, layout.attention, strict=True) if attends} | {
        layout.channels[-1]
    }
    order = stated.get("qkv_order", "legacy")
    if order not in QKV_ORDERS:
        doubts.append(f"qkv_order '{order}': legacy or new")
    heads, width = stated.get("num_heads"), stated.get("num_head_channels")
    if width in (None, -1) and heads is None:
        width = 64
        if any(channels % width for channels in widths):
            possible = [w for w in (8, 16, 32, 48, 96, 128) if all(c % w == 0 for c in widths)]
            doubts.append(f"num_head_channels: 64 does not divide {sorted(widths)}; one of {possible}")
    elif heads is None and any(channels % int(width) for channels in widths):
        doubts.append(f"num_head_channels: {width} does not divide {sorted(widths)}")
    elif heads is not None and width in (None, -1) and any(channels % int(heads) for channels in widths):
        doubts.append(f"num_heads: {heads} does not divide {sorted(widths)}")
    multipliers = tuple(c / layout.base for c in layout.channels)
    size = stated.get("image_size") or _SIZES.get(multipliers)
    if size is None:
        doubts.append(f"image_size: multipliers {multipliers} are none of guided-diffusion's {sorted(_SIZES.values())}")
    if doubts:
        raise UserError(
            f"{path.name} does not tell everything about itself:\n  " + "\n  ".join(doubts),
            allowed=f'a sidecar {sidecar_of(path).name} with these under "config", or the same as arguments',
        )
    by_width = width not in (None, -1)
    return {
        "qkv_order": order,
        "num_head_channels": int(width) if by_width else None,
        "num_heads": None if by_width else int(heads),
        "image_size": int(size),
        "beta_schedule": stated.get("beta_schedule", "linear"),
    }


def sidecar_of(path: Path) -> Path:
    return path.with_name(path.stem.removesuffix("_weights") + ".json")


def read_sidecar(path: Path) -> dict[str, Any]:
    """The facts in `<stem without _weights>.json`, in guided-diffusion's own words; {} if there is no such file."""
    sidecar = sidecar_of(path)
    if not sidecar.exists():
        return {}
    values = read_json(sidecar)
    config = values.get("config", {}) if isinstance(values, dict) else {}
    found = {key: config[key] for key in ("num_head_channels", "num_heads", "image_size", "qkv_order") if key in config}
    if "noise_schedule" in config:
        found["beta_schedule"] = config["noise_schedule"]
    if "use_new_attention_order" in config:
        found["qkv_order"] = "new" if config["use_new_attention_order"] else "legacy"
    return found


def unet_config(layout: Layout, settled: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `UNet2DModel` for that layout."""
    plain = (
        ("ResnetDownsampleBlock2D", "ResnetUpsampleBlock2D")
        if layout.residual_resampling
        else ("DownBlock2D", "UpBlock2D")
    )
    down = ["AttnDownBlock2D" if attends else plain[0] for attends in layout.attention]
    up = ["AttnUpBlock2D" if attends else plain[1] for attends in reversed(layout.attention)]
    kind = "resnet" if layout.residual_resampling else "conv"
    return {
        "sample_size": settled["image_size"],
        "in_channels": 3,
        "out_channels": layout.outputs,
        "layers_per_block": layout.layers,
        "block_out_channels": list(layout.channels),
        "down_block_types": down,
        "up_block_types": up,
        # With a fixed number of heads the width differs by level; PixelUNet sets the number after building.
        "attention_head_dim": settled["num_head_channels"] or layout.channels[0],
        "resnet_time_scale_shift": "scale_shift" if layout.scale_shift else "default",
        "downsample_type": kind,
        "upsample_type": kind,
        "attn_norm_num_groups": 32,
        "num_class_embeds": layout.classes,
    }


def convert(
    tensors: dict[str, Tensor], layout: Layout, settled: dict[str, Any], name: str = "the file"
) -> dict[str, Tensor]:
    """The same numbers under diffusers' names, float32; every tensor is used once or the file is refused."""
    left = dict(tensors)
    made: dict[str, Tensor] = {}
    try:
        for old, new, kind in _renamed(layout):
            if kind == "attention":
                made.update(_attention(left, old, new, settled))
            else:
                for old_part, new_part in _PARTS[kind].items():
                    made.update(_moved(left, f"{old}{old_part}", f"{new}{new_part}"))
    except KeyError as error:
        raise UserError(f"{name} is no ADM network this reader knows: it lacks {error.args[0]}") from None
    if left:
        raise UserError(f"{name} holds {len(left)} tensors that no ADM network has, such as {next(iter(left))}")
    return made


_BLOCK = {
    ".in_layers.0": ".norm1",
    ".in_layers.2": ".conv1",
    ".emb_layers.1": ".time_emb_proj",
    ".out_layers.0": ".norm2",
    ".out_layers.3": ".conv2",
    ".skip_connection?": ".conv_shortcut",
}
_PARTS: dict[str, dict[str, str]] = {
    "layer": {"": ""},
    "block": _BLOCK,
    "down": {".op": ".conv"},
    "up": {".conv": ".conv"},
}


def _renamed(layout: Layout) -> Iterator[tuple[str, str, str]]:
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


def _moved(left: dict[str, Tensor], old: str, new: str) -> dict[str, Tensor]:
    """The weight and bias of one layer, taken out of `left`; `?` marks a layer that need not be there."""
    optional = old.endswith("?")
    old = old.removesuffix("?")
    if optional and f"{old}.weight" not in left:
        return {}
    made = {f"{new}.weight": left.pop(f"{old}.weight").float()}
    if f"{old}.bias" in left:
        made[f"{new}.bias"] = left.pop(f"{old}.bias").float()
    return made


def _attention(left: dict[str, Tensor], old: str, new: str, settled: dict[str, Any]) -> dict[str, Tensor]:
    made = _moved(left, f"{old}.norm", f"{new}.group_norm")
    for name in ("weight", "bias"):
        fused = left.pop(f"{old}.qkv.{name}").float()
        channels = fused.shape[0] // 3
        heads = settled["num_heads"] or channels // settled["num_head_channels"]
        for letter, rows in zip("qkv", split_qkv(fused, heads, settled["qkv_order"]), strict=True):
            made[f"{new}.to_{letter}.{name}"] = rows.reshape(channels, -1) if name == "weight" else rows
    projection = _moved(left, f"{old}.proj_out", f"{new}.to_out.0")
    projection[f"{new}.to_out.0.weight"] = projection[f"{new}.to_out.0.weight"].flatten(1)
    return {**made, **projection}


def split_qkv(fused: Tensor, heads: int, order: str) -> tuple[Tensor, ...]:
    """q, k and v rows (C, …) of fused rows (3C, …): ordered [head][q, k, v][channel] (legacy) or [q, k, v][head][channel].

    Three equal chunks of legacy rows load without complaint and compute nonsense.
    """
    rows = fused.shape[0]
    if order == "new":
        return torch.chunk(fused, 3, dim=0)
    split = fused.view(heads, 3, rows // (3 * heads), *fused.shape[1:])
    return tuple(split[:, part].reshape(rows // 3, *fused.shape[1:]) for part in range(3))


def _count(tensors: dict[str, Tensor], prefix: str) -> int:
    return len({key.split(".")[1] for key in tensors if key.startswith(f"{prefix}.")})


def _resampler(tensors: dict[str, Tensor], block: int) -> str | None:
    """The name of the upsampling layer that ends an output block, or None."""
    for place in (1, 2):
        for ending in ("in_layers.0.weight", "conv.weight"):
            if f"output_blocks.{block}.{place}.{ending}" in tensors:
                return f"output_blocks.{block}.{place}.{ending}"
    return None


def _width(tensors: dict[str, Tensor], block: int, name: str) -> int:
    key = f"input_blocks.{block}.0.out_layers.3.weight"
    if key not in tensors:
        raise UserError(f"{name}: {key} is missing, so its levels cannot be told", allowed="an ADM state dict")
    return tensors[key].shape[0]
