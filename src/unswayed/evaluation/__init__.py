"""Run classifiers on a benchmark or a labeled folder; store every prediction, one Parquet file and card per model."""

import lazy_loader

# The names are listed in __init__.pyi, which type checkers read; each loads its module on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
