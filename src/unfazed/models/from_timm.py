"""`timm:NAME`: any pretrained model of timm; `timm:NAME?checkpoint=FILE`: its architecture with other weights."""

from __future__ import annotations

from typing import Any

from unfazed.errors import UserError, unknown
from unfazed.labels import LabelSpace, imagenet
from unfazed.specs import Spec

from .classifier import Classifier
from .foreign_transforms import from_timm
from .options import COMMON, labels_from, transform_from
from .weights import classes_in, load_foreign, read_state, unavailable

REMOTE = ("hf-hub:", "hf_hub:", "local-dir:")


def open_timm(spec: Spec, labels: LabelSpace | None = None, **where: Any) -> Classifier:
    """A timm model under its own data config; pretrained unless a checkpoint is given."""
    import timm
    from timm.data import resolve_model_data_config

    from . import hybrid  # noqa: F401  registers hybrid_resnet50_vits

    spec.check_options("checkpoint", "weights", *COMMON)
    if spec.options.get("weights", "none") != "none":
        raise UserError(f"weights={spec.options['weights']}", allowed="weights=none: random weights, to be trained")
    if not spec.name.startswith(REMOTE) and not timm.is_model(spec.name):
        raise unknown("model in timm", spec.name, timm.list_models(), run="python -c 'import timm; timm.list_models()'")
    checkpoint = spec.options.get("checkpoint")
    if checkpoint:
        state = read_state(checkpoint)
        module: Any = timm.create_model(spec.name, pretrained=False)
        classes = classes_in(state, module, _classifier(module))
        if classes not in (None, module.num_classes):
            module = timm.create_model(spec.name, pretrained=False, num_classes=classes)
        load_foreign(module, state, checkpoint)
    elif "weights" in spec.options:
        module = timm.create_model(spec.name, pretrained=False)
    else:
        module = _pretrained(spec)
    return Classifier(
        module,
        transform_from(spec.options, from_timm(resolve_model_data_config(module))),
        labels_from(spec.options, outputs=module.num_classes) or label_space(module),
        str(spec),
        layer=spec.options.get("layer"),
        origin={"library": f"timm {timm.__version__}", "architecture": module.pretrained_cfg.get("architecture")},
        **where,
    )


def _pretrained(spec: Spec) -> Any:
    import timm

    if not spec.name.startswith(REMOTE):
        architecture, _, tag = spec.name.partition(".")
        tags = [name for name in timm.list_pretrained(f"{architecture}.*") if name.startswith(f"{architecture}.")]
        if tag and spec.name not in tags:
            raise unknown(f"pretrained weight of {architecture}", spec.name, tags, run="unfazed models")
        if not tag and not tags and architecture not in timm.list_pretrained(architecture):
            raise UserError(
                f"timm has no weights for {architecture}", allowed=f"timm:{architecture}?checkpoint=FILE with your own"
            )
    try:
        return timm.create_model(spec.name, pretrained=True)
    except Exception as error:
        raise unavailable(str(spec), error, "give ?checkpoint=FILE") from error


def _classifier(module: Any) -> str:
    """The dotted name of the output layer; the first of the two of a distilled model."""
    named = module.pretrained_cfg.get("classifier")
    if named:
        return named if isinstance(named, str) else named[0]
    layer = module.get_classifier() if hasattr(module, "get_classifier") else None
    layer = layer[0] if isinstance(layer, tuple) else layer
    return next((name for name, one in module.named_modules() if one is layer), "")


def label_space(module: Any) -> LabelSpace:
    """ImageNet-1k for a thousand classes, timm's lists for larger ones, else the names in the weights' config."""
    from timm.data import ImageNetInfo, infer_imagenet_subset

    config, count = module.pretrained_cfg, module.num_classes
    names = config.get("label_names")
    if names and len(names) == count:
        return LabelSpace(config.get("architecture") or "timm", tuple(str(name) for name in names))
    if count == 1000:
        return imagenet()
    subset = infer_imagenet_subset(module)
    if subset:
        info = ImageNetInfo(subset)
        wnids = tuple(info.label_names())
        return LabelSpace(subset, tuple(info.index_to_description(index) for index in range(count)), wnids)
    return LabelSpace(f"{count} unnamed classes", tuple(f"class {index}" for index in range(count)))
