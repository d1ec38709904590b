"""Error ratios adjusted for all other factors, so that the effect of one factor is not attributed to another.

Factors are correlated: an image with an unusual background often has an unusual pose as well. A logistic regression of
"the prediction is wrong" on all sixteen factors at once separates them; its fitted probabilities, averaged over the
images with one factor set for all of them and the others as annotated (marginal standardization), give a ratio on the
same scale as the plain error ratio.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from scipy import stats
from scipy.special import expit

from unswayed.errors import UserError
from unswayed.sources.imagenet_x import FACTORS, Annotations

from .answers import Answers
from .verdicts import judge

# A slight regularization keeps the fit finite if a rare factor's images are all right or all wrong.
_RIDGE = 1e-4
_STEPS = 100


def adjusted_error_ratios(
    annotations: Annotations, answers: Answers, right: str = "class", *, level: float = 0.95
) -> pl.DataFrame:
    """Return model, factor, n, error_ratio, adjusted_error_ratio, low, high, risk_ratio, risk_low, risk_high, p_value.

    `adjusted_error_ratio` is the mean fitted error with the factor on over the average error; `risk_ratio` is the same
    mean over that with the factor off. Intervals are Wald's on the log scale (delta method); `p_value` is the Wald test
    of the factor's coefficient. Null for a factor that none or all of the images have.
    """
    if annotations.which != "multi":
        raise UserError(
            "the adjusted table needs every factor of an image; 'top' has only one",
            run="unswayed factors … --which multi",
        )
    correct, counted = judge(annotations, answers, right)
    patterns, kind = annotations.kinds.factors, annotations.kinds.of_image
    images = np.bincount(kind[counted], minlength=len(patterns)).astype(float)
    wrong = images - np.bincount(kind[correct], minlength=len(patterns))
    total, average = images.sum(), wrong.sum() / images.sum()
    n, n_wrong = images @ patterns, wrong @ patterns
    varied = np.flatnonzero((n > 0) & (n < total))
    fitted = np.full((len(FACTORS), 7), np.nan)
    if 0 < average < 1 and len(varied):
        design = np.column_stack([np.ones(len(patterns)), patterns[:, varied]]).astype(float)
        coefficients, covariance = fit_logistic(design, wrong, images)
        z = stats.norm.ppf(0.5 + level / 2)
        for column, factor in enumerate(varied, start=1):
            on, on_slope = _standardized(design, images, coefficients, column, 1.0)
            off, off_slope = _standardized(design, images, coefficients, column, 0.0)
            above = _log_interval(np.log(on / average), on_slope / on, covariance, z)
            against = _log_interval(np.log(on / off), on_slope / on - off_slope / off, covariance, z)
            wald = coefficients[column] / np.sqrt(covariance[column, column])
            fitted[factor] = [*above, *against, 2 * stats.norm.sf(abs(wald))]
    ratio = np.divide(n_wrong, n * average, out=np.full(len(FACTORS), np.nan), where=(n > 0) & (average > 0))
    names = ("adjusted_error_ratio", "low", "high", "risk_ratio", "risk_low", "risk_high", "p_value")
    return pl.DataFrame(
        {
            "model": [answers.model] * len(FACTORS),
            "factor": FACTORS,
            "n": n.astype(np.int64),
            "error_ratio": ratio,
            **dict(zip(names, fitted.T, strict=True)),
        },
        nan_to_null=True,
    )


def fit_logistic(design: np.ndarray, successes: np.ndarray, trials: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (coefficients (k,), covariance (k, k)) of a binomial logistic regression.

    `design` is (rows, k) with the intercept first; `successes` and `trials` are (rows,).
    """
    from sklearn.linear_model import LogisticRegression

    # Two weighted rows for each pattern, its successes and its failures.
    model = LogisticRegression(C=1 / _RIDGE, solver="newton-cholesky", tol=1e-10, max_iter=_STEPS)
    outcome = np.repeat([True, False], len(design))
    model.fit(np.vstack([design[:, 1:]] * 2), outcome, np.concatenate([successes, trials - successes]))
    coefficients = np.concatenate([model.intercept_, model.coef_[0]])
    chance = expit(design @ coefficients)
    information = design.T @ (design * (trials * chance * (1 - chance))[:, None])
    return coefficients, np.linalg.inv(information + np.diag([0.0] + [_RIDGE] * (design.shape[1] - 1)))


def _standardized(
    design: np.ndarray, images: np.ndarray, coefficients: np.ndarray, column: int, value: float
) -> tuple[float, np.ndarray]:
    """Return the mean fitted probability with one column set to `value`, and its gradient in the coefficients (k,)."""
    changed = design.copy()
    changed[:, column] = value
    chance = expit(changed @ coefficients)
    weight = images / images.sum()
    return float(weight @ chance), (weight * chance * (1 - chance)) @ changed


def _log_interval(
    log_ratio: float, gradient: np.ndarray, covariance: np.ndarray, z: float
) -> tuple[float, float, float]:
    half = z * float(np.sqrt(gradient @ covariance @ gradient))
    return float(np.exp(log_ratio)), float(np.exp(log_ratio - half)), float(np.exp(log_ratio + half))
