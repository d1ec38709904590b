"""Change one attribute of the object in a photograph, keep everything else, and measure how far the answer moves."""

from __future__ import annotations

import sys
from types import ModuleType

import lazy_loader

__version__ = "0.1.0"

# The public names are listed in __init__.pyi, which type checkers read; each loads its module on first use, so that
# `import unswayed` and `unswayed --help` stay quick.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


class _Package(ModuleType):
    """A package whose function `report` is not replaced by the folder `report` when that folder is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
