"""`transformers:NAME` or `transformers:FOLDER`: an image classifier, a CLIP-like model zero-shot, or a vision-language
model, which writes its answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

from unswayed.errors import UserError, first_line
from unswayed.files.whole import Json
from unswayed.labels import LabelSpace, imagenet
from unswayed.specs import Spec

from .classifier import Classifier, classifier_of
from .foreign_transforms import STATED, from_processor
from .label_mapping import imagenet_or, labels_from
from .local_chat import is_vision_language, open_local_chat
from .transforms import COMMON, Transform
from .vision_language import VisionLanguageModel
from .weights import available
from .zero_shot import PROMPTS, TowerWithHead, class_embeddings, class_names, templates_of, zero_shot

# Mean difference in 255 levels: a resize in floating point differs from one in bytes by 0.3, another mean by 0.6.
TOLERANCE = 0.5
HELP = "give the folder of an image classifier, a CLIP-like model or a vision-language model"


def open_transformers(
    spec: Spec, labels: LabelSpace | None = None, **where: str | None
) -> Classifier | VisionLanguageModel:
    """A model of the transformers library under its own image processor."""
    with available(spec, HELP):
        # Without the argument a folder that brings its own code would ask at the terminal whether to run it.
        config = transformers.AutoConfig.from_pretrained(spec.name, trust_remote_code=False)
    if is_vision_language(config):
        return open_local_chat(spec, config, labels, **where)
    spec.check_options(*PROMPTS, *COMMON)
    with available(spec, HELP):
        processor = transformers.AutoImageProcessor.from_pretrained(spec.name, trust_remote_code=False)
        is_zero_shot = hasattr(config, "vision_config") and hasattr(config, "text_config")
        loader = transformers.AutoModel if is_zero_shot else transformers.AutoModelForImageClassification
        network = loader.from_pretrained(spec.name, trust_remote_code=False).eval()
    transform = _transform(spec, processor)
    if is_zero_shot:
        space = labels_from(spec.options, labels) or imagenet()
        module: nn.Module = _zero_shot(spec, network, space)
    else:
        for option in PROMPTS:
            if option in spec.options:
                raise UserError(f"{spec} is not a zero-shot model, so {option} would have no effect")
        if "pixel_values" not in inspect.signature(network.forward).parameters:
            raise UserError(f"{spec} is a {type(network).__name__}, which does not take pixels")
        space = labels_from(spec.options, outputs=config.num_labels) or imagenet_or(
            "transformers", [str(config.id2label[index]) for index in sorted(config.id2label)]
        )
        module = _Logits(network)
    library, kind = f"transformers {transformers.__version__}", "zero-shot" if is_zero_shot else "classifier"
    origin = {"library": library, "architecture": config.model_type, "kind": kind}
    return classifier_of(spec, module, transform, space, where, origin)


class _Logits(nn.Module):
    """A transformers classifier that takes a tensor and returns one."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.network(pixel_values=pixels).logits


class _Tower(nn.Module):
    """The image side of a CLIP-like model: pixels -> (N, D) embedding."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.vision_model = network.get_submodule("vision_model")
        self.visual_projection = dict(network.named_children()).get("visual_projection")

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        pooled = self.vision_model(pixel_values=pixels).pooler_output
        return pooled if self.visual_projection is None else self.visual_projection(pooled)


def _transform(spec: Spec, processor: Any) -> Transform:
    """The transform of a processor, before the options; refused if its pixels differ from the processor's own."""
    given = all(name in spec.options for name in ("crop", "mean", "std"))
    try:
        try:
            transform = from_processor(processor.to_dict())
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            reason = f"the image processor of {spec} has settings that cannot be read: {first_line(error)[:200]}"
            raise UserError(reason, allowed=STATED) from None
        if not given:
            _compare(spec, processor, transform)
    except UserError:
        if not given or "resize" not in spec.options:
            raise
        return Transform()  # the options state everything
    return transform


def _compare(spec: Spec, processor: Callable[..., Json], transform: Transform) -> None:
    """Raises UserError if the library's processor and `transform` make different pixels of one picture."""
    # Coarse and fine waves, different in each channel, (320, 480, 3) uint8; the sides halve exactly.
    down, right = np.mgrid[:320, :480]
    waves = [
        64 * np.sin(right / (37 + 8 * channel) + down / 53) + 32 * np.sin(right / (3 + channel) - down / 7)
        for channel in range(3)
    ]
    image = np.rint(np.stack(waves, -1) + (110, 128, 146)).astype(np.uint8)
    who = f"the image processor {type(processor).__name__} of {spec}"
    try:
        answer = processor(images=image, return_tensors="pt")
    except Exception as error:
        raise UserError(f"{who} cannot be run: {type(error).__name__}: {error}", allowed=STATED) from error
    if "pixel_values" not in answer:
        raise UserError(f"{who} returns {', '.join(answer)}", allowed="a processor that returns pixel_values")
    theirs, ours = torch.as_tensor(answer["pixel_values"])[0].float().cpu(), transform.tensor(image)
    if theirs.shape != ours.shape:
        raise UserError(
            f"{who} makes {tuple(theirs.shape)} of a picture of {image.shape[1]}×{image.shape[0]}; read as data "
            f"({transform}) it makes {tuple(ours.shape)}",
            allowed=STATED,
        )
    levels = 255 / transform.scale * torch.tensor(transform.std).view(3, 1, 1)
    # Where a crop falls between two pixels, one library takes the left one and the other the right one.
    shifted = [torch.roll(ours, (down, right), (1, 2)) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    inner = (slice(None), slice(1, -1), slice(1, -1))
    difference = min(float(((pixels - theirs) * levels)[inner].abs().mean()) for pixels in shifted)
    if not difference <= TOLERANCE:
        raise UserError(
            f"{who} does not match its settings read as data ({transform}): the pixels differ by "
            f"{difference:.2f} of 255 levels on average; {TOLERANCE} is allowed for resampling",
            allowed=STATED,
        )


def _zero_shot(spec: Spec, network: Any, space: LabelSpace) -> TowerWithHead:
    tokenizer = transformers.AutoTokenizer.from_pretrained(spec.name, trust_remote_code=False)
    # SigLIP was trained on texts padded to full length; CLIP masks the padding.
    siglip = "siglip" in network.config.model_type
    how = {"padding": "max_length", "max_length": 64} if siglip else {"padding": True}

    def encode(prompts: list[str]) -> torch.Tensor:
        answer = network.get_text_features(**tokenizer(prompts, truncation=True, return_tensors="pt", **how))
        return answer if isinstance(answer, torch.Tensor) else answer.pooler_output

    texts = class_embeddings(class_names(spec, space), templates_of(spec), encode)
    return zero_shot(_Tower(network), texts, network)
