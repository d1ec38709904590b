"""ImageNet-X: a model's mistakes by factor of variation (Idrissi et al., ICLR 2023), with intervals.

from unswayed.analyses.factors import Study, make_table
make_table(Study(Path("predictions"), which="top"))            # polars frame: model, factor, n, accuracy, …
"""

from unswayed.sources.imagenet_x import FACTORS, METACLASSES, Annotations, load_annotations

from .adjusted import adjusted_error_ratios
from .answers import Answers, coverage, human_answers, read_answers
from .calibration import expected_calibration_error, factor_calibration
from .comparison import compare_models
from .correlation import factor_correlation
from .editing import agreement, drop_and_error_ratio
from .error_ratios import factor_errors
from .model_types import compare_model_types, published_groups, read_groups
from .prevalence import (
    active_factor_counts,
    factor_distribution,
    metaclass_shift,
    misclassification_shift,
    prevalence,
)
from .results import read_results, result_files
from .spill_over import augmentation_groups, by_strength, read_strengths, spill_over, strengths_by_name
from .study import DIGITS, HEADINGS, TABLES, Study, make_table, published_tables, remarks, two_models
from .verdicts import RIGHT

__all__ = [
    "DIGITS", "FACTORS", "HEADINGS", "METACLASSES", "RIGHT", "TABLES", "Annotations", "Answers", "Study",
    "active_factor_counts", "adjusted_error_ratios", "agreement", "augmentation_groups", "by_strength",
    "compare_model_types", "compare_models", "coverage", "drop_and_error_ratio", "expected_calibration_error",
    "factor_calibration", "factor_correlation", "factor_distribution", "factor_errors",
    "human_answers", "load_annotations", "make_table", "metaclass_shift", "misclassification_shift", "prevalence",
    "published_groups", "published_tables", "read_answers", "read_groups", "read_results", "read_strengths",
    "remarks", "result_files", "spill_over", "strengths_by_name", "two_models",
]  # fmt: skip
