"""Repair: fine-tune a classifier on edited data, with a plain fine-tune as control, and measure before and after."""

import sys

import lazy_loader

from unswayed import CallableRoom

# The names are listed in __init__.pyi, which type checkers read; each loads its module on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

sys.modules[__name__].__class__ = CallableRoom  # `unswayed.repair` is also a function
