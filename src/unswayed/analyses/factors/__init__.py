"""ImageNet-X: a model's mistakes by factor of variation (Idrissi et al., ICLR 2023), with intervals.

from unswayed.analyses.factors.study import Study, make_table
make_table(Study(Path("predictions"), which="top"))            # polars frame: model, factor, n, accuracy, …
"""
