"""Heat maps of chosen pictures: regions beside the object that a model uses, and photographs with their edits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
import torch

from unswayed.choices import Frame
from unswayed.errors import BadPicture, UserError, need
from unswayed.labels import LabelSpace, task_of
from unswayed.models import Classifier, open_model
from unswayed.models.label_mapping import map_labels
from unswayed.sources import Source

from .channels import activation_maps
from .evaluator import is_evaluated
from .predictions import HeatMaps, PicturePair
from .saliency import MaskedPicture, answer_and_heat, explainer, scene_pictures

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
    model: Classifier, source: Source, ids: Iterable[str], method: str = "layercam", frame: Frame = "object"
) -> list[Region]:
    """One region per readable picture, with its cluster: the largest cluster first, those without one last."""
    regions = list(looked_at(model, source, ids, method, frame))
    if not regions:
        raise UserError("none of these pictures has heat beside the object")
    clusters = cluster(np.stack([region.feature for region in regions]))
    marked = [replace(region, cluster=int(number)) for region, number in zip(regions, clusters, strict=True)]
    sizes = {number: int((clusters == number).sum()) for number in set(clusters.tolist())}
    return sorted(
        marked, key=lambda region: (region.cluster == NOISE, -sizes[region.cluster], region.cluster, -region.share)
    )


def looked_at(
    model: Classifier, source: Source, ids: Iterable[str], method: str = "layercam", frame: Frame = "object"
) -> Iterable[Region]:
    """The region of each picture; without pictures that cannot be read or whose heat is only on the object."""
    load, mapping = scene_pictures(source, model, frame)
    with explainer(model, method) as explain, activation_maps(model) as maps_of:
        for scene_id in dict.fromkeys(ids):
            try:
                picture = load(scene_id)
            except BadPicture:
                continue
            answer, heat = answer_and_heat(model, picture, mapping, explain)
            # The blur of the heat map reaches half a cell of the layer's grid around the object.
            reach = 2 * (len(picture.mask) // (2 * model.heat_layer.height)) + 1
            grown = cv2.dilate((picture.mask > 0.5).astype(np.uint8), np.ones((reach, reach), np.uint8)) > 0
            off = np.where(grown, 0, heat).astype(np.float32)
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


def _box(heat: np.ndarray) -> tuple[int, int, int, int]:
    """The box of the part around the peak at half its height or above; at least an eighth of the picture's side."""
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


def explain_pairs(
    pairs: Sequence[PicturePair],
    cards: Mapping[str, Mapping[str, object]],
    progress: Callable[[], None] = lambda: None,
    trust: bool = False,
) -> tuple[list[HeatMaps | None], list[str]]:
    """The heat maps (H, W) of both pictures of every pair, in order, and notes.

    cards: by model, as `evaluate` wrote them. A model that cannot be opened, or whose weights differ from those
    that were evaluated, has no maps, but a note. trust: also open models that can run code or use the network,
    although their names come from the predictions.
    """
    of_pairs: list[HeatMaps | None] = [None] * len(pairs)
    notes: list[str] = []
    try:
        need("studies", "pytorch_grad_cam")
    except UserError as error:
        return of_pairs, [f"No heat maps: {error.given}; {error.run}"] if pairs else []
    for model in dict.fromkeys(pair.model for pair in pairs):
        places = [index for index, pair in enumerate(pairs) if pair.model == model]
        try:
            maps = _of_model(model, [pairs[index] for index in places], cards.get(model, {}), trust)
            for index, both in zip(places, maps, strict=True):
                of_pairs[index] = both
        except Exception as error:  # any error of a third-party model: the report is made without its maps
            reason = error.given if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            notes.append(f"No heat maps for {model}: {reason}")
        for _ in places:
            progress()
    return of_pairs, notes


def _of_model(name: str, pairs: Sequence[PicturePair], card: Mapping[str, Any], trust: bool) -> list[HeatMaps]:
    if (task := task_of(card.get("task"))) != "classify":
        raise UserError(f"its task is `{task}`")
    labels = LabelSpace.from_json(card["labels"]) if "labels" in card else None
    model = open_model(str(card.get("spec", name)), labels=labels, trust=trust)
    if not is_evaluated(model, card):
        raise UserError("its weights or its code differ from those that were evaluated")
    mapping = map_labels(model.labels, labels or model.labels, {pair.label for pair in pairs})
    photographs: dict[str, np.ndarray] = {}
    maps: list[HeatMaps] = []
    with explainer(model) as explain:

        def explained(pair: PicturePair, edit: str, picture: np.ndarray) -> np.ndarray:
            whole = np.ones(picture.shape[:2], np.float32)
            return answer_and_heat(
                model, MaskedPicture(pair.source_id, edit, pair.label, picture, whole, False), mapping, explain
            )[1]

        for pair in pairs:
            if pair.source_id not in photographs:
                photographs[pair.source_id] = explained(pair, "original", pair.before)
            maps.append((photographs[pair.source_id], explained(pair, pair.edit, pair.after)))
    return maps
