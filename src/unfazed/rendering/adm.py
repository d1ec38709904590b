"""guided-diffusion's ADM networks as diffusers' `UNet2DModel`: configuration read off the tensors, weights renamed.

The tensors tell widths, levels, blocks, attention, classes and learned variance. What leaves no trace in them (head
width, order of the fused qkv rows, β schedule, picture size) comes from, in this order: the caller, a sidecar JSON
beside the file, the table of known files, guided-diffusion's defaults; where two answers remain, the file is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from unfazed.errors import UserError
from unfazed.files import read_json, sha256

from .adm_names import Layout, convert
from .checkpoints import read_tensors
from .diffusers_unet import build_unet, known_facts
from .network import Network

FACTS = ("num_head_channels", "num_heads", "qkv_order", "beta_schedule", "image_size")
QKV_ORDERS = ("legacy", "new")
# guided-diffusion's defaults: channel multipliers by picture size. 64×64 shares its levels with nothing else.
MULTIPLIERS = {(0.5, 1, 1, 2, 2, 4, 4): 512, (1, 1, 2, 2, 4, 4): 256, (1, 1, 2, 3, 4): 128, (1, 2, 3, 4): 64}


def load_adm(path: str | Path, **facts: Any) -> Network:
    """The network of an original `.pt` or `.safetensors` state dict, in float32; `facts` (FACTS) overrule the rest."""
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
    heads: int = stated.get("num_heads") or 0
    width: int = max(stated.get("num_head_channels") or 0, 0)
    if not width and not heads:
        width = 64
        if any(channels % width for channels in widths):
            possible = [w for w in (8, 16, 32, 48, 96, 128) if all(c % w == 0 for c in widths)]
            doubts.append(f"num_head_channels: 64 does not divide {sorted(widths)}; one of {possible}")
    elif width and any(channels % width for channels in widths):
        doubts.append(f"num_head_channels: {width} does not divide {sorted(widths)}")
    elif not width and any(channels % heads for channels in widths):
        doubts.append(f"num_heads: {heads} does not divide {sorted(widths)}")
    multipliers = tuple(c / layout.base for c in layout.channels)
    size = stated.get("image_size") or MULTIPLIERS.get(multipliers)
    if size is None:
        doubts.append(
            f"image_size: multipliers {multipliers} are none of guided-diffusion's {sorted(MULTIPLIERS.values())}"
        )
    if doubts or size is None:
        raise UserError(
            f"{path.name} does not tell everything about itself:\n  " + "\n  ".join(doubts),
            allowed=f'a sidecar {sidecar_of(path).name} with these under "config", or the same as arguments',
        )
    return {
        "qkv_order": order,
        "num_head_channels": width or None,
        "num_heads": None if width else heads,
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
