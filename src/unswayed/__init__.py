"""Change one attribute of the object in a photograph, keep everything else, and measure how far the answer moves."""

from __future__ import annotations

import sys
from types import ModuleType

import lazy_loader

__version__ = "0.1.0"

# The public names are listed in __init__.pyi, which type checkers read; each loads its module on first use, so that
# `import unswayed` and `unswayed --help` stay quick.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


class CallableRoom(ModuleType):
    """A room that has the name of a public function, such as `repair`: calling the room calls the function."""

    def __call__(self, *arguments: object, **keywords: object) -> object:
        return __getattr__(self.__name__.rpartition(".")[2])(*arguments, **keywords)


# lazy_loader's own class would hide the rooms that have the name of a function.
sys.modules[__name__].__class__ = ModuleType
