"""The best channel of each attribute on the pictures that drive it most, with the attribute's outline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from unfazed.probes.features import activation_maps, open_layer
from unfazed.probes.neural_features import OBJECT, ChannelStudy
from unfazed.probes.noise import at_input

from .figures_sensitivity import outlined, overlay, picture_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from unfazed.models import Classifier
    from unfazed.sources import Source


def channel_sheet(model: Classifier, source: Source, study: ChannelStudy, best: pl.DataFrame, most: int = 4) -> Figure:
    """A row an attribute: its best channel's activation over the pictures in which that channel is most active."""
    rows, names = [], []
    with activation_maps(model, open_layer(model, study.layer)) as maps_of:
        for row in best.iter_rows(named=True):
            attribute, channel = row["attribute"], row["channel"]
            examples = study.examples(attribute, channel, most)
            pictures = [_picture(model, source, one, attribute, channel, maps_of) for one in examples]
            rows.append((pictures, examples))
            score = "" if row["auroc"] is None else f"\nAUROC {row['auroc']:.2f}"
            names.append(f"{attribute}\nchannel {channel}\nAP {row['average_precision']:.2f}{score}")
    return picture_sheet(rows, names)


def _picture(
    model: Classifier, source: Source, scene_id: str, attribute: str, channel: int, maps_of: object
) -> np.ndarray:
    import cv2
    import torch

    assert callable(maps_of)
    image, masks = at_input(source[scene_id], model.transform.crop)
    heat = np.maximum(maps_of(model.from_pixels(torch.from_numpy(image)[None]))[0, channel].cpu().numpy(), 0)
    heat = cv2.resize(heat / max(float(heat.max()), 1e-6), image.shape[1::-1], interpolation=cv2.INTER_LINEAR)
    return outlined(overlay(image, heat), masks["foreground" if attribute == OBJECT else attribute])
