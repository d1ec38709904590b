"""Zero-shot classifiers: an image tower and one text embedding per class, averaged over prompt templates.

`open_clip:MODEL/PRETRAINED` is zero-shot over the benchmark's classes; `?head=FILE` uses a fine-tuned linear head.
`open_clip:hf-hub:ORGANIZATION/NAME` and `open_clip:local-dir:PATH` open what open_clip itself opens by those names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import torch
from torch import nn
from torch.nn import functional

from unswayed.errors import UserError, check_known, need, unknown
from unswayed.files.whole import read_names
from unswayed.labels import LabelSpace, imagenet
from unswayed.specs import Spec

from .classifier import Classifier, classifier_of
from .foreign_transforms import interpolation_name
from .label_mapping import labels_from
from .transforms import COMMON, Transform
from .weights import available, linear, load_foreign, read_state

# The seven templates that CLIP's authors found to work as well as all eighty.
TEMPLATES = (
    "itap of a {}.",
    "a bad photo of the {}.",
    "a origami {}.",
    "a photo of the large {}.",
    "a {} in a video game.",
    "art of the {}.",
    "a photo of the small {}.",
)
# The options of a zero-shot model. names: of ImageNet's classes, `own` or `openai`, those of CLIP's authors, of which
# 292 differ; prompt: one template; templates: a file of one per line, or `openai`, all eighty of CLIP's authors.
PROMPTS = ("names", "prompt", "templates")


class TowerWithHead(nn.Module):
    """An image tower with a linear head on its embedding: (N, 3, h, w) -> (N, classes) logits."""

    def __init__(
        self, tower: nn.Module, weight: torch.Tensor, bias: torch.Tensor | None, normalized: bool = True
    ) -> None:
        super().__init__()
        self.tower, self.head, self.normalized = tower, linear(weight, bias), normalized

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        features = self.tower(pixels)
        return self.head(functional.normalize(features, dim=-1) if self.normalized else features)


def zero_shot(tower: nn.Module, classes: torch.Tensor, network: nn.Module) -> TowerWithHead:
    """The cosine of picture and class, times the scale that a CLIP-like `network` was trained with, plus its bias.

    classes: (C, D) unit rows.
    """
    trained = dict(network.named_parameters(recurse=False))
    shift = torch.full((len(classes),), float(trained["logit_bias"])) if "logit_bias" in trained else None
    return TowerWithHead(tower, classes * float(trained["logit_scale"].detach().exp()), shift)


def class_embeddings(
    classes: Sequence[str], templates: Sequence[str], encode: Callable[[list[str]], torch.Tensor]
) -> torch.Tensor:
    """(C, D) unit rows: each class's text embeddings, normalized, averaged over the templates, normalized again."""
    rows = []
    for name in classes:
        with torch.inference_mode():
            texts = functional.normalize(
                encode([template.replace("{}", name) for template in templates]).float(), dim=-1
            )
        rows.append(functional.normalize(texts.mean(0), dim=-1))
    return torch.stack(rows).clone()


def templates_of(spec: Spec) -> tuple[str, ...]:
    """The templates that `?prompt=a photo of a {}.`, `?templates=FILE` or `?templates=openai` gives, else seven."""
    if {"prompt", "templates"} <= set(spec.options):
        raise UserError(f"{spec} states both prompt and templates", allowed="one of them")
    templates: tuple[str, ...] = (spec.options["prompt"],) if "prompt" in spec.options else TEMPLATES
    if spec.options.get("templates") == "openai":
        templates = tuple(template("{}") for template in _curated().OPENAI_IMAGENET_TEMPLATES)
    elif "templates" in spec.options:
        templates = tuple(read_names(spec.options["templates"], "file of templates"))
    bad = [template for template in templates or ("",) if "{}" not in template]
    if bad:
        raise UserError(f"the template {bad[0]!r} has no {{}} for the class", allowed="a photo of a {}.")
    return templates


def class_names(spec: Spec, space: LabelSpace) -> tuple[str, ...]:
    """The names of the classes in prompts: those of the label space, or with `?names=openai` CLIP's for ImageNet."""
    chosen = spec.options.get("names", "own")
    check_known("set of class names", [chosen], ("own", "openai"))
    if chosen == "own":
        return space.classes
    if space != imagenet():
        raise UserError(f"names=openai are names of ImageNet-1k, and the classes are {space.name}", allowed="names=own")
    return tuple(_curated().IMAGENET_CLASSNAMES)


def _curated() -> ModuleType:
    """The class names and templates of CLIP's authors, which open_clip contains."""
    need("models", "open_clip")
    from open_clip import zero_shot_metadata

    return zero_shot_metadata


def head_of(state: dict[str, torch.Tensor], where: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The weight (classes, D) and bias of a linear head's checkpoint, whatever their names."""
    matrices = [tensor for tensor in state.values() if tensor.ndim == 2]
    if len(matrices) != 1:
        raise UserError(
            f"{where} holds {len(matrices)} matrices, but a linear head has one", allowed="weight (classes, D), bias"
        )
    biases = [tensor for tensor in state.values() if tensor.ndim == 1 and len(tensor) == len(matrices[0])]
    return matrices[0], biases[0] if biases else None


def open_open_clip(spec: Spec, labels: LabelSpace | None = None, **where: str | None) -> Classifier:
    """An open_clip model as a classifier of `labels`, by default ImageNet-1k."""
    import open_clip

    spec.check_options("checkpoint", "head", "normalised", *PROMPTS, *COMMON)
    head = spec.options.get("head")
    for option in PROMPTS if head else ("normalised",):
        if option in spec.options:
            raise UserError(f"{option} has no effect {'with' if head else 'without'} head=FILE")
    normalized = spec.options.get("normalised", "yes")
    check_known("setting of normalised", [normalized], ("yes", "no"))
    name, pretrained = _names(spec)
    with available(spec, "give its folder as open_clip:local-dir:PATH"):
        network = open_clip.create_model(name, pretrained=pretrained, weights_only=True, require_pretrained=True)
    network.eval()
    if "checkpoint" in spec.options:
        load_foreign(network, read_state(spec.options["checkpoint"]), spec.options["checkpoint"])
    space = labels_from(spec.options, labels) or imagenet()
    origin: dict[str, object] = {"library": f"open_clip {open_clip.__version__}"}
    if head:
        weight, bias = head_of(read_state(head), head)
        if len(weight) != len(space):
            raise UserError(
                f"{head} has {len(weight)} outputs, the label space {space.name!r} has {len(space)}",
                allowed=f"?labels=FILE with {len(weight)} names in the order of the outputs, or ?labels=imagenet-1k",
            )
        module = TowerWithHead(network.visual, weight, bias, normalized == "yes")
        origin["kind"] = "fine-tuned head"
    else:
        tokenizer, templates = open_clip.get_tokenizer(name), templates_of(spec)
        texts = class_embeddings(
            class_names(spec, space), templates, lambda prompts: network.encode_text(tokenizer(prompts))
        )
        module = zero_shot(network.visual, texts, network)
        origin |= {"kind": "zero-shot", "names": spec.options.get("names", "own"), "templates": list(templates)}
    config = network.visual.preprocess_cfg
    side = config["size"] if isinstance(config["size"], int) else config["size"][0]
    fit = {"shortest": "short", "longest": "long", "squash": "squash"}[config.get("resize_mode") or "shortest"]
    interpolation = interpolation_name(config["interpolation"])
    transform = Transform(side, side, interpolation, tuple(config["mean"]), tuple(config["std"]), fit)
    return classifier_of(spec, module, transform, space, where, origin)


def _names(spec: Spec) -> tuple[str, str | None]:
    """open_clip's model name and its weights' tag (or file)."""
    import open_clip

    if spec.name.startswith(("hf-hub:", "local-dir:")):
        return spec.name, None
    name, _, pretrained = spec.name.partition("/")
    check_known("model in open_clip", [name], open_clip.list_models())
    tags = open_clip.list_pretrained_tags_by_model(name)
    if not pretrained or (pretrained not in tags and not Path(pretrained).is_file()):
        raise unknown("pretrained weight in open_clip", spec.name, [f"{name}/{tag}" for tag in tags])
    return name, pretrained


def open_clip_names() -> list[str]:
    """The names of open_clip's models with the tag of their weights, as in `ViT-B-32/openai`."""
    import open_clip

    return ["/".join(names) for names in open_clip.list_pretrained()]
