"""Channels of a layer against attributes: activation maps, comparison with the masks of a source, example pictures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import cv2
import numpy as np
import polars as pl
import torch
from torch.nn.functional import interpolate

from unswayed.choices import Frame
from unswayed.errors import BadPicture, UserError
from unswayed.models import Classifier, HeatLayer
from unswayed.models.classifier import find_heat_layer
from unswayed.sources import Source

from .measures import channel_localization, channel_table
from .noise import at_input

MapsOf = Callable[[torch.Tensor], torch.Tensor]


@contextlib.contextmanager
def activation_maps(model: Classifier, layer: HeatLayer | None = None) -> Iterator[MapsOf]:
    """A function from transformed inputs (N, 3, crop, crop) to the layer's maps (N, channels, h, w) float32.

    layer: the model's heat layer if None.
    """
    chosen = layer or model.heat_layer
    seen: list[torch.Tensor] = []

    def hook(_: object, __: object, output: torch.Tensor) -> None:
        seen.append(chosen.as_maps(output))

    def maps_of(inputs: torch.Tensor) -> torch.Tensor:
        seen.clear()
        model.logits(inputs)
        return seen[-1].float()

    with chosen.module(model.module).register_forward_hook(hook):
        yield maps_of


def open_layer(model: Classifier, name: str | None) -> HeatLayer:
    """The description of the layer with that dotted name; the model's heat layer if None."""
    if name is None:
        return model.heat_layer
    side = model.transform.crop
    return find_heat_layer(model.module, torch.zeros(1, 3, side, side, device=model.device), name)


# Maps and masks are compared on this grid: fine enough for an eye, coarse enough for 2,000 channels at once.
GRID = 56
OBJECT = "object"


@dataclass(frozen=True, eq=False)
class ChannelStudy:
    """table: one row per attribute and channel; ids: pictures read; pooled: (n, C) mean activations; failures."""

    layer: str
    frame: Frame
    table: pl.DataFrame
    ids: list[str]
    present: dict[str, np.ndarray]
    pooled: np.ndarray
    failures: dict[str, str]

    def examples(self, attribute: str, channel: int, limit: int = 4) -> list[str]:
        """The pictures with the attribute in which the channel is most active."""
        order = np.argsort(-self.pooled[:, channel], kind="stable")
        return [self.ids[index] for index in order if self.present[attribute][index]][:limit]


def study_channels(
    model: Classifier,
    source: Source,
    layer: str | None = None,
    progress: Callable[[int], None] | None = None,
    frame: Frame = "object",
) -> ChannelStudy:
    """Every channel of a layer (the heat layer if None) against every attribute of the source and the object itself."""
    source.require_masks(" to compare channels with")
    chosen = open_layer(model, layer)
    sums: dict[str, tuple[np.ndarray, np.ndarray, int]] = {}
    seen: list[set[str]] = []
    ids, pooled, failures = [], [], {}
    with activation_maps(model, chosen) as maps_of:
        for scene_id in source.ids:
            try:
                maps, masks = channel_maps(model, source, scene_id, maps_of, frame)
            except BadPicture as problem:
                failures[scene_id] = str(problem)
                continue
            finally:
                if progress:
                    progress(1)
            for name, mask in masks.items():
                iou, precision = channel_localization(maps, mask)
                before = sums.get(name, (0.0, 0.0, 0))
                sums[name] = (before[0] + iou, before[1] + precision, before[2] + 1)
            ids.append(scene_id)
            pooled.append(maps.mean(axis=(1, 2)))
            seen.append(set(masks))
    if not ids:
        raise UserError(f"no picture of '{source.spec}' could be read: {'; '.join(failures.values())[:300]}")
    present = {name: np.array([name in names for names in seen]) for name in sums}
    activations = np.stack(pooled)
    table = channel_table(sums, activations, present)
    return ChannelStudy(chosen.name, frame, table, ids, present, activations, failures)


def channel_maps(
    model: Classifier, source: Source, scene_id: str, maps_of: MapsOf, frame: Frame = "object"
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """One picture's activation maps (C, GRID, GRID), and the object's and its attributes' masks on the same grid."""
    image, regions = at_input(source[scene_id], model.transform.crop, frame)
    coarse = maps_of(model.from_pixels(torch.from_numpy(image)[None]))
    maps = interpolate(coarse, (GRID, GRID), mode="bilinear", align_corners=False)[0].cpu().numpy()
    masks = {}
    for name, mask in regions.items():
        if name in ("background", "everything"):
            continue
        share = cv2.resize(mask.astype(np.float32), (GRID, GRID), interpolation=cv2.INTER_AREA)
        # A small part may fill no cell by half: then the cells that it fills most are used.
        cells = share >= min(0.5, float(share.max()))
        masks[OBJECT if name == "foreground" else name] = cells
    return maps, masks


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

        def example(scene_id: str, attribute: str, channel: int) -> ChannelExample:
            image, masks = at_input(source[scene_id], model.transform.crop, study.frame)
            heat = np.maximum(maps_of(model.from_pixels(torch.from_numpy(image)[None]))[0, channel].cpu().numpy(), 0)
            heat = cv2.resize(heat / max(float(heat.max()), 1e-6), image.shape[1::-1], interpolation=cv2.INTER_LINEAR)
            return ChannelExample(scene_id, image, heat, masks["foreground" if attribute == OBJECT else attribute])

        return [
            [example(scene_id, attribute, channel) for scene_id in study.examples(attribute, channel, most)]
            for attribute, channel in best.select("attribute", "channel").iter_rows()
        ]
