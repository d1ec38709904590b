"""A linear head for a source's classes on a classifier's frozen features, in the framing of the probes.

fitted = fit_head("rival10:RIVAL10?split=train", "timm:resnet50", "my-head", frame="squash")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from unswayed.choices import Convention, Frame, OneLine, check_choice, takes
from unswayed.errors import BadPicture
from unswayed.files.whole import Json
from unswayed.models import open_model
from unswayed.models.heads import PRESETS, Training, keys_of
from unswayed.models.heads import fit_head as fit
from unswayed.sources import open_source

from .noise import ablate as gray_region
from .noise import at_input, labeled
from .probes import counter, loaded_ahead
from .settings import HeadSettings


@dataclass(frozen=True, repr=False)
class FittedHead(OneLine):
    """A head's folder, its card, and the pictures that could not be used with their reasons."""

    folder: Path
    card: Json
    failures: dict[str, str]


@takes(HeadSettings)
def fit_head(
    source: str,
    model: str,
    output: str | Path,
    settings: HeadSettings,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> FittedHead:
    """Train a linear head for the classes of `source` on a model's frozen features; `head:OUTPUT` opens it.

    The result has the head's `card` and the `failures` by photograph. The fields of settings are also keywords.

    Every photograph goes into the network whole, framed and resized to its input size, as `unswayed sensitivity` does
    it; the card records the framing, and pictures in another one are refused later. A picture that cannot be used is
    left out and listed. `trained-on.bin` records the photographs.
    """
    training = _training(settings)
    check_choice("framing", settings.frame, Frame)
    scenes = open_source(source).select(settings.limit, settings.classes, per_class=settings.per_class)
    if settings.ablate is not None:
        check_choice("region to ablate", settings.ablate, Literal["background"])
        scenes.require_masks(", so its backgrounds cannot be gray")
    base, released = open_model(model, device=settings.device), settings.preset == "released"
    if released:
        base = base.without_normalization()
    show = counter(progress, len(scenes)) if progress is not None else None
    targets: list[int] = []
    used: list[str] = []
    failures: dict[str, str] = {}

    def load(scene_id: str) -> tuple[int, np.ndarray, np.ndarray]:
        scene = scenes[scene_id]
        picture, masks = at_input(scene, base.transform.crop, settings.frame, settings.preset)
        return labeled(scene), picture, masks["background"]

    def pictures() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for scene_id, loaded in loaded_ahead(load, scenes.ids):
            if show:
                show(1)
            if isinstance(loaded, BadPicture):
                failures[scene_id] = str(loaded)
            else:
                targets.append(loaded[0])
                used.append(scenes.entry(scene_id).image)
                yield loaded[1:]

    def prepare(loaded: tuple[np.ndarray, np.ndarray]) -> torch.Tensor:
        pixels = torch.from_numpy(loaded[0]).permute(2, 0, 1).float().div_(255)[None]
        if settings.ablate is not None:
            pixels = gray_region(pixels[0], torch.from_numpy(loaded[1])[None])
        return base.transform.normalize(pixels)[0]

    described = {"source": source, "frame": settings.frame, "ablated": settings.ablate, "normalized": not released}
    head = fit(base, pictures(), targets, scenes.labels, training, prepare, **described)
    replace(head, photographs=keys_of(used)).save(output)
    return FittedHead(Path(output), head.card, failures)


def _training(settings: HeadSettings) -> Training:
    """The training of the preset with the given changes; `released` trains twice as long with a gray background."""
    check_choice("preset", settings.preset, Convention)
    training = replace(PRESETS[settings.preset], seed=settings.seed)
    if settings.preset == "released" and settings.ablate is not None:
        training = replace(training, epochs=2 * training.epochs)
    given = {"epochs": settings.epochs, "learning_rate": settings.learning_rate}
    return replace(training, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
