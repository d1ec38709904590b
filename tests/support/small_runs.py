"""One small fine-tune, the same for every process that calls it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from betrayed import small_classifier
from unswayed.models.classifier import Classifier
from unswayed.repair.fine_tuning import FineTuning, Progress, TrainedArm
from unswayed.repair.photographs import Photographs, listed
from unswayed.repair.settings import RepairSettings
from unswayed.sources import open_source
from unswayed.transforms import EditMixture

SETTINGS = RepairSettings(
    train="all",
    epochs=3,
    batch_size=8,
    accumulate=2,
    fill="smooth",
    mixture=EditMixture(probability=0.8),
    consistency=0.5,
)


def small_run(
    photos: Path,
    folder: Path,
    report: Callable[[Progress], None] | None = None,
    settings: RepairSettings = SETTINGS,
    model: Classifier | None = None,
) -> TrainedArm:
    torch.set_num_threads(1)
    rows = listed(open_source(f"folder:{photos}"))
    train, validation = Photographs(rows[::2], 64, settings.fill), Photographs(rows[1::4], 64, settings.fill)
    train.read("cpu", 1)
    validation.read("cpu", 1)
    model = model or small_classifier()
    return FineTuning(model, [(0,), (1,), (2,)], train, validation, settings, "repaired", folder).run(report)
