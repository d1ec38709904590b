"""Alignment of a classifier's heat maps with the object, over a source or a benchmark: one row per picture.

outcome = measure_alignment(open_model("lite:0"), open_source("sample"), "results", "layercam")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from unswayed.choices import Frame
from unswayed.errors import BadPicture, UserError
from unswayed.files.whole import parse_json
from unswayed.jobs.parts import ItemTable
from unswayed.masks.checks import mask_warnings
from unswayed.masks.confidence import mask_origins
from unswayed.models.label_mapping import map_labels
from unswayed.scene import MaskOrigin

from .mapped_answers import answers, source_mapping, strongest_output
from .measures import MEASURES, alignment
from .noise import at_input
from .noise_response import labeled, noted
from .probes import Probe, ProbeResult, run_probe
from .saliency import explainer, on_picture

if TYPE_CHECKING:
    from unswayed.benchmark import Benchmark
    from unswayed.models import Classifier
    from unswayed.models.label_mapping import LabelMapping
    from unswayed.sources import Source

KIND = "saliency"
SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("model", "method", "sample_id", "source_id", "edit")]
    + [("label", pa.int64()), ("predicted", pa.int64()), ("correct", pa.bool_())]
    + [(name, pa.float64()) for name in ("probability", "true_probability", *MEASURES)]
    + [("notes", pa.string())]
)


@dataclass(frozen=True, eq=False)
class MaskedPicture:
    """One picture, its object and its label, at the size of the comparison of heat map and mask.

    image: (H, W, 3) uint8; mask: (H, W); whole: the picture has the model's input size and must not be cropped;
    notes: what was done to the photograph or its mask, None if nothing; about_mask: the notes about it, with
    warnings about its mask as it was given; mask_origin: what made the mask, None if it was not made automatically.
    """

    source_id: str
    edit: str
    label: int
    image: np.ndarray
    mask: np.ndarray
    whole: bool
    notes: str | None = None
    about_mask: tuple[str, ...] = ()
    mask_origin: MaskOrigin | None = None


def measure_alignment(
    model: Classifier,
    pictures: Source | Benchmark,
    folder: str | Path,
    method: str = "layercam",
    progress: Callable[[int], None] | None = None,
    frame: Frame = "object",
) -> ProbeResult:
    """FOLDER/saliency/<model>.parquet: alignment of the predicted class's heat map with the object; resumes.

    A source's pictures go into the model whole in the given framing, as for noise; a benchmark's pictures, edits
    included, by the model's own transform, as they were evaluated.
    """
    with SaliencyProbe(model, pictures, folder, method, frame) as probe:
        return run_probe(probe, progress)


class SaliencyProbe(Probe):
    """What `measure_alignment` measures."""

    def __init__(
        self,
        model: Classifier,
        pictures: Source | Benchmark,
        folder: str | Path,
        method: str = "layercam",
        frame: Frame = "object",
    ) -> None:
        self.model, self.method = model, method
        self.load_picture, ids, self.mapping, described = opened_pictures(pictures, model, frame)
        settings = {"probe": KIND, **described, "method": method, **model.card()}
        settings["heat_layer"] = model.heat_layer.to_json()
        path = Path(folder) / KIND / f"{model.slug}.parquet"
        super().__init__(ItemTable(path, settings, list(ids), SCHEMA, "sample_id"))
        self.explain = self.held.enter_context(explainer(model, method))

    def load(self, picture: str) -> MaskedPicture:
        return self.load_picture(picture)

    def measure(self, picture: str, loaded: MaskedPicture) -> list[dict[str, Any]]:
        answer, heat = answer_and_heat(self.model, loaded, self.mapping, self.explain)
        try:
            measures = alignment(heat, loaded.mask)
        except BadPicture as problem:
            raise BadPicture(f"{picture}: {problem}") from None
        named: dict[str, Any] = {"sample_id": picture, "source_id": loaded.source_id, "edit": loaded.edit}
        named |= {"label": loaded.label, "notes": loaded.notes}
        return [{"model": self.model.name, "method": self.method, **named, **answer, **measures}]


def answer_and_heat(
    model: Classifier, picture: MaskedPicture, mapping: LabelMapping, explain: Callable[..., np.ndarray]
) -> tuple[dict[str, Any], np.ndarray]:
    """The model's prediction for the picture, and the predicted class's heat map, (H, W) in [0, 1]."""
    import torch

    if picture.whole:
        inputs = model.from_pixels(torch.from_numpy(picture.image)[None])
    else:
        inputs = model.prepare(picture.image)[None]
    logits = model.logits(inputs)
    answer = answers(logits, mapping, picture.label)[0]
    heat = explain(inputs, [strongest_output(logits, mapping, answer["predicted"])])[0]
    if not picture.whole:
        heat = on_picture(heat, model.transform.geometry, *picture.mask.shape)
    return answer, heat


def scene_pictures(
    source: Source, model: Classifier, frame: Frame = "object"
) -> tuple[Callable[[str], MaskedPicture], LabelMapping]:
    """A loader by scene id, with whole pictures at the model's input size, and the mapping to their classes."""
    if not source.has_masks:
        raise UserError(f"'{source.spec}' has no masks to compare heat maps with", run="unswayed masks FOLDER")

    def load(scene_id: str) -> MaskedPicture:
        scene = source[scene_id]
        image, masks = at_input(scene, model.transform.crop, frame)
        about = (*scene.notes, *mask_warnings(scene.mask, scene.image))
        mask, origin = masks["foreground"], scene.mask_origin
        return MaskedPicture(scene.id, "original", labeled(scene), image, mask, True, noted(scene), about, origin)

    return load, source_mapping(model, source)


def opened_pictures(
    pictures: Source | Benchmark, model: Classifier, frame: Frame = "object"
) -> tuple[Callable[[str], MaskedPicture], dict[str, None], LabelMapping, dict[str, str]]:
    """A loader by sample id, the sample ids in order, the label mapping, and the settings that name the pictures."""
    from unswayed.sources import Source

    if isinstance(pictures, Source):
        load_scene, mapping = scene_pictures(pictures, model, frame)
        ids = {f"{one}/original/0": None for one in pictures.ids}
        named = {"source": pictures.spec, "frame": frame}
        return lambda sample_id: load_scene(sample_id.rsplit("/", 2)[0]), ids, mapping, named

    from unswayed.sources.pictures import read_mask, read_picture

    benchmark: Benchmark = pictures
    columns = ("sample_id", "source_id", "edit", "label", "path", "mask_path", "status", "notes")
    manifest = benchmark.manifest
    origins = mask_origins(
        manifest.select(["source_id", "values"]).to_pylist() if "values" in manifest.column_names else ()
    )
    rows = {
        row["sample_id"]: row
        for row in manifest.select([name for name in columns if name in manifest.column_names]).to_pylist()
        if row["status"] == "ok" and row["mask_path"] and row["label"] is not None
    }

    def load_row(sample_id: str) -> MaskedPicture:
        row = rows[sample_id]
        image, mask = read_picture(benchmark.root / row["path"]), read_mask(benchmark.root / row["mask_path"])
        # Edits may move the object away from the edges of the photograph, so only the original shows a wrong mask.
        found = mask_warnings(mask, image if row["edit"] == "original" else None)
        about = (*parse_json(row.get("notes") or "[]", f"the notes of {sample_id}"), *found)
        origin = origins.get(row["source_id"])
        return MaskedPicture(row["source_id"], row["edit"], row["label"], image, mask, False, None, about, origin)

    mapping = map_labels(model.labels, benchmark.labels, {row["label"] for row in rows.values()})
    return load_row, dict.fromkeys(rows), mapping, {"source": str(benchmark.root)}
