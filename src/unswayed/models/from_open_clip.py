"""`open_clip:MODEL/PRETRAINED`: zero-shot over the benchmark's classes; `?head=FILE` uses a fine-tuned linear head.

`open_clip:hf-hub:ORGANIZATION/NAME` and `open_clip:local-dir:PATH` open what open_clip itself opens by those names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unswayed.errors import UserError, missing_extra, unknown
from unswayed.labels import LabelSpace, imagenet
from unswayed.specs import Spec

from .classifier import Classifier
from .foreign_transforms import interpolation_name
from .options import COMMON, labels_from, transform_from
from .transforms import Transform
from .weights import load_foreign, read_state, unavailable
from .zero_shot import WithHead, ZeroShot, class_embeddings, head_of, templates_of

SCHEMAS = ("hf-hub:", "local-dir:")


def open_open_clip(spec: Spec, labels: LabelSpace | None = None, **where: Any) -> Classifier:
    """An open_clip model as a classifier of `labels`, by default ImageNet-1k."""
    try:
        import open_clip
    except ImportError:
        raise missing_extra("open_clip_torch", "models") from None
    spec.check_options("checkpoint", "head", "normalised", "prompt", "templates", *COMMON)
    _check(spec)
    name, pretrained = _names(spec)
    try:
        network = open_clip.create_model(name, pretrained=pretrained, weights_only=True, require_pretrained=True)
    except Exception as error:
        raise unavailable(str(spec), error, "give its folder as open_clip:local-dir:PATH") from error
    network.eval()
    if "checkpoint" in spec.options:
        load_foreign(network, read_state(spec.options["checkpoint"]), spec.options["checkpoint"])
    space = labels_from(spec.options, labels) or imagenet()
    if "head" in spec.options:
        weight, bias = head_of(read_state(spec.options["head"]), spec.options["head"])
        if len(weight) != len(space):
            raise UserError(
                f"{spec.options['head']} has {len(weight)} outputs, the label space {space.name!r} has {len(space)}",
                allowed=f"?labels=FILE with {len(weight)} names in the order of the outputs, or ?labels=imagenet-1k",
            )
        module: Any = WithHead(network.visual, weight, bias, spec.options.get("normalised", "yes") == "yes")
    else:
        tokenizer = open_clip.get_tokenizer(name)
        texts = class_embeddings(
            space.classes, templates_of(spec), lambda prompts: network.encode_text(tokenizer(prompts))
        )
        shift = getattr(network, "logit_bias", None)
        module = ZeroShot(
            network.visual, texts, float(network.logit_scale.exp()), 0.0 if shift is None else float(shift)
        )
    config = network.visual.preprocess_cfg
    side = config["size"] if isinstance(config["size"], int) else config["size"][0]
    fit = {"shortest": "short", "longest": "long", "squash": "squash"}[config.get("resize_mode") or "shortest"]
    transform = Transform(
        side, side, interpolation_name(config["interpolation"]), tuple(config["mean"]), tuple(config["std"]), fit
    )
    kind = {"kind": "zero-shot", "templates": list(templates_of(spec))}
    if "head" in spec.options:
        kind = {"kind": "fine-tuned head"}
    return Classifier(
        module,
        transform_from(spec.options, transform),
        space,
        str(spec),
        layer=spec.options.get("layer"),
        origin={"library": f"open_clip {open_clip.__version__}", **kind},
        **where,
    )


def _check(spec: Spec) -> None:
    """Raises UserError for an option without effect: prompts with a head, `normalised` without one."""
    head = "head" in spec.options
    for option in ("prompt", "templates") if head else ("normalised",):
        if option in spec.options:
            raise UserError(f"{option} has no effect {'with' if head else 'without'} head=FILE")
    if spec.options.get("normalised", "yes") not in ("yes", "no"):
        raise unknown("setting of normalised", spec.options["normalised"], ("yes", "no"))


def _names(spec: Spec) -> tuple[str, str | None]:
    """open_clip's model name and its weights' tag (or file)."""
    import open_clip

    if spec.name.startswith(SCHEMAS):
        return spec.name, None
    name, _, pretrained = spec.name.partition("/")
    if name not in open_clip.list_models():
        raise unknown("model in open_clip", name, open_clip.list_models())
    tags = open_clip.list_pretrained_tags_by_model(name)
    if not pretrained or (pretrained not in tags and not Path(pretrained).is_file()):
        raise unknown("pretrained weight in open_clip", spec.name, [f"{name}/{tag}" for tag in tags])
    return name, pretrained
