"""`timm:NAME`: any pretrained model of timm; `timm:NAME?checkpoint=FILE`: its architecture with other weights.

Every other option is a keyword of `timm.create_model`: `?global_pool=avg&drop_path_rate=0`. Importing this module also
registers `hybrid_resnet50_vits` with timm: the third stage of a ResNet-50 feeds the blocks of a ViT-S (ImageNet-E,
section 5.2).
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
import sys
from functools import partial
from typing import Any

import torch
from torch import nn

from unswayed.errors import UserError, check_known, unknown
from unswayed.labels import LabelSpace, imagenet
from unswayed.specs import Spec

from .libraries import timm  # isort: split

from timm.data import ImageNetInfo, infer_imagenet_subset, resolve_model_data_config
from timm.models import build_model_with_cfg, register_model
from timm.models.vision_transformer import VisionTransformer
from timm.models.vision_transformer_hybrid import HybridEmbed

from .classifier import Classifier, assumed, classifier_of
from .foreign_transforms import from_timm
from .label_mapping import labels_from, unnamed
from .transforms import COMMON, IMAGENET_MEAN, IMAGENET_STD
from .weights import available, best_names, classes_in, load_foreign, read_state

OWN = ("checkpoint", "weights", *COMMON)
REMOTE = ("hf-hub:", "hf_hub:", "local-dir:")


def open_timm(spec: Spec, labels: LabelSpace | None = None, **where: str | None) -> Classifier:
    """A timm model under its own data config; pretrained unless a checkpoint is given."""
    if spec.options.get("weights", "none") != "none":
        raise UserError(
            f"the option weights is '{spec.options['weights']}'", allowed="weights=none: random weights, to be trained"
        )
    if not spec.name.startswith(REMOTE) and not timm.is_model(spec.name):
        raise unknown("model in timm", spec.name, timm.list_models(), run="python -c 'import timm; timm.list_models()'")
    keywords = {name: _literal(value) for name, value in spec.options.items() if name not in OWN}
    checkpoint = spec.options.get("checkpoint")
    if checkpoint:
        state = read_state(checkpoint)
        module = _created(spec, keywords)
        classes = classes_in(state, module, _classifier(module))
        if classes not in (None, module.num_classes) and "num_classes" not in spec.options:
            module = _created(spec, keywords, num_classes=classes)
        _load(module, state, checkpoint)
    elif "weights" in spec.options:
        module = _created(spec, keywords)
    else:
        _check_pretrained(spec.name)
        with available(spec):
            module = _created(spec, keywords, pretrained=True)
    transform = from_timm(resolve_model_data_config(module))
    space = labels_from(spec.options, outputs=module.num_classes) or label_space(module)
    origin = {"library": f"timm {timm.__version__}", "architecture": module.pretrained_cfg.get("architecture")}
    if "." not in spec.name:  # with a tag, the preprocessing is that of the weights that the user named
        name = ".".join(filter(None, (spec.name, module.pretrained_cfg.get("tag"))))
        origin |= assumed(spec, transform, f"that of timm's {name}")
    return classifier_of(spec, module, transform, space, where, origin | ({"settings": keywords} if keywords else {}))


def _check_pretrained(name: str) -> None:
    """Raise UserError if timm has no weights of that name."""
    if name.startswith(REMOTE):
        return
    architecture, _, tag = name.partition(".")
    tags = [known for known in timm.list_pretrained(f"{architecture}.*") if known.startswith(f"{architecture}.")]
    if tag and name not in tags:
        raise unknown(f"pretrained weight of {architecture}", name, tags, run="unswayed models")
    if not tag and not tags and architecture not in timm.list_pretrained(architecture):
        raise UserError(
            f"timm has no weights for {architecture}", allowed=f"timm:{architecture}?checkpoint=FILE with your own"
        )


def _created(spec: Spec, keywords: dict[str, Any], **more: Any) -> Any:
    """The module with the options that are keywords of `timm.create_model`; others are refused by name."""
    try:
        return timm.create_model(spec.name, **{"pretrained": False, **keywords, **more})
    except TypeError as error:
        named = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if named is None or named[1] not in keywords:
            raise
        taken = inspect.signature(type(timm.create_model(spec.name, pretrained=False))).parameters
        raise unknown(f"option of timm:{spec.name}", named[1], sorted({*OWN, *taken})) from None
    except OSError:  # also without its own weights, a network may need those of a part
        with available(spec):
            raise
    except (AssertionError, ValueError, KeyError, AttributeError, RuntimeError) as error:
        if not keywords or more.get("pretrained"):
            raise
        given = "&".join(f"{name}={spec.options[name]}" for name in keywords)
        raise UserError(
            f"timm:{spec.name} does not take ?{given}: {str(error) or type(error).__name__}",
            allowed="values that timm.create_model accepts for this architecture",
        ) from None


def _literal(text: str) -> object:
    """The value of an option: a Python number, True, False, None or tuple, or else the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _load(module: nn.Module, state: dict[str, torch.Tensor], where: str) -> None:
    """Load a checkpoint under timm's names, or under those of the original code that timm itself can convert."""
    try:
        load_foreign(module, state, where)
    except UserError:
        convert = getattr(sys.modules[type(module).__module__], "checkpoint_filter_fn", None)
        if convert is not None:
            with contextlib.suppress(Exception):
                load_foreign(module, convert(best_names(state, module), module), where)
                return
        pooled = any(name.endswith("fc_norm.weight") for name in state)
        if pooled and not any(name.startswith("fc_norm.") for name in module.state_dict()):
            raise UserError(
                f"{where} was trained with average pooling: it has fc_norm and no norm", allowed="?global_pool=avg"
            ) from None
        raise


def _classifier(module: Any) -> str:
    """The dotted name of the output layer; the first of the two of a distilled model."""
    named = module.pretrained_cfg.get("classifier")
    if named:
        return named if isinstance(named, str) else named[0]
    layer = module.get_classifier() if hasattr(module, "get_classifier") else None
    layer = layer[0] if isinstance(layer, tuple) else layer
    return next((name for name, part in module.named_modules() if part is layer), "")


def label_space(module: Any) -> LabelSpace:
    """ImageNet-1k for a thousand classes, timm's lists for larger ones, else the names in the weights' config."""
    config, count = module.pretrained_cfg, module.num_classes
    names = config.get("label_names")
    if names and len(names) == count:
        return LabelSpace(config.get("architecture") or "timm", tuple(str(name) for name in names))
    if count == 1000:
        return imagenet()
    subset = infer_imagenet_subset(module)
    if subset:
        info = ImageNetInfo(subset)
        names = tuple(info.index_to_description(index) for index in range(count))
        return LabelSpace(subset, names, tuple(info.label_names()))
    return unnamed(count)


# The paper's "res 3" is taken to be the third of the four residual stages, `layer3` of timm and conv4 of He et al.; its
# features are 14×14 for a picture of 224×224.
STAGE = 3
BACKBONES = ("resnet50", "resnet50d")


@register_model
def hybrid_resnet50_vits(pretrained: bool = False, **settings: Any) -> VisionTransformer:
    """ResNet-50 up to its third stage (1,024 channels at 1/16), then the 12 blocks of a ViT-S of width 384.

    backbone: resnet50, or resnet50d, the ResNet-50-D of the paper's appendix; backbone_pretrained: start it from timm's
    weights; the hybrid as a whole has none.
    """
    # create_model hands these over for models that have weights to fetch; this one has none.
    for name in ("pretrained_cfg", "pretrained_cfg_overlay"):
        settings.pop(name, None)
    chosen = str(settings.pop("backbone", BACKBONES[0]))
    check_known("backbone of the hybrid", [chosen], BACKBONES)
    backbone = timm.create_model(
        chosen,
        pretrained=settings.pop("backbone_pretrained", False),
        cache_dir=settings.pop("cache_dir", None),
        features_only=True,
        out_indices=(STAGE,),
    )
    sizes = {"patch_size": 1, "embed_dim": 384, "depth": 12, "num_heads": 6}
    return build_model_with_cfg(
        VisionTransformer,
        "hybrid_resnet50_vits",
        False,
        pretrained_cfg={
            "architecture": "hybrid_resnet50_vits",
            "num_classes": 1000,
            "input_size": (3, 224, 224),
            "crop_pct": 0.875,
            "interpolation": "bicubic",
            "classifier": "head",
            "first_conv": f"patch_embed.backbone.conv1{'.0' * chosen.endswith('d')}",
            "mean": IMAGENET_MEAN,
            "std": IMAGENET_STD,
        },
        embed_layer=partial(HybridEmbed, backbone=backbone),
        **{**sizes, **settings},
    )
