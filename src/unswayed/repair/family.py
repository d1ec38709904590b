"""What is trained in a network and how fast: defaults for convolutional networks, transformers and random weights."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from unswayed.errors import UserError
from unswayed.files.whole import Json
from unswayed.models.classifier import Classifier
from unswayed.models.heads import classification_layer
from unswayed.models.opening import model_spec

from .settings import RepairSettings

SMALL_DATA = 20_000  # photographs below which batch-norm statistics are left as they were trained
HEAD_RATE = 3e-3


@dataclass(frozen=True)
class Family:
    """Defaults of a family of networks: learning rate of AdamW and its decay from the last block to the first."""

    name: str
    learning_rate: float
    layer_decay: float | None


CONVOLUTIONAL = Family("convolutional", 5e-4, None)
TRANSFORMER = Family("transformer", 2e-4, 0.75)
FROM_SCRATCH = Family("random weights", 1e-3, None)


def family_of(model: Classifier) -> Family:
    """The family: a network with random weights (`?weights=none`), or by whether it holds attention."""
    with contextlib.suppress(UserError):  # the name of an object, which no source opens
        if model_spec(model.spec).options.get("weights") == "none":
            return FROM_SCRATCH
    return TRANSFORMER if _attention(model.module) else CONVOLUTIONAL


def check_trainable(model: Classifier, settings: RepairSettings) -> None:
    """Raise UserError if the network cannot be fine-tuned, or not with these settings."""
    if not any(weight.is_floating_point() for weight in model.module.parameters()):
        raise UserError(
            f"{model.name} has no trainable parameters",
            allowed="a torch model: timm, torchvision, lite, python, repaired",
        )
    if model.wraps is not None or model.adapt is not None:
        raise UserError(
            f"{model.name} is a wrapped model, of which only the model inside can be trained",
            allowed="the model without +WRAPPER",
        )
    if settings.layer_decay is not None and depths_of(model.module) is None:
        raise UserError(
            f"layer_decay is {settings.layer_decay}, but {model.name} has no chain of repeated blocks",
            allowed="a network with numbered blocks in a ModuleList or Sequential, or no --layer-decay",
        )


def choose_parameters(model: Classifier, module: nn.Module, settings: RepairSettings) -> list[str]:
    """The names of the parameters that are trained, and gradients turned on for these alone."""
    check_trainable(model, settings)
    named = dict(module.named_parameters())
    part = settings.train or "all"
    wanted = list(named) if part == "all" else _later(model, module, part)
    for name, parameter in named.items():
        parameter.requires_grad_(name in wanted and parameter.is_floating_point())
    return [name for name in named if name in wanted]


def make_optimizer(
    family: Family, module: nn.Module, settings: RepairSettings, photographs: int
) -> tuple[Optimizer, Json]:
    """AdamW over the parameters with gradients, and the settings that the family decided, for the card."""
    from timm.optim import create_optimizer_v2, param_groups_layer_decay

    rate = settings.learning_rate or (HEAD_RATE if settings.train == "head" else family.learning_rate)
    depths = depths_of(module)
    decay = settings.layer_decay or (family.layer_decay if settings.train in (None, "all") and depths else None)
    # Random weights have no statistics that are worth keeping.
    few = photographs < SMALL_DATA and family is not FROM_SCRATCH
    freeze = few if settings.freeze_norm is None else settings.freeze_norm
    trained: Any = module
    if decay is not None:
        spared: set[str] = getattr(module, "no_weight_decay", set)()
        matcher = (depths or {}).get
        # What timm asks of a network, with the depths of any network.
        ordered: Any = SimpleNamespace(named_parameters=module.named_parameters, group_matcher=lambda coarse: matcher)
        trained = param_groups_layer_decay(ordered, settings.weight_decay, spared, layer_decay=decay)
    # foreach is fixed, since its default depends on the device and its sums round in another order.
    optimizer = create_optimizer_v2(trained, opt="adamw", lr=rate, weight_decay=settings.weight_decay, foreach=True)
    for group in optimizer.param_groups:
        group["rate"] = rate * group.get("lr_scale", 1.0)
    return optimizer, {"family": family.name, "learning_rate": rate, "layer_decay": decay, "freeze_norm": freeze}


def training_mode(module: nn.Module, freeze_norm: bool) -> None:
    """Training mode; with batch-norm statistics kept as they are where they are frozen."""
    module.train()
    if freeze_norm:
        for part in module.modules():
            if isinstance(part, _BatchNorm):
                part.eval()


def _later(model: Classifier, module: nn.Module, part: str) -> list[str]:
    """The parameters of the classification layer; for `last` also those of the last third of the blocks before it."""
    network: object = module
    classifier = network.get_classifier() if hasattr(network, "get_classifier") else None
    if isinstance(classifier, nn.Module):
        ids = set(map(id, classifier.parameters()))
        head = [name for name, weight in module.named_parameters() if id(weight) in ids]
    else:
        layer = classification_layer(model)
        head = [name for name, _ in module.named_parameters() if name.startswith(f"{layer}.")]
    if not head:
        raise UserError(f"the classification layer of {model.name} was not found", allowed="--train all")
    if part == "head":
        return head
    depths = depths_of(module)
    if depths:
        behind = max(depths.values())
        first = behind - max((behind - 1) // 3, 1)
        return [name for name, depth in depths.items() if name in head or depth >= first]
    blocks = list(dict.fromkeys(_block(name) for name, _ in module.named_parameters()))
    last = set(blocks[-max(len(blocks) // 3, 1) :])
    return [name for name, _ in module.named_parameters() if name in head or _block(name) in last]


def _block(name: str) -> str:
    """The block that a parameter belongs to: its name up to the first number, or its first part."""
    parts = name.split(".")
    first = next((index for index, part in enumerate(parts) if part.isdigit()), 0)
    return ".".join(parts[: first + 1])


LISTS = (nn.Sequential, nn.ModuleList)
ATTENTION = ("attention", "attn", "mhsa", "gpsa")  # in the names of classes


def depths_of(network: nn.Module) -> dict[str, int] | None:
    """The depth of every parameter by name: 0 before the first block, 1 in it, the largest behind the last one.

    It is timm's own order where the network, or a part of it, states one. None if the network has no chain of blocks.
    """
    known = _stated(network)
    if not known:
        blocks = {block: depth for depth, block in enumerate(_blocks(network), start=1)}
        owners = ((name, owner) for name, _ in network.named_parameters() for owner in _above(name))
        known = {name: blocks[owner] for name, owner in owners if owner in blocks}
    return _in_order(network, known) if known else None


def _attention(network: nn.Module) -> list[str]:
    """The names of the parts that are attention, or a block of it, by their classes; pooling by attention apart."""
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
                return {f"{name}.{inner}" if name else inner: depth for inner, depth in stated.items()}
    return {}


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
        repeated = [name for name in holding if beside[_above(name)[-1]] > 1]
        outer = {owner for name in repeated for owner in _above(name)}
        return [name for name in repeated if name not in outer]
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
    """The known depths, and the others by their position: 0 before, the depth of the block before, or behind all."""
    names = [name for name, _ in network.named_parameters()]
    last = max(index for index, name in enumerate(names) if name in known)
    behind = max(known.values()) + 1
    depths, depth = {}, 0
    for index, name in enumerate(names):
        if name in known:
            depth = known[name]
        # CLIP's projection follows the blocks; it is not a layer, and torch lists such parameters first.
        projection = name.rpartition(".")[2] == "proj"
        depths[name] = behind if name not in known and (index > last or projection) else depth
    return depths
