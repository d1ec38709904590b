"""`python:FILE.py:function` or `python:package.module:function`: a user's own model.

The function takes no arguments and returns `Classifier(module, transform, labels)`, or a model of another task, such as
`ObjectModel(find, labels)`. The file is run as code: the user names it on the command line.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from unswayed.errors import UserError, unknown
from unswayed.files.whole import sha256
from unswayed.labels import LabelSpace
from unswayed.specs import Spec

from .classifier import Classifier

if TYPE_CHECKING:
    from torch import nn

    from .answering import Answerer
    from .opening import Model

# Modules that users' files have imported from their own folder: name -> folder and digest of the content.
_stamps: dict[str, str] = {}


def open_python(spec: Spec, labels: LabelSpace | None = None, **where: str | None) -> Model:
    """The model that the named function returns; a classifier on the requested device, in the requested precision."""
    from .answering import Answerer

    code, colon, name = spec.name.rpartition(":")
    if not colon:
        raise UserError(f"{spec} names no function", allowed="python:FILE.py:function or python:module:function")
    spec.check_options("layer")
    with _beside(code) as path:
        with _blamed(f"{code} cannot be imported"):
            module = _module(code, path)
        function = getattr(module, name, None)
        if not callable(function):
            public = [known for known, value in vars(module).items() if callable(value) and known[0] != "_"]
            raise unknown(f"function in {code}", name, public)
        with _blamed(f"{name}() of {code} failed"):
            model = function()
    if not isinstance(model, Classifier | Answerer) or not is_dataclass(model):
        raise UserError(
            f"{name}() of {code} returned a {type(model).__name__}",
            allowed="unswayed.models.Classifier(module, transform, labels) or ObjectModel(find, labels)",
        )
    origin = {**model.origin, "function": spec.name, "code_sha256": _code_hash(module, path)}
    if not isinstance(model, Classifier):
        spec.check_options()
        changed: object = replace(model, name=str(spec), origin=origin)
        return cast("Answerer", changed)
    layer = spec.options.get("layer", model.layer)
    device, precision = (where.get(key) or getattr(model, key) for key in ("device", "precision"))
    return replace(model, name=str(spec), origin=origin, layer=layer, device=device, precision=precision)


@contextlib.contextmanager
def _beside(code: str) -> Iterator[Path | None]:
    """A block in which a file can import from its folder, as when it is run; yields the file, None for a module.

    Two folders may both hold a `net.py`, and a file may have changed: then the previous import is dropped.
    """
    if not code.endswith(".py"):
        yield None
        return
    path = Path(code).expanduser().resolve()
    if not path.is_file():
        raise UserError(f"there is no Python file {code}")
    helpers = {name: f"{path.parent} {_digest(files)}" for name, files in _helpers(path).items()}
    if any(_stamps.get(name, stamp) != stamp for name, stamp in helpers.items()):
        for name in [name for name in sys.modules if name.partition(".")[0] in _stamps]:
            del sys.modules[name]
        _stamps.clear()
    before = set(sys.modules)
    sys.path.insert(0, str(path.parent))
    importlib.invalidate_caches()
    try:
        yield path
    finally:
        sys.path.remove(str(path.parent))
        _stamps.update({name: stamp for name, stamp in helpers.items() if name in sys.modules and name not in before})


def _module(code: str, path: Path | None) -> ModuleType:
    if path is None:
        return importlib.import_module(code)
    name = f"unswayed_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    file = importlib.util.spec_from_file_location(name, path)
    assert file is not None and file.loader is not None
    module = importlib.util.module_from_spec(file)
    sys.modules[name] = module
    file.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _blamed(what: str) -> Iterator[None]:
    """A block of the user's code, whose errors become a UserError that begins with `what`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{what}: {type(error).__name__}: {error}") from error


def _code_hash(module: ModuleType, path: Path | None) -> str | None:
    """SHA-256 of the code: the file and what it imports from its folder, or all of a module's package."""
    if path is not None:
        return _digest({path, *(file for files in _helpers(path).values() for file in files)})
    package = sys.modules[module.__name__.partition(".")[0]]
    files = {file for folder in getattr(package, "__path__", ()) for file in Path(folder).rglob("*.py")}
    files |= {Path(module.__file__)} if module.__file__ else set()
    return _digest(files) if files else None


def classes_hash(module: nn.Module) -> str | None:
    """SHA-256 of the source of a network's classes and their bases, less torch's; None if none of it can be read."""
    kinds = {kind for part in module.modules() for kind in type(part).__mro__}
    texts = set()
    for kind in (kind for kind in kinds if kind.__module__.partition(".")[0] not in ("torch", "builtins")):
        with contextlib.suppress(OSError, TypeError):
            texts.add(inspect.getsource(kind))
    return hashlib.sha256("".join(sorted(texts)).encode()).hexdigest() if texts else None


def _helpers(path: Path) -> dict[str, set[Path]]:
    """The modules in a file's folder that it imports, directly or indirectly: name -> files."""
    helpers: dict[str, set[Path]] = {}
    queue = [path]
    while queue:
        try:
            nodes = list(ast.walk(ast.parse(queue.pop().read_bytes())))
        except (SyntaxError, ValueError):  # no valid Python, which running it will show
            continue
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
        for name in {name.partition(".")[0] for name in names}:
            file, folder = path.parent / f"{name}.py", path.parent / name
            files = {file} if file.is_file() else set(folder.rglob("*.py")) if folder.is_dir() else set()
            if files and name not in helpers and path not in files:
                helpers[name] = files
                queue += files
    return helpers


def _digest(files: Iterable[Path]) -> str:
    return hashlib.sha256("".join(sha256(file) for file in sorted(files)).encode()).hexdigest()
