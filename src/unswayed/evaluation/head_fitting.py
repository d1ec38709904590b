"""A linear head for a source's classes on a classifier's frozen features, in the framing of the probes.

outcome = fit_source_head("rival10:RIVAL10?split=train", "timm:resnet50", "my-head", frame="squash")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from unswayed.choices import Frame, check_choice, one_line, takes
from unswayed.errors import UserError

from .noise import ablate as gray_region
from .noise import at_input, labeled
from .probes import counter, loaded_ahead, unusable
from .settings import HeadSettings

if TYPE_CHECKING:
    import torch

    from unswayed.models.heads import Training
    from unswayed.sources import Source

Ablation = Literal["background"]
Preset = Literal["default", "released"]


@one_line
@dataclass(frozen=True)
class FittedHead:
    """A head's folder, its card, and the pictures that could not be used with their reasons."""

    folder: Path
    card: dict[str, Any]
    failures: dict[str, str]


def choose_training(
    preset: Preset = "default",
    ablate: Ablation | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
) -> Training:
    """The training of a preset with the given changes; `released` trains twice as long with a gray background."""
    from unswayed.models.heads import PRESETS

    check_choice("preset", preset, Preset)
    training = replace(PRESETS[preset], seed=seed)
    if preset == "released" and ablate is not None:
        training = replace(training, epochs=2 * training.epochs)
    changes = {"epochs": epochs, "learning_rate": learning_rate}
    return replace(training, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]


def fit_source_head(
    spec: str,
    model: str,
    folder: str | Path,
    training: Training | None = None,
    frame: Frame = "object",
    ablate: Ablation | None = None,
    limit: int | None = None,
    per_class: int | None = None,
    classes: str | None = None,
    device: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> FittedHead:
    """Write FOLDER/head.safetensors and head.json, which `head:FOLDER` opens.

    Every photograph goes into the network whole, framed and resized to its input size, as `unswayed sensitivity` does
    it; the card records the framing, and pictures in another one are refused later. ablate: train on pictures whose
    background is gray. A picture that cannot be used is left out and listed. `trained-on.bin` records the photographs.
    """
    import torch

    from unswayed.models import fit_head, open_model
    from unswayed.models.training_photographs import keys_of
    from unswayed.sources import open_source

    check_choice("framing", frame, Frame)
    source = open_source(spec).select(limit, classes, per_class=per_class)
    _check_ablation(ablate, source)
    base = open_model(model, device=device)
    side = base.transform.crop
    show = counter(progress, len(source)) if progress is not None else None
    targets: list[int] = []
    used: list[str] = []
    failures: dict[str, str] = {}

    def load(scene_id: str) -> tuple[int, np.ndarray, np.ndarray]:
        scene = source[scene_id]
        picture, masks = at_input(scene, side, frame)
        return labeled(scene), picture, masks["background"]

    def pictures() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for scene_id, loaded in loaded_ahead(load, source.ids):
            if show:
                show(1)
            if isinstance(loaded, Exception):
                failures[scene_id] = unusable(loaded)
            else:
                targets.append(loaded[0])
                used.append(source.entry(scene_id).image)
                yield loaded[1:]

    def prepare(loaded: tuple[np.ndarray, np.ndarray]) -> torch.Tensor:
        pixels = torch.from_numpy(loaded[0]).permute(2, 0, 1).float().div_(255)[None]
        if ablate is not None:
            pixels = gray_region(pixels[0], torch.from_numpy(loaded[1])[None])
        return base.transform.normalize(pixels)[0]

    described = {"source": spec, "frame": frame, "ablated": ablate}
    head = fit_head(base, pictures(), targets, source.labels, training or choose_training(), prepare, **described)
    replace(head, photographs=keys_of(used)).save(folder)
    return FittedHead(Path(folder), head.card, failures)


def _check_ablation(ablate: str | None, source: Source) -> None:
    if ablate is None:
        return
    check_choice("region to ablate", ablate, Ablation)
    if not source.has_masks:
        raise UserError(f"'{source.spec}' has no masks, so its backgrounds cannot be gray", run="unswayed masks FOLDER")


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
    """
    training = choose_training(settings.preset, settings.ablate, settings.epochs, settings.learning_rate, settings.seed)
    return fit_source_head(
        source, model, output, training, settings.frame, settings.ablate, settings.limit, settings.per_class,
        settings.classes, settings.device, progress=progress,
    )  # fmt: skip
