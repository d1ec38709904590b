"""Options after `?` in a model's name: the transform's settings, the classes, the heat layer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from unswayed.errors import UserError
from unswayed.files.records import fits
from unswayed.files.whole import read_json, read_names
from unswayed.labels import LabelSpace, imagenet, own

from .transforms import Transform

TRANSFORM = tuple(field.name for field in fields(Transform))
COMMON = (*TRANSFORM, "labels", "layer")


def transform_from(options: Mapping[str, str], base: Transform) -> Transform:
    """`base` with the settings that the options name: `?crop=240&mean=0.5&interpolation=bicubic`."""
    return replace(base, **{name: _value(name, options[name]) for name in TRANSFORM if name in options})


def labels_from(
    options: Mapping[str, str], default: LabelSpace | None = None, outputs: int | None = None
) -> LabelSpace | None:
    """The label space that `?labels=` names: `imagenet-1k`, or a file of class names in the order of the outputs.

    outputs: the model's number of outputs, if known; a list of another length is refused.
    """
    if "labels" not in options:
        return default
    space = read_labels(options["labels"])
    if outputs is not None and len(space) != outputs:
        raise UserError(
            f"labels={options['labels']} names {len(space)} classes, but the model has {outputs} outputs",
            allowed=f"{outputs} names in the order of the outputs",
        )
    return space


def read_labels(value: Any) -> LabelSpace:
    """A label space from `imagenet-1k`, a list of names, a JSON list or label space, or a file of one name per line."""
    if value in ("imagenet-1k", "imagenet"):
        return imagenet()
    if isinstance(value, Mapping):
        return LabelSpace.from_json(dict(value))
    if isinstance(value, list):
        return own(str(one) for one in value)
    path = Path(str(value)).expanduser()
    if not os.path.isfile(path):
        raise UserError(
            f"there is no file of labels {str(value)[:200]}",
            allowed="imagenet-1k, a .json list, or a text file with one name per line",
        )
    if path.suffix == ".json":
        inside = read_json(path)
        if not fits(inside, list[str] | dict[str, Any]):
            raise UserError(f"{path} is not a list of class names", allowed='["cat", "dog", …] or a label space')
        return read_labels(inside)
    return own(read_names(path, "file of labels"))


def _value(name: str, text: str) -> Any:
    try:
        if name in ("resize", "crop"):
            return int(text)
        if name == "scale":
            return float(text)
        if name == "checked":
            return {"yes": True, "no": False}[text]
        if name in ("mean", "std"):
            numbers = [float(one) for one in text.split(",")]
            return numbers[0] if len(numbers) == 1 else tuple(numbers)
    except KeyError:
        raise UserError(f"{name}={text}", allowed=f"{name}=yes or {name}=no") from None
    except ValueError:
        raise UserError(f"{name}={text} is not a number", allowed=f"{name}=256, {name}=0.5,0.5,0.5 …") from None
    return text
