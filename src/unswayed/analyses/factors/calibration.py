"""Expected calibration error on the images of each factor: how far confidence is from accuracy."""

from __future__ import annotations

import numpy as np
import polars as pl

from unswayed.analyses.calibration_error import expected_calibration_error
from unswayed.errors import UserError, unknown
from unswayed.sources.imagenet_x import FACTORS, METACLASSES, Annotations

from .answers import Answers
from .error_ratios import BY
from .verdicts import judge


def factor_calibration(
    annotations: Annotations, answers: Answers, right: str = "class", by: str | None = None
) -> pl.DataFrame:
    """Return model, [metaclass,] factor, n, calibration_error: one row per factor, then `worst_factor`, `average`."""
    if by not in (None, *BY):
        raise unknown("grouping", str(by), BY)
    correct, counted = judge(annotations, answers, right)
    if np.isnan(answers.probability[counted]).any():
        raise UserError(f"'{answers.model}' has no predicted probabilities, which calibration needs")
    tables = []
    for position, name in enumerate(METACLASSES if by else (None,)):
        member = counted & (annotations.metaclasses == position) if by else counted
        masks = [*(annotations.factors & member[:, None]).T, member]
        n = [int(mask.sum()) for mask in masks]
        values = [expected_calibration_error(correct[mask], answers.probability[mask]) for mask in masks]
        per_factor = np.array(values[: len(FACTORS)])
        worst = int(np.argmax(np.nan_to_num(per_factor, nan=-1.0)))
        n.insert(len(FACTORS), n[worst])
        values.insert(len(FACTORS), values[worst])
        columns = {
            "model": [answers.model] * len(n),
            **({"metaclass": [name] * len(n)} if by else {}),
            "factor": [*FACTORS, "worst_factor", "average"],
            "n": n,
            "calibration_error": values,
        }
        tables.append(pl.DataFrame(columns, nan_to_null=True))
    return pl.concat(tables)
