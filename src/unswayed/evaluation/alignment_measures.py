"""Alignment of a heat map with an object mask."""

from __future__ import annotations

import numpy as np

from unswayed.errors import BadPicture, UserError

MASSES = (25, 50, 75)
MEASURES = (
    "iou",
    "dice",
    "precision",
    "recall_25",
    "recall_50",
    "recall_75",
    "density_difference",
    "average_precision",
)


def alignment(heat: np.ndarray, mask: np.ndarray) -> dict[str, float | None]:
    """The measures in `MEASURES` of how well a heat map matches an object; None where undefined.

    heat: (H, W) float, 0 or more; mask: (H, W), object where > 0.5. iou and dice: the map at half its maximum or
    above, against the mask. precision: the share of the map's mass on the object (None for a map without mass).
    recall_25 (50, 75): the share of the object still covered once the lowest pixels that hold 25 % of the mass
    are dropped. density_difference: mean inside less mean outside. average_precision: of the map as a ranking.

    >>> corner = np.array([[1.0, 0.2], [0.0, 0.0]])
    >>> alignment(corner, np.array([[1, 0], [0, 0]]))["iou"]
    1.0
    """
    from sklearn.metrics import average_precision_score

    heat, inside = np.asarray(heat), np.asarray(mask) > 0.5
    if heat.shape != inside.shape:
        raise UserError(f"the heat map is {heat.shape}, the mask {inside.shape}", allowed="equal shapes")
    if not inside.any():
        raise BadPicture("the mask is empty: no alignment can be measured", allowed="at least one object pixel")
    if inside.all():
        raise BadPicture("the mask covers the whole picture: no alignment can be measured", allowed="some background")
    if not np.isfinite(heat).all() or (heat < 0).any():
        raise UserError("the heat map holds negative or non-finite values", allowed="finite values, 0 or more")
    values = heat.astype(np.float64)
    hot = (values >= values.max() / 2) & (values > 0)
    both, union = np.count_nonzero(hot & inside), np.count_nonzero(hot | inside)
    mass = values.sum()
    return {
        "iou": float(both / union),
        "dice": float(2 * both / (union + both)),
        "precision": float(values[inside].sum() / mass) if mass > 0 else None,
        **{f"recall_{share}": _recall(values, inside, share / 100) for share in MASSES},
        "density_difference": float(values[inside].mean() - values[~inside].mean()),
        "average_precision": float(average_precision_score(inside.ravel(), values.ravel())),
    }


def _recall(values: np.ndarray, inside: np.ndarray, share: float) -> float:
    ranked = np.sort(values, axis=None)
    below = np.cumsum(ranked)
    if below[-1] <= 0:
        return 0.0
    threshold = ranked[np.searchsorted(below, share * below[-1])]
    return float((values[inside] >= threshold).mean())
