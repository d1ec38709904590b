"""`transformers:NAME` or `transformers:FOLDER`: an image classifier, or a CLIP-like model zero-shot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from unfazed.errors import missing_extra
from unfazed.labels import LabelSpace, imagenet, plain

from .classifier import Classifier
from .foreign_transforms import from_processor
from .options import COMMON, labels_from, transform_from
from .specs import Spec
from .weights import unavailable
from .zero_shot import ZeroShot, class_embeddings, templates_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def open_transformers(spec: Spec, labels: LabelSpace | None = None, **where: Any) -> Classifier:
    """A model of the transformers library under its own image processor."""
    try:
        import transformers
    except ImportError:
        raise missing_extra("transformers", "models") from None
    spec.check_options("prompt", "templates", *COMMON)
    try:
        config = transformers.AutoConfig.from_pretrained(spec.name)
        processor = transformers.AutoImageProcessor.from_pretrained(spec.name).to_dict()
        zero_shot = hasattr(config, "vision_config") and hasattr(config, "text_config")
        kind = transformers.AutoModel if zero_shot else transformers.AutoModelForImageClassification
        network = kind.from_pretrained(spec.name).eval()
    except Exception as error:
        raise unavailable(str(spec), error, "give the folder of an image classifier or CLIP-like model") from error
    if zero_shot:
        space = labels_from(spec.options, labels) or imagenet()
        module: nn.Module = _zero_shot(spec, network, space)
    else:
        space = labels_from(spec.options) or _space(config.id2label)
        module = _Logits(network)
    return Classifier(
        module,
        transform_from(spec.options, from_processor(processor)),
        space,
        str(spec),
        layer=spec.options.get("layer"),
        origin={
            "library": f"transformers {transformers.__version__}",
            "architecture": config.model_type,
            "kind": "zero-shot" if zero_shot else "classifier",
        },
        **where,
    )


class _Logits(nn.Module):
    """A transformers classifier that takes a tensor and gives one."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.network(pixel_values=pixels).logits


class _Tower(nn.Module):
    """The image side of a CLIP-like model: pixels in, (N, D) embedding out."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.vision_model: Any = network.vision_model
        self.visual_projection: Any = getattr(network, "visual_projection", None)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        pooled = self.vision_model(pixel_values=pixels).pooler_output
        return pooled if self.visual_projection is None else self.visual_projection(pooled)


def _zero_shot(spec: Spec, network: Any, space: LabelSpace) -> ZeroShot:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(spec.name)
    # SigLIP was trained on texts filled up to its full length; CLIP masks the filling out.
    siglip = "siglip" in network.config.model_type
    how = {"padding": "max_length", "max_length": 64} if siglip else {"padding": True}

    def encode(prompts: list[str]) -> torch.Tensor:
        answer = network.get_text_features(**tokenizer(prompts, truncation=True, return_tensors="pt", **how))
        return answer if isinstance(answer, torch.Tensor) else answer.pooler_output

    texts = class_embeddings(space.classes, templates_of(spec), encode)
    shift = getattr(network, "logit_bias", None)
    return ZeroShot(_Tower(network), texts, float(network.logit_scale.exp()), 0.0 if shift is None else float(shift))


def _space(names: Mapping[int, str]) -> LabelSpace:
    """ImageNet-1k where the names are its own in its order (the first of several synonyms counts), else as given."""
    ordered = [str(names[index]) for index in sorted(names)]
    space = imagenet()
    if len(ordered) == len(space):
        firsts = [{plain(part) for part in name.split(",")} for name in ordered]
        same = sum(plain(ours) in theirs for ours, theirs in zip(space.classes, firsts, strict=True))
        unnamed = all(name.startswith("LABEL_") for name in ordered)
        if same > 500 or unnamed:
            return space
    return LabelSpace("transformers", tuple(ordered))
