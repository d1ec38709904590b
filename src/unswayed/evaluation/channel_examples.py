"""Pictures with the highest activation of each attribute's best channel: picture, activation map and mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from unswayed.choices import Frame

from .features import activation_maps, open_layer
from .neural_features import OBJECT, ChannelStudy
from .noise import at_input

if TYPE_CHECKING:
    from unswayed.models import Classifier
    from unswayed.sources import Source


@dataclass(frozen=True, eq=False)
class ChannelExample:
    """One picture under one channel.

    image: (S, S, 3) uint8 at the model's input size; heat: (S, S) float32 in [0, 1], the channel's activation;
    mask: (S, S) bool, the attribute.
    """

    source_id: str
    image: np.ndarray
    heat: np.ndarray
    mask: np.ndarray


def channel_examples(
    model: Classifier, source: Source, study: ChannelStudy, best: pl.DataFrame, most: int = 4
) -> list[list[ChannelExample]]:
    """For each row of `best` (attribute, channel), up to `most` pictures in which that channel is most active."""
    with activation_maps(model, open_layer(model, study.layer)) as maps_of:
        return [
            [
                _example(model, source, one, attribute, channel, maps_of, study.frame)
                for one in study.examples(attribute, channel, most)
            ]
            for attribute, channel in best.select("attribute", "channel").iter_rows()
        ]


def _example(
    model: Classifier, source: Source, scene_id: str, attribute: str, channel: int, maps_of: object, frame: Frame
) -> ChannelExample:
    import cv2
    import torch

    assert callable(maps_of)
    image, masks = at_input(source[scene_id], model.transform.crop, frame)
    heat = np.maximum(maps_of(model.from_pixels(torch.from_numpy(image)[None]))[0, channel].cpu().numpy(), 0)
    heat = cv2.resize(heat / max(float(heat.max()), 1e-6), image.shape[1::-1], interpolation=cv2.INTER_LINEAR)
    return ChannelExample(scene_id, image, heat, masks["foreground" if attribute == OBJECT else attribute])
