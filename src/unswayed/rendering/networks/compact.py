"""The compact diffusion network that the package contains: a small pixel-space UNet, with saving and loading.

`load_compact()` returns the embedded one. It sees the noisy picture and, where pixels are known, those pixels as they
are, so that it draws backgrounds around an object and fills holes. It predicts v (Salimans & Ho 2022) and, per pixel,
the expected square of its error: the ancestral sampler adds a share of it (`doubt`) to its variance, which prevents
blurred texture. Norms are RMS over channels at each pixel, so only the attention at 16×16 connects distant parts of a
picture.
"""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from msgspec import Meta
from torch import Tensor, nn

from unswayed.errors import UnswayedWarning, UserError
from unswayed.files.records import checked, read_object
from unswayed.files.tensor_files import read_tensor_file, write_tensor_file
from unswayed.files.whole import Json, write_json

from . import fill

Count = Annotated[int, Meta(ge=1, lt=100_000)]


@dataclass(frozen=True)
class CompactConfig:
    """The network's shape, and the facts that a sampler needs to use it.

    channels: at 1/2, 1/4, 1/8 and 1/16 of the picture's side; encoder, decoder: residual blocks at the first three;
    middle: residual + attention blocks at the last. inputs: 3, or 7 with the known pixels and where they are. doubt:
    the share of the predicted error variance that the ancestral sampler adds to the posterior variance.
    """

    channels: Annotated[tuple[Count, ...], Meta(min_length=2)] = (48, 128, 224, 384)
    encoder: tuple[Annotated[int, Meta(ge=0, lt=100_000)], ...] = (0, 2, 2)
    middle: Annotated[int, Meta(ge=0, lt=100_000)] = 5
    decoder: tuple[Count, ...] = (1, 2, 3)
    embedding: Count = 384
    inputs: Literal[3, 7] = 7
    head_channels: Count = 64
    sample_size: Count = 256
    prediction_type: str = "v_prediction"
    beta_schedule: str = "linear"
    variance_type: str = "error"
    doubt: Annotated[float, Meta(ge=0, lt=100_000)] = 2.0
    trained: Json = field(default_factory=dict)


class Pointwise(nn.Conv2d):
    """A 1×1 convolution as a matrix product: unlike conv2d, its CPU result does not depend on the number of threads."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x.permute(0, 2, 3, 1), self.weight.flatten(1), self.bias).permute(0, 3, 1, 2)


def _without_bias(convolution: nn.Conv2d, x: Tensor) -> Tensor:
    return F.conv2d(x, convolution.weight, padding=convolution.padding)


def _kernels(x: Tensor) -> ModuleType | None:
    """The module `fused` where its kernels take this tensor: on a GPU, in half precision, without gradients."""
    takes = (
        x.device.type == "cuda"
        and x.dtype in (torch.bfloat16, torch.float16)
        and x.is_contiguous(memory_format=torch.channels_last)
        and not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
    )
    return _fused() if takes else None


@functools.cache
def _fused() -> ModuleType | None:
    """The module `fused`; None, with a warning, where Triton is missing or finds no compiler."""
    try:
        from . import fused

        x = torch.ones(1, 16, 1, 1, dtype=torch.bfloat16, device="cuda").to(memory_format=torch.channels_last)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Triton, about its own defaults
            fused.normalized(x, x, None, None, silu=True)
    except Exception as error:
        text = f"Triton's kernels cannot be used, so a pass takes twice as long: {type(error).__name__}: {error}"
        warnings.warn(text, UnswayedWarning, stacklevel=2)
        return None
    return fused


class RMSNorm(nn.Module):
    """Each pixel's channels divided by their root mean square, in float32, times a learned gain."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor, silu: bool = False) -> Tensor:
        if (kernels := _kernels(x)) is not None:
            return kernels.normalized(x, self.gain, None, None, silu)
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=1, keepdim=True) + 1e-6)
        normed = (wide * scale * self.gain.view(1, -1, 1, 1)).to(x.dtype)
        return F.silu(normed) if silu else normed


class ResidualBlock(nn.Module):
    """norm, SiLU, 3×3, norm · (1 + scale) + shift by the noise level, SiLU, 3×3, plus the shortcut."""

    def __init__(self, inputs: int, outputs: int, embedding: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(inputs), RMSNorm(outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.modulation = nn.Linear(embedding, 2 * outputs)
        self.shortcut = Pointwise(inputs, outputs) if inputs != outputs else nn.Identity()
        for weight in (self.conv2.weight, self.modulation.weight, self.modulation.bias):
            nn.init.zeros_(weight)

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        if x.device.type == "cuda":  # shuffled pixels have another layout
            x = x.contiguous(memory_format=torch.channels_last)
        scale, shift = self.modulation(level).chunk(2, dim=1)
        if (kernels := _kernels(x)) is not None:
            hidden = _without_bias(self.conv1, self.norm1(x, silu=True))
            hidden = kernels.normalized(hidden, self.norm2.gain, self.conv1.bias, (scale, shift), silu=True)
            return kernels.joined(self.shortcut(x), _without_bias(self.conv2, hidden), self.conv2.bias)
        hidden = self.conv1(self.norm1(x, silu=True))
        hidden = self.conv2(F.silu(self.norm2(hidden) * (1 + scale[:, :, None, None]) + shift[:, :, None, None]))
        return self.shortcut(x) + hidden


class Attention(nn.Module):
    """Self-attention over all positions of a feature map, with normalized queries and keys."""

    def __init__(self, channels: int, head_channels: int) -> None:
        super().__init__()
        self.heads = channels // head_channels
        self.norm = RMSNorm(channels)
        self.qkv = Pointwise(channels, 3 * channels)
        self.out = Pointwise(channels, channels)
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor) -> Tensor:
        n, channels, high, wide = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, 3, self.heads, -1, high * wide).transpose(-1, -2).unbind(1)
        q, k = F.normalize(q.float(), dim=-1).to(v.dtype), F.normalize(k.float(), dim=-1).to(v.dtype)
        mixed = F.scaled_dot_product_attention(q, k, v, scale=math.sqrt(q.shape[-1]))
        return x + self.out(mixed.transpose(-1, -2).reshape(n, channels, high, wide))


class CompactNetwork(nn.Module):
    """Noisy pictures x (N, 3, H, W) and t (N,) on the 0…999 scale -> (N, 6, H, W): v, and the log of its squared error.

    known: (N, 4, H, W), the clean pixels where they are known and 0 elsewhere, then 1 where they are known; None if
    nothing is. H and W are multiples of 16.
    """

    def __init__(self, config: CompactConfig) -> None:
        super().__init__()
        self.config = config
        c, e = config.channels, config.embedding
        self.embed = nn.Sequential(nn.Linear(256, e), nn.SiLU(), nn.Linear(e, e), nn.SiLU())
        self.conv_in = nn.Conv2d(4 * config.inputs, c[0], 3, padding=1)
        self.encoder = nn.ModuleList(
            nn.ModuleList(ResidualBlock(c[i], c[i], e) for _ in range(count)) for i, count in enumerate(config.encoder)
        )
        self.down = nn.ModuleList(
            nn.Sequential(nn.PixelUnshuffle(2), Pointwise(4 * c[i], c[i + 1])) for i in range(len(c) - 1)
        )
        self.middle = nn.ModuleList(
            nn.ModuleList([ResidualBlock(c[-1], c[-1], e), Attention(c[-1], config.head_channels)])
            for _ in range(config.middle)
        )
        self.up = nn.ModuleList(
            nn.Sequential(Pointwise(c[i + 1], 4 * c[i]), nn.PixelShuffle(2)) for i in range(len(c) - 1)
        )
        self.decoder = nn.ModuleList(
            nn.ModuleList(ResidualBlock(c[i] if block else 2 * c[i], c[i], e) for block in range(count))
            for i, count in enumerate(config.decoder)
        )
        self.norm_out = RMSNorm(c[0])
        self.conv_out = nn.Conv2d(c[0], 24, 3, padding=1)
        nn.init.zeros_(self.conv_out.weight)

    def forward(self, x: Tensor, t: Tensor, known: Tensor | None = None) -> Tensor:
        level = self.embed(_sinusoids(t).to(self.conv_in.weight.dtype))
        if self.config.inputs > 3:
            x = torch.cat([x, x.new_zeros(len(x), 4, *x.shape[2:]) if known is None else known], dim=1)
        hidden = self.conv_in(F.pixel_unshuffle(x, 2))
        skips = []
        for blocks, down in zip(self.encoder, self.down, strict=True):
            for block in blocks:  # type: ignore[attr-defined]
                hidden = block(hidden, level)
            skips.append(hidden)
            hidden = down(hidden)
        for block, attention in self.middle:  # type: ignore[misc]
            hidden = attention(block(hidden, level))  # type: ignore[has-type]
        for blocks, up, skip in zip(reversed(self.decoder), reversed(self.up), reversed(skips), strict=True):
            hidden = torch.cat([up(hidden), skip], dim=1)
            for block in blocks:  # type: ignore[attr-defined]
                hidden = block(hidden, level)
        return F.pixel_shuffle(self.conv_out(self.norm_out(hidden, silu=True)), 2)


def _sinusoids(t: Tensor, width: int = 256) -> Tensor:
    """(N,) noise levels on the 0…999 scale -> (N, width) float32 sines and cosines."""
    frequencies = torch.exp(-math.log(10000.0) / (width // 2) * torch.arange(width // 2, device=t.device))
    angles = t.float()[:, None] * frequencies[None]
    return torch.cat([angles.cos(), angles.sin()], dim=1)


EMBEDDED = Path(str(resources.files("unswayed.data").joinpath("network")))
TRAIN = "unswayed train-network PHOTOS -o DIR"
_SCALE = "/scale"  # beside the integers of a tensor


def save_compact(network: CompactNetwork, folder: str | Path, exact: bool = False) -> None:
    """Write `network.safetensors` and `config.json` into the folder.

    Unless exact, matrices and kernels become 8-bit integers with a scale for each output, the rest float16: a quarter
    of the size, and a loss that differs by less than a thousandth.
    """
    tensors = {name: value.detach().cpu().float() for name, value in network.state_dict().items()}
    if not exact:
        for name, value in list(tensors.items()):
            if value.ndim > 1:
                scale = value.abs().flatten(1).amax(dim=1).clamp_min(1e-12) / 127
                whole = (value / scale.view(-1, *[1] * (value.ndim - 1))).round().to(torch.int8)
                tensors |= {name: whole.contiguous(), name + _SCALE: scale}
            else:
                tensors[name] = value.half()
    write_tensor_file(Path(folder) / "network.safetensors", tensors)
    write_json(Path(folder) / "config.json", asdict(network.config))


def load_compact(folder: str | Path = EMBEDDED) -> CompactNetwork:
    """The network of a folder that `save_compact` wrote, by default the embedded one; float32, ready to evaluate."""
    path = Path(folder)
    config = read_config(path / "config.json")
    tensors = read_tensor_file(path / "network.safetensors", run=TRAIN)
    network = CompactNetwork(config)
    floats = {name: value.float() for name, value in tensors.items()}
    for name in [name for name in floats if name.endswith(_SCALE)]:
        scale, whole = floats.pop(name), floats.get(name.removesuffix(_SCALE))
        if whole is None or whole.shape[:1] != scale.shape:
            raise UserError(f"{path}: {name} belongs to no tensor of its length", run=TRAIN)
        floats[name.removesuffix(_SCALE)] = whole * scale.view(-1, *[1] * (whole.ndim - 1))
    fill(network, floats, str(path), run=TRAIN)
    return network.eval().requires_grad_(False)


def read_config(path: str | Path) -> CompactConfig:
    values, known = read_object(path), CompactConfig.__dataclass_fields__
    if set(values) - set(known):
        raise UserError(f"{path} is not the config of a compact network", allowed=", ".join(sorted(known)))
    missing = sorted(set(known) - {"trained", "inputs"} - set(values))
    if missing:
        raise UserError(f"{path} does not state {', '.join(missing)}", run=TRAIN)
    config = checked(CompactConfig, {"inputs": 3, **values}, str(path))
    levels = len(config.channels)
    wrong = {
        "encoder": len(config.encoder) != levels - 1,
        "decoder": len(config.decoder) != levels - 1,
        "head_channels": config.channels[-1] % config.head_channels,
        "sample_size": config.sample_size % 2**levels,
    }
    for name in filter(wrong.get, wrong):
        raise UserError(f"{path} is not the config of a compact network: {name} is {getattr(config, name)!r}")
    return config
