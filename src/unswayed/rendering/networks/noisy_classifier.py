"""guided-diffusion's noisy ImageNet classifier, a guide for adversarial edits: the encoder half of an ADM network.

classifier, digest = load_noisy_classifier("256x256_classifier.pt")
logits = classifier(x)                       # (N, 3, 256, 256) in [−1, 1] -> (N, 1000)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unswayed.errors import UserError, need

from . import fill, read_tensors, refuse_broken
from .adm import MULTIPLIERS, convert, read_sidecar


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

    def __init__(self, base: int, plan: list[tuple[int, int, bool, bool]], pool: tuple[int, int, int]) -> None:
        """plan: (inputs, outputs, halves, attends) of each block; pool: positions, head channels, classes."""
        super().__init__()
        need("diffusers", "diffusers")
        from diffusers.models.embeddings import TimestepEmbedding, Timesteps

        positions, head, self.classes = pool
        self.size = math.isqrt(positions - 1) * 2 ** sum(halves for _, _, halves, _ in plan)
        width = plan[-1][1]
        self.time_proj = Timesteps(base, True, 0)
        self.time_embedding = TimestepEmbedding(base, 4 * base)
        self.conv_in = nn.Conv2d(3, base, 3, padding=1)
        self.blocks = nn.ModuleList(_block(i, o, 4 * base, halves) for i, o, halves, _ in plan)
        self.attentions = nn.ModuleList(_attention(o, head) if attends else nn.Identity() for _, o, _, attends in plan)
        self.middle = nn.ModuleList(
            [_block(width, width, 4 * base), _attention(width, head), _block(width, width, 4 * base)]
        )
        self.norm_out = nn.GroupNorm(32, width)
        self.pool = AttentionPool(positions, width, head, self.classes)

    def forward(self, x: Tensor, t: Tensor | None = None) -> Tensor:
        times = torch.zeros(x.shape[0], device=x.device) if t is None else t
        level = self.time_embedding(self.time_proj(times).to(x.dtype))
        hidden = self.conv_in(x)
        for block, attention in zip(self.blocks, self.attentions, strict=True):
            hidden = attention(block(hidden, level))
        hidden = self.middle[2](self.middle[1](self.middle[0](hidden, level)), level)
        return self.pool(F.silu(self.norm_out(hidden)))


def load_noisy_classifier(path: str | Path, **facts: Any) -> tuple[NoisyClassifier, str]:
    """(classifier in float32, SHA-256 of its file) of a guided-diffusion classifier with attention pooling."""
    from unswayed.files.downloads import KNOWN, recognized

    path = Path(path)
    digest, tensors = recognized(path), read_tensors(path)
    listed = dict(KNOWN[path.stem].facts) if path.stem in KNOWN else {}
    stated = {"num_head_channels": 64, "qkv_order": "legacy", **listed, **read_sidecar(path), **facts}
    settled = {**stated, "num_heads": None}
    if "out.2.positional_embedding" not in tensors or "input_blocks.0.0.weight" not in tensors:
        raise UserError(
            f"{path} is not a guided-diffusion classifier: it has no out.2.positional_embedding",
            allowed="a classifier file of guided-diffusion with attention pooling, such as 256x256_classifier.pt",
        )
    try:
        base = tensors["input_blocks.0.0.weight"].shape[0]
        plan = _plan(tensors, base, path)
        pool = (
            tensors["out.2.positional_embedding"].shape[1],
            stated["num_head_channels"],
            tensors["out.2.c_proj.bias"].shape[0],
        )
        classifier = NoisyClassifier(base, plan, pool)
        converted = convert(tensors, _parts(plan), settled, str(path), "a guided-diffusion classifier")
    except (KeyError, IndexError, ValueError, ZeroDivisionError, RuntimeError) as error:
        raise UserError(f"{path} is not a guided-diffusion classifier: {type(error).__name__}: {error}") from None
    fill(classifier, converted, str(path))
    refuse_broken(classifier, str(path))
    return classifier.eval().requires_grad_(False), digest


def _plan(tensors: dict[str, Tensor], base: int, path: Path) -> list[tuple[int, int, bool, bool]]:
    """The blocks' plan; which blocks halve the picture follows from the guided-diffusion layout with these widths."""
    count = len({key.split(".")[1] for key in tensors if key.startswith("input_blocks.")}) - 1
    widths = [tensors[f"input_blocks.{i}.0.out_layers.3.weight"].shape[0] for i in range(1, count + 1)]
    for multipliers in MULTIPLIERS:
        depth, rest = divmod(count + 1, len(multipliers))
        blocks = [depth] * (len(multipliers) - 1) + [depth - 1]
        expected = [int(base * m) for m, count_ in zip(multipliers, blocks, strict=True) for _ in range(count_)]
        if rest == 0 and expected == widths:
            ends = {depth * (level + 1) - 1 for level in range(len(multipliers) - 1)}
            before = [base, *widths[:-1]]
            attends = [f"input_blocks.{i}.1.qkv.weight" in tensors for i in range(1, count + 1)]
            return [(before[i], widths[i], i in ends, attends[i]) for i in range(count)]
    raise UserError(
        f"{path}: block widths {widths} do not match any guided-diffusion classifier",
        allowed=f"multipliers {', '.join(map(str, MULTIPLIERS))} with residual down-sampling",
    )


def _parts(plan: list[tuple[int, int, bool, bool]]) -> Iterator[tuple[str, str, str]]:
    """(old prefix, new prefix, kind) of every part of the classifier, in guided-diffusion's order."""
    yield "time_embed.0", "time_embedding.linear_1", "layer"
    yield "time_embed.2", "time_embedding.linear_2", "layer"
    yield "input_blocks.0.0", "conv_in", "layer"
    for i, (_, _, _, attends) in enumerate(plan):
        yield f"input_blocks.{i + 1}.0", f"blocks.{i}", "block"
        if attends:
            yield f"input_blocks.{i + 1}.1", f"attentions.{i}", "attention"
    yield "middle_block.0", "middle.0", "block"
    yield "middle_block.1", "middle.1", "attention"
    yield "middle_block.2", "middle.2", "block"
    yield "out.0", "norm_out", "layer"
    yield "out.2.qkv_proj", "pool.qkv_proj", "layer"
    yield "out.2.c_proj", "pool.c_proj", "layer"
    yield "out.2.positional_embedding", "pool.positional_embedding", "tensor"


def _block(inputs: int, outputs: int, embedding: int, halves: bool = False) -> nn.Module:
    from diffusers.models.resnet import ResnetBlock2D

    return ResnetBlock2D(
        in_channels=inputs,
        out_channels=outputs,
        temb_channels=embedding,
        eps=1e-5,
        time_embedding_norm="scale_shift",
        down=halves,
    )


def _attention(channels: int, head: int) -> nn.Module:
    from diffusers.models.attention_processor import Attention

    return Attention(
        channels,
        heads=channels // head,
        dim_head=head,
        eps=1e-5,
        norm_num_groups=32,
        residual_connection=True,
        bias=True,
        _from_deprecated_attn_block=True,
    )
