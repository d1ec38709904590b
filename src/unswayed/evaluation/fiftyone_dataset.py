"""A benchmark as a FiftyOne dataset: one group per photograph, one slice per edit, masks, predictions and flips."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from unswayed.benchmark.exporting import ExportResult, Show
from unswayed.benchmark.folder import Benchmark
from unswayed.benchmark.rows import OK, ORIGINAL_EDIT
from unswayed.errors import UserError
from unswayed.sources.coco import read_objects, run_length_mask

from .facts import ORIGINAL, SOURCE
from .model_cards import KEYS
from .predictions import columns_of, each_model

FLIPS = "flips"
# The predicted class, its probability, whether the picture is a flip, the model, and the box and mask of what it found.
Prediction = tuple[str, float | None, bool, str, Sequence[float] | None, str | None]


def write_fiftyone(
    benchmark: Benchmark, name: str, show: Show, predictions: str | Path | None = None, overwrite: bool = False
) -> ExportResult:
    """Create the persistent dataset `name` in FiftyOne's database; its samples refer to the benchmark's files.

    predictions: the folder of `unswayed evaluate`; each model becomes a field, and pictures that a model classifies
    rightly before the edit and wrongly after it form the saved view `flips`.
    """
    import fiftyone

    rows = [row for row in benchmark.manifest.to_pylist() if row["status"] == OK]
    # Read before the database starts, so that a wrong folder is refused at once.
    answers = {} if predictions is None else _answers(Path(predictions), benchmark)
    if fiftyone.dataset_exists(name) and not overwrite:
        raise UserError(f"FiftyOne already has a dataset '{name}'", run="the same command with --overwrite")
    dataset = fiftyone.Dataset(name, overwrite=overwrite, persistent=True)
    dataset.add_group_field("group", default=ORIGINAL_EDIT)
    dataset.default_mask_targets = {255: "object"}
    # As text, since the database takes no dots in the names of fields.
    dataset.info = {"benchmark": str(benchmark.root.resolve()), "card": json.dumps(benchmark.card)}
    groups = {row["source_id"]: fiftyone.Group() for row in rows}
    samples, side = [], int(benchmark.card["size"])
    for row in rows:
        group = groups[row["source_id"]]
        # The database takes no dots in the names of slices (`size-0_05`, `position-run1`).
        slice_name = row["edit"] if row["run"] == 0 else f"{row['edit']}-run{row['run']}"
        sample = fiftyone.Sample(
            filepath=str((benchmark.root / row["path"]).resolve()),
            group=group.element(slice_name.replace(".", "_")),
            **{field: row[field] for field in ("sample_id", "source_id", "edit", "run", "sha256", "validity")},
        )
        if row["label"] is not None:
            sample["ground_truth"] = fiftyone.Classification(label=benchmark.labels.classes[row["label"]])
        if row["mask_path"]:
            mask = str((benchmark.root / row["mask_path"]).resolve())
            sample["object"] = fiftyone.Segmentation(mask_path=mask)
        if row.get("objects"):
            names = benchmark.labels.classes
            others = [
                _detection("unknown" if other.label is None else names[other.label], other.box, other.mask, side)
                for other in read_objects(row["objects"], row["sample_id"])
            ]
            sample["other_objects"] = fiftyone.Detections(detections=others)
        if answers:
            sample[FLIPS] = []
        for field, (label, confidence, flipped, model, box, region) in answers.get(row["sample_id"], {}).items():
            if box is None:
                sample[field] = fiftyone.Classification(label=label, confidence=confidence)
            else:
                detection = _detection(label, box, region, side, confidence)
                sample[f"{field}_box"] = fiftyone.Detections(detections=[detection])
            if flipped:
                sample[FLIPS] = [*sample[FLIPS], model]
        samples.append(sample)
        show(len(samples), len(rows))
    dataset.add_samples(samples, progress=False)
    if answers:
        flipped = fiftyone.ViewField(FLIPS).length() > 0
        dataset.save_view(FLIPS, dataset.select_group_slices().match(flipped))
    return ExportResult(name, len(rows), sum(row["label"] is None for row in rows))


def _detection(
    label: str, box: Sequence[float], mask: str | None, side: int, confidence: float | None = None
) -> object:
    """An object as FiftyOne has it: its box as shares of the picture and, inside the box, its mask if it has one."""
    import fiftyone

    left, top, right, bottom = box
    inside = None
    if mask is not None:
        inside = run_length_mask(mask, side, side)[int(top) : int(bottom), int(left) : int(right)] > 0
    bounds = [left / side, top / side, (right - left) / side, (bottom - top) / side]
    return fiftyone.Detection(label=label, bounding_box=bounds, mask=inside, confidence=confidence)


def _answers(folder: Path, benchmark: Benchmark) -> dict[str, dict[str, Prediction]]:
    """By sample id and field: what a model said about the picture."""
    classes = benchmark.labels.classes
    fields: dict[str, dict[str, Prediction]] = {}
    columns = ["model", *KEYS, "sample_id", "predicted", "probability", "correct"]
    columns += columns_of(folder, ["box", "mask"])
    for model, rows in each_model(folder, columns):
        before = rows.filter(pl.col("edit") == ORIGINAL, pl.col("run") == 0)
        right = set(before.filter("correct")["source_id"])
        photograph = pl.col("edit").is_in([ORIGINAL, SOURCE])
        flipped = ~photograph & pl.col("source_id").is_in(list(right)) & ~pl.col("correct")
        field = "predicted_" + "".join(letter if letter.isalnum() else "_" for letter in model)
        for row in rows.with_columns(flipped=flipped.fill_null(False)).iter_rows(named=True):
            index = row["predicted"]
            label = classes[index] if 0 <= index < len(classes) else "nothing" if index == -1 else str(index)
            answer = label, row["probability"], row["flipped"], model, row.get("box"), row.get("mask")
            fields.setdefault(row["sample_id"], {})[field] = answer
    known = set(benchmark.manifest.column("sample_id").to_pylist())
    if not known & set(fields):
        raise UserError(f"the predictions in {folder} are not about the pictures of {benchmark.root}")
    return fields
