"""The check of `evaluate` before a probe: is a model's accuracy on the originals plausible?

FOLDER/suspicions/<model>.json      the suspicion and the remarks about a model; absent if there are none
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from unswayed.benchmark.rows import SOURCE_EDIT
from unswayed.choices import Frame
from unswayed.errors import BadPicture
from unswayed.files.whole import remove_file, write_json
from unswayed.jobs.resources import in_parts
from unswayed.masks.checks import doubted_masks
from unswayed.models.training_photographs import training_overlap
from unswayed.models.transforms import Geometry

from .alignment import opened_pictures
from .contract import REPEATED, check_answers, check_originals, sanity_sample
from .label_orders import suspect_exchange
from .passes import SANITY
from .probes import Careful

if TYPE_CHECKING:
    from unswayed.benchmark import Benchmark
    from unswayed.models import Classifier
    from unswayed.sources import Source

BATCH = 16


def check_plausible(
    model: Classifier,
    pictures: Source | Benchmark,
    folder: str | Path,
    frame: Frame = "object",
    skipped: Container[str] = (),
    careful: Careful | None = None,
) -> None:
    """Record what is suspicious about the model's accuracy on up to 64 originals, as `evaluate` does.

    Refuses a model whose logits are not finite or not reproducible. skipped: photographs that are not read; careful:
    called with each photograph and with the model before they are used.
    """
    import torch

    load, ids, mapping, _ = opened_pictures(pictures, model, frame)
    looked = []
    originals = [one for one in ids if one.split("/")[-2] == "original"]
    for place in sanity_sample(range(len(originals)), SANITY):
        photograph = originals[place].rsplit("/", 2)[0]
        if photograph in skipped:
            continue
        if careful is not None:
            careful("picture", photograph)
        try:
            looked.append(load(originals[place]))
        except BadPicture:
            continue  # the probe reports it
    if careful is not None:
        careful("model", model.name)
    path = _file(folder, model.slug)
    remove_file(path)
    if not looked:
        return

    def crops(geometry: Geometry, places: np.ndarray) -> torch.Tensor:
        some = [looked[place] for place in places]
        if some[0].whole and geometry.crop != model.transform.crop:
            other = replace(model, transform=replace(model.transform, crop=geometry.crop))
            load_other = opened_pictures(pictures, other, frame)[0]
            some = [load_other(f"{one.source_id}/original/0") for one in some]
        return torch.from_numpy(np.stack([one.image if one.whole else geometry.apply(one.image) for one in some]))

    own = crops(model.transform.geometry, np.arange(len(looked)))
    logits = torch.cat(
        [in_parts(lambda some: model.logits(model.from_pixels(some)), part) for part in own.split(BATCH)]
    )
    if model.adapt is None:
        check_answers(model, own[:REPEATED], logits[:REPEATED], min(BATCH, len(own)))
    labels = np.array([one.label for one in looked])
    answers, predicted = (one.argmax(1).cpu().numpy() for one in (logits, mapping.apply(logits)))
    grave, remarks = check_originals(model, mapping, crops, labels, answers, predicted, logits, of_probabilities=True)
    seen = training_overlap(model.name, model.origin, _photographs(pictures))
    doubts = [
        *grave,
        None if grave else suspect_exchange(model.name, mapping.target, labels, predicted),
        doubted_masks(
            {one.source_id: one.about_mask for one in looked},
            {one.source_id: one.mask_origin for one in looked if one.mask_origin is not None},
        ),
        seen.suspicion,
    ]
    suspicion = "; ".join(one for one in doubts if one)
    remarks += [seen.remark] if seen.remark else []
    if suspicion or remarks:
        write_json(path, {"model": model.name, "suspicion": suspicion, "remarks": remarks})


def _photographs(pictures: Source | Benchmark) -> list[str]:
    """The files of the photographs themselves."""
    from unswayed.sources import Source

    if isinstance(pictures, Source):
        return [entry.image for entry in pictures.entries]
    rows = pictures.manifest.select(["edit", "path"]).to_pylist()
    return [str(pictures.root / row["path"]) for row in rows if row["edit"] == SOURCE_EDIT and row["path"]]


def _file(folder: str | Path, slug: str) -> Path:
    return Path(folder) / "suspicions" / f"{slug}.json"
