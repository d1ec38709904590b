"""Attribute edits as training augmentations: `RandomEdit` on a CPU, one picture at a time; `BatchEdit` on a GPU."""

import lazy_loader

# The names are listed in __init__.pyi, which type checkers read; each loads its module on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
