"""A classifier's predictions when noise or gray covers the object, its surroundings, or one of its attributes.

outcome = measure_noise(open_model("lite:0"), open_source("sample"), "results", NoiseSettings())
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unswayed.choices import Frame, check_choice
from unswayed.errors import BadPicture, UserError, unknown
from unswayed.files.whole import parquet_columns
from unswayed.jobs.parts import ItemTable
from unswayed.jobs.resources import kept_heap
from unswayed.scene import Scene

from .mapped_answers import answers, source_mapping
from .noise import LEVELS, REGIONS, Variant, at_input, changed, draw_noise, plan_variants
from .probes import Probe, ProbeResult, run_probe

if TYPE_CHECKING:
    import torch

    from unswayed.models import Classifier
    from unswayed.models.label_mapping import LabelMapping
    from unswayed.sources import Source

KIND = "noise"
SCHEMA = parquet_columns(
    "model source_id label:int64 norm level:float64 region seed:int64 predicted:int64 probability:float64 "
    "true_probability:float64 correct:bool notes"
)
# On a CPU a larger batch exceeds the cache: EfficientNet-Lite0 takes 16 ms per picture in batches of 4, 24 in 8.
BATCH_SIZES = {"cpu": 4, "cuda": 256}


@dataclass(frozen=True)
class NoiseSettings:
    """The changes made to every picture.

    levels: norm -> levels, as published by default for `linf`; seeds: noise draws per level; attributes: also each
    attribute's mask if the source has them; ablation: also gray 0.5 in place of each region; frame: as in `build`.
    """

    levels: dict[str, tuple[float, ...]] = field(default_factory=lambda: {"linf": LEVELS["linf"]})
    seeds: int = 1
    attributes: bool = True
    ablation: bool = True
    frame: Frame = "object"

    def __post_init__(self) -> None:
        for norm, levels in self.levels.items():
            if norm not in LEVELS:
                raise unknown("norm", norm, LEVELS)
            if not all(np.isfinite(level) and level > 0 for level in levels):
                raise UserError(f"the {norm} levels are {levels}", allowed="numbers above 0")
        if self.seeds < 1:
            raise UserError(f"--seeds is {self.seeds}", allowed="1 or more")
        check_choice("framing", self.frame, Frame)


def measure_noise(
    model: Classifier,
    source: Source,
    folder: str | Path,
    settings: NoiseSettings,
    batch_size: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ProbeResult:
    """FOLDER/noise/<model>.parquet: one row per picture and variant, the clean picture first; resumes."""
    with NoiseProbe(model, source, folder, settings, batch_size) as probe:
        return run_probe(probe, progress)


class NoiseProbe(Probe):
    """What `measure_noise` measures."""

    def __init__(
        self, model: Classifier, source: Source, folder: str | Path, settings: NoiseSettings, batch_size: int | None
    ) -> None:
        if not source.has_masks:
            raise UserError(
                f"'{source.spec}' has no masks, so noise cannot be added to the object", run="unswayed masks FOLDER"
            )
        self.model, self.source, self.settings = model, source, settings
        self.mapping = source_mapping(model, source)
        kind = str(model.device).partition(":")[0]
        self.batch_size = batch_size or BATCH_SIZES.get(kind, BATCH_SIZES["cuda"])
        described = {
            "probe": KIND,
            "source": source.spec,
            "classes_mapped": self.mapping.to_json(),
            **model.card(),
            **asdict(settings),
        }
        super().__init__(ItemTable(Path(folder) / KIND / f"{model.slug}.parquet", described, source.ids, SCHEMA))
        self.held.enter_context(kept_heap(kind))

    def load(self, picture: str) -> tuple[int, str | None, np.ndarray, dict[str, np.ndarray]]:
        scene = self.source[picture]
        return (labeled(scene), noted(scene), *at_input(scene, self.model.transform.crop, self.settings.frame))

    def measure(
        self, picture: str, loaded: tuple[int, str | None, np.ndarray, dict[str, np.ndarray]]
    ) -> list[dict[str, Any]]:
        label, notes, image, masks = loaded
        rows = noise_rows(self.model, picture, image, masks, self.mapping, label, self.settings, self.batch_size)
        shared = {"model": self.model.name, "source_id": picture, "label": label, "notes": notes}
        return [{**shared, **row} for row in rows]


def noise_rows(
    model: Classifier,
    scene_id: str,
    picture: np.ndarray,
    masks: dict[str, np.ndarray],
    mapping: LabelMapping,
    label: int,
    settings: NoiseSettings,
    batch_size: int,
) -> list[dict[str, Any]]:
    """The model's predictions for one picture and all its variants, in as few passes as the batch size allows."""
    import torch

    regions = [name for name in masks if name in REGIONS or settings.attributes]
    variants = [
        Variant("clean", None, "none"),
        *plan_variants(regions, settings.levels, settings.seeds, settings.ablation),
    ]
    pixels = torch.from_numpy(picture).to(model.device).permute(2, 0, 1).float().div_(255)
    placed = {name: torch.from_numpy(mask).to(model.device) for name, mask in masks.items()}

    @functools.cache
    def noise(seed: int) -> torch.Tensor:
        return torch.from_numpy(draw_noise(scene_id, pixels.shape[-1], seed)).to(pixels.device)

    rows = []
    for chunk in _chunks(variants, batch_size):
        inputs = torch.cat([changed(pixels, placed, noise, run) for run in _runs(chunk)])
        answered = answers(model.logits(model.transform.normalize(inputs)), mapping, label)
        rows += [{**asdict(variant), **answer} for variant, answer in zip(chunk, answered, strict=True)]
    return rows


def labeled(scene: Scene) -> int:
    """The scene's label; raises BadPicture for a scene without one."""
    if scene.label is None:
        raise BadPicture(f"{scene.id}: it has no label, so no prediction for it can be right or wrong")
    return scene.label


def noted(scene: Scene) -> str | None:
    """What was done to the photograph or its masks, for its rows; None if nothing."""
    return "; ".join(scene.notes) or None


def _chunks(variants: Sequence[Variant], size: int) -> Iterator[Sequence[Variant]]:
    return (variants[start : start + size] for start in range(0, len(variants), size))


def _runs(variants: Sequence[Variant]) -> Iterator[list[Variant]]:
    """Consecutive variants of one norm and seed, which `changed` makes together."""
    return (list(run) for _, run in groupby(variants, key=lambda one: (one.norm, one.seed)))
