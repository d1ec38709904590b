"""`python:FILE.py:function` or `python:package.module:function`: a model of one's own.

The function takes nothing and gives `Classifier(module, transform, labels)`. The file is run as code: it is the
user's own, named by the user on the command line.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from unfazed.errors import UserError, unknown
from unfazed.files import sha256
from unfazed.labels import LabelSpace

from .classifier import Classifier
from .specs import Spec

# What files of users have imported from beside themselves, by module name: each file gets its own.
_helpers: dict[str, ModuleType] = {}


def open_python(spec: Spec, labels: LabelSpace | None = None, **where: Any) -> Classifier:
    """What the named function returns, on the device and in the precision asked for."""
    place, colon, name = spec.name.rpartition(":")
    if not colon:
        raise UserError(f"{spec} names no function", allowed="python:FILE.py:function or python:module:function")
    spec.check_options("layer")
    with _beside(place) as path:
        module = _module(place, path)
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
    origin = {**model.origin, "function": spec.name, "code_sha256": _code_hash(module, path)}
    given = {key: value for key, value in where.items() if value is not None}
    layer = spec.options.get("layer", model.layer)
    return replace(model, name=str(spec), origin=origin, layer=layer, **given)


@contextlib.contextmanager
def _beside(place: str) -> Iterator[Path | None]:
    """A block in which a file imports what lies beside it, as when run by itself; gives the file, None for a module.

    What an earlier file imported from beside itself is forgotten first: two folders may both hold a `net.py`.
    """
    if not place.endswith(".py"):
        yield None
        return
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        raise UserError(f"there is no Python file {place}")
    for name, module in _helpers.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    _helpers.clear()
    before = set(sys.modules)
    sys.path.insert(0, str(path.parent))
    importlib.invalidate_caches()
    try:
        yield path
    finally:
        sys.path.remove(str(path.parent))
        new = {name: module for name, module in sys.modules.items() if name not in before}
        _helpers.update({name: module for name, module in new.items() if _lies_beside(module, path)})


def _module(place: str, path: Path | None) -> ModuleType:
    try:
        if path is None:
            return importlib.import_module(place)
        name = f"unfazed_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
        found = importlib.util.spec_from_file_location(name, path)
        assert found is not None
        assert found.loader is not None
        module = importlib.util.module_from_spec(found)
        sys.modules[name] = module
        found.loader.exec_module(module)
        return module
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error


def _code_hash(module: ModuleType, path: Path | None) -> str | None:
    """SHA-256 of the code: the file and what it imported from beside itself, or all of a module's package."""
    if path is not None:
        files = {path, *(Path(one.__file__).resolve() for one in _helpers.values() if one.__file__)}
    else:
        package = sys.modules[module.__name__.partition(".")[0]]
        folders = [Path(one) for one in getattr(package, "__path__", ())]
        files = {file for folder in folders for file in folder.rglob("*.py")}
        files |= {Path(module.__file__)} if module.__file__ else set()
    if not files:
        return None
    return hashlib.sha256("".join(sha256(file) for file in sorted(files)).encode()).hexdigest()


def _lies_beside(module: ModuleType, path: Path) -> bool:
    """Whether a module is the user's own: under the file's folder, but not in an environment there."""
    # A folder of modules without an `__init__.py` has no file but a path.
    found = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    if found is None:
        return False
    place = Path(found).resolve()
    return place != path and place.is_relative_to(path.parent) and "site-packages" not in place.parts
