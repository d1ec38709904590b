"""A model's accuracy, error ratio and calibration on the images of each factor, also adjusted for other factors."""

from __future__ import annotations

import numpy as np
import polars as pl
from scipy import special
from scipy.special import expit

from unswayed.errors import UserError, check_known, need, unknown
from unswayed.sources.imagenet_x import FACTORS, METACLASSES, Annotations

from ..statistics.paired import expected_calibration_error, percentiles
from .answers import Answers

RIGHT = ("class", "metaclass", "real", "real-standard")
BY = ("metaclass",)
WORST_CLASSES = 100
# A slight regularization keeps the fit finite if a rare factor's images are all right or all wrong.
_RIDGE = 1e-4
_STEPS = 100


def correct_predictions(
    annotations: Annotations, answers: Answers, right: str = "class"
) -> tuple[np.ndarray, np.ndarray]:
    """Return (right, counted), each (N,) bool: `right` implies `counted`, which implies that there is a prediction.

    right: `class`: the prediction is the original label. `metaclass`: both have the same of 17 metaclasses, one of
    which is `other`. `real`: it is a ReaL label; an image without any counts as wrong, as in the published tables.
    `real-standard`: an image without any is left out, as in ReaL's own protocol.
    """
    check_known("definition of correct", [right], RIGHT)
    predicted, counted, real = answers.predicted, answers.seen, annotations.real
    if right == "class":
        correct = predicted == annotations.labels
    elif right == "metaclass":
        correct = annotations.metaclass_of_class[predicted] == annotations.metaclasses
    elif real is None:
        raise UserError("ReaL labels exist for validation images only", allowed="--partition val, or --right class")
    else:
        correct = (real == predicted[:, None]).any(axis=1)
        counted = counted & (real[:, 0] >= 0) if right == "real-standard" else counted
    return correct & counted, counted


def factor_errors(
    annotations: Annotations,
    answers: Answers,
    right: str = "class",
    by: str | None = None,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> pl.DataFrame:
    """Return model, [metaclass,] factor, n, accuracy, error_ratio, low, high, coverage: one row per factor and summary.

    Accuracy is that of the n images with the factor; the error ratio is (1 - accuracy) / (1 - average), and low and
    high bound it with the given level (null when `resamples` is 0). The summaries follow the 16 factors:
    `worst_factor`, `average` over all images and, without `by`, `worst_100_classes`. What has no images is null.
    The worst factor and classes are chosen from the same predictions, so their intervals are too narrow.
    """
    if by not in (None, *BY):
        raise unknown("grouping", str(by), BY)
    correct, counted = correct_predictions(annotations, answers, right)
    n, total = annotations.count(counted, by == "metaclass")
    n_right, total_right = annotations.count(correct, by == "metaclass")
    n, n_right = np.column_stack([n, total]), np.column_stack([n_right, total_right])
    names = [*FACTORS, "average"]
    if not by:
        worst_n, worst_right = worst_classes(annotations.labels, correct, counted)
        n, n_right = np.append(n, [[worst_n]], axis=1), np.append(n_right, [[worst_right]], axis=1)
        names.append("worst_100_classes")
    accuracy = divide(n_right, n)
    ratio = divide(1 - accuracy, 1 - divide(total_right, total)[:, None])
    low, high = ratio_intervals(n, n_right, total, total_right, resamples, level, seed)

    worst = np.argmin(np.nan_to_num(accuracy[:, : len(FACTORS)], nan=np.inf), axis=1)[:, None]
    columns = [
        np.insert(column, len(FACTORS), np.take_along_axis(column, worst, axis=1).ravel(), axis=1).ravel()
        for column in (n, accuracy, ratio, low, high)
    ]
    names.insert(len(FACTORS), "worst_factor")
    keys = {"model": answers.model, **({"metaclass": np.repeat(METACLASSES, len(names)).tolist()} if by else {})}
    numbers = dict(zip(("n", "accuracy", "error_ratio", "low", "high"), columns, strict=True))
    table = {**keys, "factor": names * len(total), **numbers, "coverage": answers.coverage}
    return pl.DataFrame(table, nan_to_null=True)


def worst_classes(
    labels: np.ndarray, correct: np.ndarray, counted: np.ndarray, k: int = WORST_CLASSES
) -> tuple[int, int]:
    """Return (images, correct predictions) over the k classes of lowest accuracy; of equal ones the lower index first.

    >>> worst_classes(np.array([0, 0, 1, 2]), np.array([1, 0, 0, 1], bool), np.ones(4, bool), k=2)
    (3, 1)
    """
    n = np.bincount(labels[counted], minlength=1)
    n_right = np.bincount(labels[correct], minlength=len(n))
    there = np.flatnonzero(n)
    chosen = there[np.argsort(n_right[there] / n[there], kind="stable")[:k]]
    return int(n[chosen].sum()), int(n_right[chosen].sum())


def divide(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return the quotient as float64, NaN if `below` is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below == 0, np.nan, above / below)


def ratio_intervals(
    n: np.ndarray,
    n_right: np.ndarray,
    total: np.ndarray,
    total_right: np.ndarray,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (low, high), each (groups, factors): percentile bootstrap bounds of (wrong_f / n_f) / (wrong / total).

    `n` and `n_right` are (groups, factors) counts of images with the factor, `total` and `total_right` (groups,) counts
    of all images of the group. NaN where there is no such image, no error at all, or `resamples` is 0.

    Drawing n images with replacement and counting those with a factor, wrong or right, is a multinomial draw over four
    cells, (with or without the factor) x (wrong or right). A draw of four numbers has exactly the distribution of a
    draw of 46,110 images, with a ten-thousandth of the work.
    """
    low, high = np.full(n.shape, np.nan), np.full(n.shape, np.nan)
    wrong, total_wrong = n - n_right, total - total_right
    usable = (n > 0) & (total_wrong > 0)[:, None]
    if resamples == 0 or not usable.any():
        return low, high
    everything = np.broadcast_to(total[:, None], n.shape)[usable]
    without = (total_wrong[:, None] - wrong)[usable], (total_right[:, None] - n_right)[usable]
    cells = np.stack([wrong[usable], n_right[usable], *without], axis=-1)
    draws = np.random.default_rng(seed).multinomial(
        everything, cells / everything[:, None], size=(resamples, len(cells))
    )
    ratio = divide(draws[..., 0] * everything, (draws[..., 0] + draws[..., 1]) * (draws[..., 0] + draws[..., 2]))
    # A rare factor may be missing from a draw, which is then left out for this factor.
    low[usable], high[usable] = percentiles(ratio, level)
    return low, high


def factor_calibration(
    annotations: Annotations, answers: Answers, right: str = "class", by: str | None = None
) -> pl.DataFrame:
    """Return model, [metaclass,] factor, n, calibration_error: one row per factor, then `worst_factor`, `average`."""
    if by not in (None, *BY):
        raise unknown("grouping", str(by), BY)
    correct, counted = correct_predictions(annotations, answers, right)
    if np.isnan(answers.probability[counted]).any():
        raise UserError(f"'{answers.model}' has no predicted probabilities, which calibration needs")
    tables = []
    for position, name in enumerate(METACLASSES if by else (None,)):
        member = counted & (annotations.metaclasses == position) if by else counted
        masks = [*(annotations.factors & member[:, None]).T, member]
        n = [int(mask.sum()) for mask in masks]
        values = [expected_calibration_error(correct[mask], answers.probability[mask]) for mask in masks]
        worst = int(np.argmax(np.nan_to_num(values[: len(FACTORS)], nan=-1.0)))
        n.insert(len(FACTORS), n[worst])
        values.insert(len(FACTORS), values[worst])
        keys = {"model": answers.model, **({"metaclass": name} if by else {})}
        columns = {"factor": [*FACTORS, "worst_factor", "average"], "n": n, "calibration_error": values}
        tables.append(pl.DataFrame({**keys, **columns}, nan_to_null=True))
    return pl.concat(tables)


def adjusted_error_ratios(
    annotations: Annotations, answers: Answers, right: str = "class", *, level: float = 0.95
) -> pl.DataFrame:
    """Return model, factor, n, error_ratio, adjusted_error_ratio, low, high, risk_ratio, risk_low, risk_high, p_value.

    `adjusted_error_ratio` is the mean fitted error with the factor on over the average error; `risk_ratio` is the same
    mean over that with the factor off. Intervals are Wald's on the log scale (delta method); `p_value` is the Wald test
    of the factor's coefficient. Null for a factor that none or all of the images have.

    Factors are correlated: an image with an unusual background often has an unusual pose as well. A logistic regression
    of "the prediction is wrong" on all sixteen factors at once separates them; its fitted probabilities, averaged over
    the images with one factor set for all of them (marginal standardization), give a ratio on the scale of the plain
    error ratio.
    """
    if annotations.which != "multi":
        raise UserError(
            "the adjusted table needs every factor of an image; 'top' has only one",
            run="unswayed factors … --which multi",
        )
    correct, counted = correct_predictions(annotations, answers, right)
    patterns, kind = annotations.kinds.factors, annotations.kinds.of_image
    images = np.bincount(kind[counted], minlength=len(patterns)).astype(float)
    wrong = images - np.bincount(kind[correct], minlength=len(patterns))
    total, average = images.sum(), wrong.sum() / images.sum()
    n, n_wrong = images @ patterns, wrong @ patterns
    varied = np.flatnonzero((n > 0) & (n < total))
    fitted = np.full((len(FACTORS), 7), np.nan)
    if 0 < average < 1 and len(varied):
        design = np.column_stack([np.ones(len(patterns)), patterns[:, varied]]).astype(float)
        coefficients, covariance = logistic_regression(design, wrong, images)
        z = special.ndtri(0.5 + level / 2)

        def interval(log_ratio: float, gradient: np.ndarray) -> np.ndarray:
            half = z * float(np.sqrt(gradient @ covariance @ gradient))
            return np.exp([log_ratio, log_ratio - half, log_ratio + half])

        for column, factor in enumerate(varied, start=1):
            on, on_slope = _standardized(design, images, coefficients, column, 1.0)
            off, off_slope = _standardized(design, images, coefficients, column, 0.0)
            above = interval(np.log(on / average), on_slope / on)
            against = interval(np.log(on / off), on_slope / on - off_slope / off)
            wald = coefficients[column] / np.sqrt(covariance[column, column])
            fitted[factor] = [*above, *against, 2 * special.ndtr(-abs(wald))]
    names = ("adjusted_error_ratio", "low", "high", "risk_ratio", "risk_low", "risk_high", "p_value")
    keys = {"model": answers.model, "factor": FACTORS, "n": n.astype(np.int64)}
    table = {**keys, "error_ratio": divide(n_wrong, n * average), **dict(zip(names, fitted.T, strict=True))}
    return pl.DataFrame(table, nan_to_null=True)


def logistic_regression(design: np.ndarray, successes: np.ndarray, trials: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (coefficients (k,), covariance (k, k)) of a binomial logistic regression.

    `design` is (rows, k) with the intercept first; `successes` and `trials` are (rows,).
    """
    need("studies", "sklearn")
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
