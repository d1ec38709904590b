"""`hybrid_resnet50_vits`: the third stage of a ResNet-50 feeds the blocks of a ViT-S (ImageNet-E, section 5.2).

Registered with timm, so that `timm.create_model("hybrid_resnet50_vits")` and `timm:hybrid_resnet50_vits` open it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import timm
from timm.models import build_model_with_cfg, register_model
from timm.models.vision_transformer import VisionTransformer
from timm.models.vision_transformer_hybrid import HybridEmbed

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
STAGE = 3  # of four; its features are 14×14 for a picture of 224×224


@register_model
def hybrid_resnet50_vits(pretrained: bool = False, **settings: Any) -> VisionTransformer:
    """ResNet-50 up to its third stage (1,024 channels at 1/16), then the 12 blocks of a ViT-S of width 384.

    backbone_pretrained: start the ResNet from timm's weights; the hybrid as a whole has none.
    """
    # create_model hands these over for models that have weights to fetch; this one has none.
    for name in ("pretrained_cfg", "pretrained_cfg_overlay"):
        settings.pop(name, None)
    backbone = timm.create_model(
        "resnet50",
        pretrained=settings.pop("backbone_pretrained", False),
        cache_dir=settings.pop("cache_dir", None),
        features_only=True,
        out_indices=(STAGE,),
    )
    sizes = {"patch_size": 1, "embed_dim": 384, "depth": 12, "num_heads": 6}
    model: VisionTransformer = build_model_with_cfg(
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
            "first_conv": "patch_embed.backbone.conv1",
            **IMAGENET,
        },
        embed_layer=partial(HybridEmbed, backbone=backbone),
        **{**sizes, **settings},
    )
    return model
