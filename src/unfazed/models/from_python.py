"""`python:FILE.py:function` or `python:package.module:function`: a model of one's own.

The function takes nothing and gives `Classifier(module, transform, labels)`. The file is run as code: it is the
user's own, named by the user on the command line.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from unfazed.errors import UserError, unknown
from unfazed.files import sha256
from unfazed.labels import LabelSpace

from .classifier import Classifier
from .specs import Spec


def open_python(spec: Spec, labels: LabelSpace | None = None, **where: Any) -> Classifier:
    """What the named function returns, on the device and in the precision asked for."""
    place, colon, name = spec.name.rpartition(":")
    if not colon:
        raise UserError(f"{spec} names no function", allowed="python:FILE.py:function or python:module:function")
    spec.check_options("layer")
    module = _module(place)
    function = getattr(module, name, None)
    if not callable(function):
        raise unknown(
            f"function in {place}", name, [n for n, one in vars(module).items() if callable(one) and n[0] != "_"]
        )
    try:
        model = function()
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{name}() of {place} failed: {type(error).__name__}: {error}") from error
    if not isinstance(model, Classifier):
        raise UserError(
            f"{name}() of {place} gives a {type(model).__name__}",
            allowed="unfazed.models.Classifier(module, transform, labels)",
        )
    origin = {**model.origin, "function": spec.name}
    if module.__file__:
        origin["code_sha256"] = sha256(module.__file__)
    given = {key: value for key, value in where.items() if value is not None}
    layer = spec.options.get("layer", model.layer)
    return replace(model, name=str(spec), origin=origin, layer=layer, **given)


def _module(place: str) -> ModuleType:
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        path = Path(place).expanduser().resolve()
        if not path.is_file():
            raise UserError(f"there is no Python file {place}")
        name = f"unfazed_user_{path.stem}"
        found = importlib.util.spec_from_file_location(name, path)
        assert found is not None
        assert found.loader is not None
        module = importlib.util.module_from_spec(found)
        sys.modules[name] = module
        # The file may import what lies beside it, as it would when run by itself.
        sys.path.insert(0, str(path.parent))
        try:
            found.loader.exec_module(module)
        finally:
            sys.path.remove(str(path.parent))
        return module
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error
