"""`open_model("source:name")` returns a `Classifier`: its own transform, its label space, its logits."""

import lazy_loader

# The names are listed in __init__.pyi, which type checkers read; each loads its module on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
