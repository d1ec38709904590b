"""guided-diffusion's noisy ImageNet classifier, a guide for adversarial edits: the encoder half of an ADM network.

classifier, digest = load_noisy_classifier("256x256_classifier.pt")
logits = classifier(x)                       # (N, 3, 256, 256) in [−1, 1] -> (N, 1000)
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unswayed.errors import UserError

from . import Facts, fill, read_tensors, refuse_broken
from .adm import MULTIPLIERS, Layout, convert, read_sidecar, unet_config
from .diffusers_unet import build_unet


class AttentionPool(nn.Module):
    """Attention pooling with the mean as query (as in CLIP): features (N, C, h, w) -> logits (N, classes)."""

    def __init__(self, positions: int, channels: int, head_channels: int, classes: int) -> None:
        super().__init__()
        self.heads = channels // head_channels
        self.positional_embedding = nn.Parameter(torch.zeros(channels, positions))
        self.qkv_proj = nn.Conv1d(channels, 3 * channels, 1)
        self.c_proj = nn.Conv1d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(2)
        tokens = torch.cat([flat.mean(dim=-1, keepdim=True), flat], dim=-1) + self.positional_embedding
        n, channels, positions = tokens.shape
        # This layer's rows are ordered [q, k, v][head][channel] in every released file, unlike other layers.
        q, k, v = (
            self.qkv_proj(tokens).view(n, 3, self.heads, channels // self.heads, positions).transpose(-1, -2).unbind(1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(n, channels, positions)
        return self.c_proj(mixed)[:, :, 0]


class NoisyClassifier(nn.Module):
    """x (N, 3, S, S) in [−1, 1] and t (N,) on the 0…999 scale (0: a clean picture) -> logits (N, classes)."""

    def __init__(self, layout: Layout, settled: Facts, positions: int, classes: int) -> None:
        """positions: of the pooled features, and one for their mean."""
        super().__init__()
        self.size, self.classes = math.isqrt(positions - 1) * 2 ** (len(layout.channels) - 1), classes
        unet = build_unet(unet_config(layout, {**settled, "image_size": self.size})).unet
        self.time_proj, self.time_embedding, self.conv_in = unet.time_proj, unet.time_embedding, unet.conv_in
        self.down_blocks, self.mid_block = unet.down_blocks, unet.mid_block
        self.norm_out = nn.GroupNorm(32, layout.channels[-1])
        self.pool = AttentionPool(positions, layout.channels[-1], settled["num_head_channels"], classes)

    def forward(self, x: Tensor, t: Tensor | None = None) -> Tensor:
        times = torch.zeros(x.shape[0], device=x.device) if t is None else t
        level = self.time_embedding(self.time_proj(times).to(x.dtype))
        hidden = self.conv_in(x)
        for block in self.down_blocks:
            hidden, _ = block(hidden, level)
        return self.pool(F.silu(self.norm_out(self.mid_block(hidden, level))))


def load_noisy_classifier(path: str | Path) -> tuple[NoisyClassifier, str]:
    """(classifier in float32, SHA-256 of its file) of a guided-diffusion classifier with attention pooling."""
    from unswayed.files.downloads import KNOWN, recognized

    path = Path(path)
    digest, tensors = recognized(path), read_tensors(path)
    listed = dict(KNOWN[path.stem].facts) if path.stem in KNOWN else {}
    settled = {"num_head_channels": 64, "qkv_order": "legacy", **listed, **read_sidecar(path), "num_heads": None}
    if "out.2.positional_embedding" not in tensors or "input_blocks.0.0.weight" not in tensors:
        raise UserError(
            f"{path} is not a guided-diffusion classifier: it has no out.2.positional_embedding",
            allowed="a classifier file of guided-diffusion with attention pooling, such as 256x256_classifier.pt",
        )
    try:
        layout = _layout(tensors, path)
        positions, classes = tensors["out.2.positional_embedding"].shape[1], tensors["out.2.c_proj.bias"].shape[0]
        classifier = NoisyClassifier(layout, settled, positions, classes)
        own = classifier.state_dict()
        converted = convert(tensors, own, layout, settled, str(path), "a guided-diffusion classifier")
    except (KeyError, IndexError, ValueError, ZeroDivisionError, RuntimeError) as error:
        raise UserError(f"{path} is not a guided-diffusion classifier: {type(error).__name__}: {error}") from None
    fill(classifier, converted, str(path))
    refuse_broken(classifier, str(path))
    return classifier.eval().requires_grad_(False), digest


def _layout(tensors: dict[str, Tensor], path: Path) -> Layout:
    """The layout of the encoder: the one of guided-diffusion with these widths."""
    base = tensors["time_embed.0.weight"].shape[1]
    count = len({key.split(".")[1] for key in tensors if key.startswith("input_blocks.")}) - 1
    widths = [tensors[f"input_blocks.{i}.0.out_layers.3.weight"].shape[0] for i in range(1, count + 1)]
    for multipliers in MULTIPLIERS:
        depth, rest = divmod(count + 1, len(multipliers))
        channels = tuple(int(base * multiplier) for multiplier in multipliers)
        # A block at the end of every level but the last one halves the picture.
        if rest == 0 and [width for width in channels for _ in range(depth)][:-1] == widths:
            firsts = range(1, count + 2, depth)
            attends = tuple(f"input_blocks.{first}.1.qkv.weight" in tensors for first in firsts)
            return Layout(channels, attends, base, depth - 1, 3, None, scale_shift=True, residual_resampling=True)
    raise UserError(
        f"{path}: block widths {widths} do not match any guided-diffusion classifier",
        allowed=f"multipliers {', '.join(map(str, MULTIPLIERS))} with residual down-sampling",
    )
