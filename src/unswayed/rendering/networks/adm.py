"""guided-diffusion's ADM networks as diffusers' `UNet2DModel`: configuration derived from the tensors, weights renamed.

The tensors show widths, levels, blocks, attention, classes and learned variance. What they do not show (head width,
order of the fused qkv rows, β schedule, prediction, which fixed variance, picture size) comes from, in this order: the
caller, a sidecar JSON next to the file, the table of known files (by name, or by the shapes of a published network),
guided-diffusion's defaults; the head width has none, and an ambiguous file is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from unswayed.errors import UserError, check_known
from unswayed.files.records import read_object

from . import TIMESTEPS, Facts, Network, fill, read_tensors, wrong_number
from .diffusers_unet import build_unet

_NUMBERS = ("num_head_channels", "num_heads", "image_size")
FACTS = (*_NUMBERS, "qkv_order", "beta_schedule", "prediction_type", "variance_type")
QKV_ORDERS = ("legacy", "new")
DEFAULT_HEADS = 4  # guided-diffusion's num_heads, used when num_head_channels is -1
# The published networks by the widths of their levels and the blocks of a level, by which a renamed file is recognized.
PUBLISHED = {
    ((128, 256, 256, 512, 512, 1024, 1024), 2): "512x512_diffusion",
    ((256, 256, 512, 512, 1024, 1024), 2): "256x256_diffusion",
    ((256, 256, 512, 768, 1024), 2): "128x128_diffusion",
    ((192, 384, 576, 768), 3): "64x64_diffusion",
}
# guided-diffusion's defaults: channel multipliers by picture size. No other size has the levels of 64×64.
MULTIPLIERS = {(0.5, 1, 1, 2, 2, 4, 4): 512, (1, 1, 2, 2, 4, 4): 256, (1, 1, 2, 3, 4): 128, (1, 2, 3, 4): 64}


def load_adm(path: str | Path, size: int | None = None, **facts: object) -> Network:
    """The network of an original `.pt` or `.safetensors` state dict, in float32; `facts` (FACTS) override the rest.

    size: of the pictures if nothing else states it.
    """
    from unswayed.files.downloads import recognized

    path = Path(path)
    check_known("network fact", facts, FACTS)
    digest = recognized(path)
    tensors = read_tensors(path)
    layout = deduce(tensors, path.name)
    settled = settle(layout, path, facts, size)
    unet = build_unet(unet_config(layout, settled), settled["num_heads"], path.name)
    converted = convert(tensors, unet.unet.state_dict(), layout, settled, path.name, "a supported ADM network")
    fill(unet.unet, converted, path.name)
    return Network(
        unet.eval().requires_grad_(False),
        name=path.stem,
        size=settled["image_size"],
        **{name: settled[name] for name in ("prediction_type", "variance_type", "beta_schedule")},
        classes=layout.classes,
        weights_hash=digest,
        facts={name: settled[name] for name in ("num_head_channels", "num_heads", "qkv_order")},
        guidance="released",
    )


def deduce(tensors: dict[str, Tensor], name: str) -> Layout:
    """The layout of a state dict under guided-diffusion's names."""
    needed = ("input_blocks.0.0.weight", "time_embed.0.weight", "middle_block.0.in_layers.0.weight", "out.2.weight")
    absent = [key for key in needed if key not in tensors]
    if absent:
        raise UserError(
            f"{name} is not a guided-diffusion network: none of its {len(tensors)} tensors is {', '.join(absent)}; "
            f"the first ones are {', '.join(list(tensors)[:3])}",
            allowed="an ADM state dict (guided-diffusion), a diffusers UNet2DModel folder, or compact",
            run="unswayed weights",
        )
    inputs = _shape(tensors, "input_blocks.0.0.weight", 4, name)[1]
    outputs = _shape(tensors, "out.2.weight", 4, name)[0]
    if inputs != 3:
        raise UserError(f"{name} takes {inputs} input channels, as an upsampler does", allowed="3")
    if outputs not in (3, 6):
        raise UserError(f"{name} has {outputs} output channels", allowed="3, or 6: the second half is the variance")
    up = _count(tensors, "output_blocks")
    ends = [name for name in tensors if re.fullmatch(r"output_blocks\.\d+\.[12]\.(in_layers\.0|conv)\.weight", name)]
    levels = len(ends) + 1
    layers, rest = divmod(up, levels)
    if rest or _count(tensors, "input_blocks") != levels * layers:
        given = f"{name}: {_count(tensors, 'input_blocks')} input and {up} output blocks do not form an ADM network"
        raise UserError(given)
    firsts = [1 + level * layers for level in range(levels)]
    widths = [_shape(tensors, f"input_blocks.{first}.0.out_layers.3.weight", 4, name)[0] for first in firsts]
    return Layout(
        channels=tuple(widths),
        attention=tuple(f"input_blocks.{first}.1.qkv.weight" in tensors for first in firsts),
        base=_shape(tensors, "time_embed.0.weight", 2, name)[1],
        layers=layers - 1,
        outputs=outputs,
        classes=_shape(tensors, "label_emb.weight", 2, name)[0] if "label_emb.weight" in tensors else None,
        scale_shift=_shape(tensors, "input_blocks.1.0.emb_layers.1.weight", 2, name)[0] == 2 * widths[0],
        residual_resampling=not ends or "in_layers" in ends[0],
    )


def settle(layout: Layout, path: Path, facts: Facts, size: int | None = None) -> Facts:
    """The facts that the tensors do not show, each from the first place that states it; refused if ambiguous."""
    from unswayed.files.downloads import KNOWN

    name = path.stem if path.stem in KNOWN else PUBLISHED.get((layout.channels, layout.layers))
    listed = {} if name is None else dict(KNOWN[name].facts)
    # All of them attend at 32×32 and below.
    if name != path.stem and layout.attention != tuple(
        listed.get("image_size", 0) >> level <= 32 for level in range(len(layout.channels))
    ):
        listed = {}
    stated = {**listed, **read_sidecar(path), **{key: value for key, value in facts.items() if value is not None}}
    if "num_heads" in facts and "num_head_channels" not in facts:
        stated.pop("num_head_channels", None)
    if stated.get("num_head_channels") == -1:  # in guided-diffusion: given by num_heads
        del stated["num_head_channels"]
        stated.setdefault("num_heads", DEFAULT_HEADS)
    doubts = [doubt for name in _NUMBERS if (doubt := wrong_number(name, stated.get(name)))]
    order = stated.get("qkv_order", "legacy")
    if order not in QKV_ORDERS:
        doubts.append(f"qkv_order '{order}': legacy or new")
    width, heads = stated.get("num_head_channels"), stated.get("num_heads")
    upsample_heads = stated.get("num_heads_upsample", -1)
    if width is None and upsample_heads not in (-1, heads):
        doubts.append(
            f"num_heads_upsample: {upsample_heads}, but only the same number as num_heads, {heads}, is supported"
        )
    # guided-diffusion's default first
    variances = ("learned_range",) if layout.outputs == 6 else ("fixed_large", "fixed")
    variance = stated.get("variance_type", variances[0])
    if variance not in variances:
        doubts.append(f"variance_type '{variance}': {' or '.join(variances)} with {layout.outputs} channels")
    multipliers = tuple(c / layout.base for c in layout.channels)
    size = stated.get("image_size") or MULTIPLIERS.get(multipliers) or size
    if not doubts:
        doubts += _head_doubts(layout, width, heads)
        if size is None:
            sizes = sorted(MULTIPLIERS.values())
            doubts.append(f"image_size: multipliers {multipliers} are none of guided-diffusion's {sizes}")
        elif size % 2 ** (len(layout.channels) - 1):
            doubts.append(f"image_size: {size} cannot be halved {len(layout.channels) - 1} times")
    if doubts:
        raise UserError(
            f"{path.name} does not state everything that is needed:\n  " + "\n  ".join(doubts),
            allowed=f'a sidecar {sidecar_of(path).name} with these under "config", or the same as --network-fact '
            "NAME=VALUE, in Python load_network(FILE, NAME=VALUE)",
        )
    return {
        "qkv_order": order,
        "num_head_channels": width,
        "num_heads": None if width else heads,
        "image_size": size,
        "beta_schedule": stated.get("beta_schedule", "linear"),
        "prediction_type": stated.get("prediction_type", "epsilon"),
        "variance_type": variance,
    }


def _head_doubts(layout: Layout, width: int | None, heads: int | None) -> list[str]:
    attended = zip(layout.channels, layout.attention, strict=True)
    widths = sorted({c for c, attends in attended if attends} | {layout.channels[-1]})
    possible = [w for w in (8, 16, 32, 48, 64, 96, 128) if all(c % w == 0 for c in widths)]
    if width is None and heads is None:
        return [f"num_head_channels: the tensors do not show it; one of {possible}"]
    if width is None:
        return [f"num_heads: {heads} does not divide {widths}"] if any(c % (heads or 1) for c in widths) else []
    if not any(c % width for c in widths):
        return []
    return [f"num_head_channels: {width} does not divide {widths}; one of {possible}"]


def sidecar_of(path: Path) -> Path:
    return path.with_name(path.stem.removesuffix("_weights") + ".json")


def read_sidecar(path: Path) -> Facts:
    """The facts in `<stem without _weights>.json`, under guided-diffusion's names; {} if there is no such file."""
    sidecar = sidecar_of(path)
    if not sidecar.exists():
        return {}
    config = read_object(sidecar, {"config": Facts | None}).get("config") or {}
    if config.get("diffusion_steps", TIMESTEPS) != TIMESTEPS:
        given = f"{sidecar}: the network was trained on {config['diffusion_steps']} timesteps"
        raise UserError(given, allowed=f"{TIMESTEPS}")
    names = ("num_head_channels", "num_heads", "num_heads_upsample", "image_size", "qkv_order", "prediction_type")
    stated = {key: config[key] for key in names if config.get(key) is not None}
    if config.get("noise_schedule") is not None:
        stated["beta_schedule"] = config["noise_schedule"]
    if "use_new_attention_order" in config:
        stated["qkv_order"] = "new" if config["use_new_attention_order"] else "legacy"
    if "sigma_small" in config and not config.get("learn_sigma"):
        stated["variance_type"] = "fixed" if config["sigma_small"] else "fixed_large"
    if config.get("predict_xstart"):
        stated["prediction_type"] = "sample"
    return stated


def unet_config(layout: Layout, settled: Facts) -> Facts:
    kind, down, up = "conv", "DownBlock2D", "UpBlock2D"
    if layout.residual_resampling:
        kind, down, up = "resnet", "ResnetDownsampleBlock2D", "ResnetUpsampleBlock2D"
    # 512×512: the noise level is embedded for the width of the second level, which is twice the first.
    other_time = {"time_channels": layout.base, "time_embedding_dim": 4 * layout.base}
    return {
        "sample_size": settled["image_size"],
        "in_channels": 3,
        "out_channels": layout.outputs,
        "layers_per_block": layout.layers,
        "block_out_channels": list(layout.channels),
        "down_block_types": ["AttnDownBlock2D" if attends else down for attends in layout.attention],
        "up_block_types": ["AttnUpBlock2D" if attends else up for attends in reversed(layout.attention)],
        "attention_head_dim": settled["num_head_channels"],
        "resnet_time_scale_shift": "scale_shift" if layout.scale_shift else "default",
        "downsample_type": kind,
        "upsample_type": kind,
        "attn_norm_num_groups": 32,
        "num_class_embeds": layout.classes,
        **(other_time if layout.base != layout.channels[0] else {}),
    }


def _count(tensors: dict[str, Tensor], prefix: str) -> int:
    return len({key.split(".")[1] for key in tensors if key.startswith(f"{prefix}.")})


def _shape(tensors: dict[str, Tensor], key: str, dimensions: int, name: str) -> tuple[int, ...]:
    if key not in tensors:
        raise UserError(f"{name} is not a supported ADM network: it lacks {key}", allowed="an ADM state dict")
    shape = tuple(tensors[key].shape)
    if len(shape) != dimensions or 0 in shape:
        raise UserError(f"{name}: {key} has the shape {shape}", allowed=f"{dimensions} dimensions")
    return shape


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


# Parts of diffusers' names -> of guided-diffusion's; the last two are of the classifier.
_OLD = {
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "class_embedding": "label_emb",
    "conv_in": "input_blocks.0.0",
    "mid_block.resnets.0": "middle_block.0",
    "mid_block.attentions.0": "middle_block.1",
    "mid_block.resnets.1": "middle_block.2",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
    "group_norm": "norm",
    "to_q": "qkv",
    "to_k": "qkv",
    "to_v": "qkv",
    "to_out.0": "proj_out",
    "norm_out": "out.0",
    "pool": "out.2",
}


def old_name(name: str, layout: Layout) -> str:
    """guided-diffusion's name of a tensor that has this name in diffusers."""

    def place(match: re.Match[str]) -> str:
        side, level, part, index = match[1], int(match[2]), match[3], int(match[4])
        # A level ends with its resampler: one more input block, or the last part of its last output block.
        resamples = part in ("downsamplers", "upsamplers")
        block = level * (layout.layers + (side == "up")) + (layout.layers if resamples else index)
        if side == "down":
            return f"input_blocks.{1 + level + block}.{int(part == 'attentions')}"
        after = 1 + layout.attention[-1 - level] if resamples else int(part == "attentions")
        return f"output_blocks.{block}.{after}"

    name = name.replace("downsamplers.0.conv.", "downsamplers.0.op.")
    name = re.sub(r"(down|up)_blocks\.(\d+)\.(\w+)\.(\d+)", place, name)
    return re.sub("|".join(map(re.escape, _OLD)), lambda match: _OLD[match[0]], name)


def convert(
    tensors: dict[str, Tensor], names: Iterable[str], layout: Layout, settled: Facts, where: str, kind: str
) -> dict[str, Tensor]:
    """The same numbers under diffusers' names, float32; every tensor is used or the file is refused.

    names: of the network's own tensors; kind: what the file should contain, for an error.
    """
    made: dict[str, Tensor] = {}
    left, old = dict(tensors), ""
    try:
        for name in names:
            old = old_name(name, layout)
            left.pop(old, None)
            value = tensors[old].float()
            if row := re.search(r"\.to_([qkv])\.", name):
                value = rows_of(value, "qkv".index(row[1]), settled)
            # In the original, what makes queries, keys, values and their answer are 1×1 convolutions.
            made[name] = value.flatten(1) if re.search(r"\.to_.*weight", name) else value
    except KeyError:
        raise UserError(f"{where} is not {kind}: it lacks {old}") from None
    except (IndexError, RuntimeError, ZeroDivisionError):
        raise UserError(f"{where} is not {kind}: {old} has an unexpected shape") from None
    if left:
        raise UserError(f"{where} is not {kind}: {len(left)} of its tensors, such as {next(iter(left))}, do not belong")
    return made


def rows_of(fused: Tensor, part: int, settled: Facts) -> Tensor:
    """The rows (C, …) of q, k or v in fused rows (3C, …): [head][qkv][channel] (legacy) or [qkv][head][channel] (new).

    Three equal chunks of legacy rows would load without an error and compute wrong results.
    """
    if settled["qkv_order"] == "new":
        return fused.unflatten(0, (3, -1))[part]
    heads = settled["num_heads"] or fused.shape[0] // 3 // settled["num_head_channels"]
    return fused.unflatten(0, (heads, 3, -1))[:, part].flatten(0, 1)
