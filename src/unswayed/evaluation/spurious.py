"""Regions beside the object that a model uses: found in suspicious pictures and clustered for a person to name.

found = shared_regions(open_model("lite:0"), open_source("sample"), suspect_ids)
groups = [[region for region in found if region.cluster == one] for one in range(...)]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from unswayed.choices import Frame
from unswayed.errors import BadPicture, UserError

from .alignment import answer_and_heat, scene_pictures
from .features import activation_maps
from .saliency import explainer

if TYPE_CHECKING:
    from unswayed.models import Classifier
    from unswayed.sources import Source

NOISE = -1
# A heat map's maximum is 1; lower values beside the object are only the blurred edge of the heat on it.
FAINT = 0.2


@dataclass(frozen=True, eq=False)
class Region:
    """The part of one picture beside its object with the most heat.

    image: (S, S, 3) uint8 at the model's input size; heat: (S, S), 0 on and close to the object; box: top, left,
    bottom, right of the region around its peak; share: the share of the heat map's mass beside the object;
    feature: (C,) of unit length, the layer's activations under that heat; cluster: its shared feature, -1 for none.
    """

    source_id: str
    label: int
    predicted: int
    image: np.ndarray
    heat: np.ndarray
    box: tuple[int, int, int, int]
    share: float
    feature: np.ndarray
    cluster: int = NOISE


def shared_regions(
    model: Classifier,
    source: Source,
    ids: Iterable[str],
    method: str = "layercam",
    frame: Frame = "object",
) -> list[Region]:
    """One region per readable picture, with its cluster: the largest cluster first, those without one last."""
    regions = list(looked_at(model, source, ids, method, frame))
    if not regions:
        raise UserError("in none of these pictures is there heat beside the object")
    found = cluster(np.stack([one.feature for one in regions]))
    marked = [replace(region, cluster=int(number)) for region, number in zip(regions, found, strict=True)]
    sizes = {number: int((found == number).sum()) for number in set(found.tolist())}
    return sorted(marked, key=lambda one: (one.cluster == NOISE, -sizes[one.cluster], one.cluster, -one.share))


def looked_at(
    model: Classifier, source: Source, ids: Iterable[str], method: str = "layercam", frame: Frame = "object"
) -> Iterable[Region]:
    """The region of each picture; without pictures that cannot be read or whose heat is only on the object."""
    import cv2
    import torch

    load, mapping = scene_pictures(source, model, frame)
    with explainer(model, method) as explain, activation_maps(model) as maps_of:
        for scene_id in dict.fromkeys(ids):
            try:
                picture = load(scene_id)
            except BadPicture:
                continue
            answer, heat = answer_and_heat(model, picture, mapping, explain)
            off = np.where(_grown(picture.mask, model.heat_layer.height), 0, heat).astype(np.float32)
            if off.max() < FAINT:
                continue
            maps = maps_of(model.from_pixels(torch.from_numpy(picture.image)[None]))[0]
            weights = cv2.resize(off, (maps.shape[2], maps.shape[1]), interpolation=cv2.INTER_AREA)
            feature = torch.einsum("chw,hw->c", maps.cpu(), torch.from_numpy(weights)).numpy()
            length = float(np.linalg.norm(feature)) or 1.0
            yield Region(
                scene_id, picture.label, answer["predicted"], picture.image, off, _box(off),
                float(off.sum() / heat.sum()), feature / length,
            )  # fmt: skip


def cluster(features: np.ndarray) -> np.ndarray:
    """One cluster number per row of (n, C) unit vectors, -1 for a row that is not similar to any other (HDBSCAN).

    Fewer than four rows are not clustered.
    """
    if len(features) < 4:
        return np.full(len(features), NOISE)
    from sklearn.cluster import HDBSCAN

    return HDBSCAN(min_cluster_size=2, metric="euclidean", copy=True).fit_predict(features)


def _grown(mask: np.ndarray, cells: int) -> np.ndarray:
    """The object and half a cell of the layer's grid around it, which the blur of the heat map reaches."""
    import cv2

    reach = 2 * (len(mask) // (2 * cells)) + 1
    return cv2.dilate((mask > 0.5).astype(np.uint8), np.ones((reach, reach), np.uint8)) > 0


def _box(heat: np.ndarray) -> tuple[int, int, int, int]:
    """The box of the part around the peak at half its height or above; at least an eighth of the picture's side."""
    import cv2

    _, parts = cv2.connectedComponents((heat >= heat.max() / 2).astype(np.uint8))
    rows, columns = np.nonzero(parts == parts[np.unravel_index(heat.argmax(), heat.shape)])
    least = max(1, len(heat) // 8)
    top, bottom = _at_least(rows.min(), rows.max() + 1, least, len(heat))
    left, right = _at_least(columns.min(), columns.max() + 1, least, heat.shape[1])
    return top, left, bottom, right


def _at_least(first: int, last: int, least: int, side: int) -> tuple[int, int]:
    missing = max(0, least - int(last - first))
    first = min(max(0, int(first) - missing // 2), side - least) if missing else int(first)
    return first, max(int(last), first + least)
