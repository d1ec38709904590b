"""How deep in a network each parameter lies, for learning rates that fall from the head to the first layers.

depths_of(torchvision.models.swin_t())      # {"features.0.0.weight": 0, …, "features.1.0.norm1.weight": 1, …}
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import nn

LISTS = (nn.Sequential, nn.ModuleList)
ATTENTION = ("attention", "attn", "mhsa", "gpsa")  # in the names of classes


def depths_of(network: nn.Module) -> dict[str, int] | None:
    """The depth of every parameter by name: 0 before the first block, 1 in it, the largest behind the last one.

    It is timm's own order where the network, or a part of it, states one. None if the network has no chain of blocks.
    """
    known = _stated(network) or _in_blocks(network)
    return _in_order(network, known) if known else None


def is_transformer(network: nn.Module) -> bool:
    """Whether the network holds attention (pooling by attention apart), by the names of its classes."""
    return bool(_attention(network))


def _attention(network: nn.Module) -> list[str]:
    """The names of the parts that are attention, or a block of it."""
    kinds = {name: type(part).__name__.lower() for name, part in network.named_modules()}
    # Convolutional networks without layer norm have parts such as SplitAttn and SelectiveKernelAttn as well.
    words = ATTENTION if "layernorm" in kinds.values() else ATTENTION[:1]
    return [name for name, kind in kinds.items() if "pool" not in kind and any(word in kind for word in words)]


def _stated(network: nn.Module) -> dict[str, int]:
    """The depths by the `group_matcher` of a network of timm, also inside another; empty if there is none."""
    from timm.models import group_parameters

    for name, part in network.named_modules():
        if hasattr(part, "group_matcher"):
            stated: Any = group_parameters(part, part.group_matcher(coarse=False), reverse=True)
            # LeViT's matches none of its own names, which leaves one group.
            if len(set(stated.values())) > 1:
                return {f"{name}.{one}" if name else one: depth for one, depth in stated.items()}
    return {}


def _in_blocks(network: nn.Module) -> dict[str, int]:
    """The depths of the parameters inside the repeated blocks: 1 in the first block; empty without such blocks."""
    places = {block: depth for depth, block in enumerate(_blocks(network), start=1)}
    return {name: places[owner] for name, _ in network.named_parameters() for owner in _above(name) if owner in places}


def _blocks(network: nn.Module) -> list[str]:
    """The names of the repeated blocks in their order: numbered parts of lists of layers.

    In a transformer they are the innermost parts that hold attention as others beside them do, so that a stage is
    divided into its blocks; in other networks the outermost parts that consist of layers, if they share one owner.
    """
    parts = dict(network.named_modules())
    lists = {name for name, part in parts.items() if isinstance(part, LISTS)}
    numbered = [name for name in parts if name[-1:].isdigit() and _above(name)[-1] in lists]
    attention = _attention(network)
    if attention:
        holders = {owner for name in attention for owner in (*_above(name), name)}
        holding = [name for name in numbered if name in holders]
        beside = Counter(_above(name)[-1] for name in holding)
        found = [name for name in holding if beside[_above(name)[-1]] > 1]
        outer = {owner for name in found for owner in _above(name)}
        return [name for name in found if name not in outer]
    composed = {name for name in numbered if any(parts[name].children()) and type(parts[name]) not in LISTS}
    blocks = [name for name in numbered if name in composed and composed.isdisjoint(_above(name))]
    # The branches of GoogLeNet's parts run side by side.
    owners = {tuple(owner for owner in _above(name) if owner not in lists) for name in blocks}
    return blocks if len(blocks) > 1 and len(owners) == 1 else []


def _above(name: str) -> list[str]:
    """The names of the parts that hold the named one, from the network itself, whose name is empty."""
    parts = name.split(".")
    return ["", *(".".join(parts[:end]) for end in range(1, len(parts)))]


def _in_order(network: nn.Module, known: dict[str, int]) -> dict[str, int]:
    """The known depths, and the others by their place: 0 before, the depth of the block before, or behind all."""
    names = [name for name, _ in network.named_parameters()]
    last = max(place for place, name in enumerate(names) if name in known)
    behind = max(known.values()) + 1
    depths, depth = {}, 0
    for place, name in enumerate(names):
        if name in known:
            depth = known[name]
        # CLIP's projection follows the blocks; it is not a layer, and torch lists such parameters first.
        projection = name.rpartition(".")[2] == "proj"
        depths[name] = behind if name not in known and (place > last or projection) else depth
    return depths
