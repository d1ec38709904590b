"""The end of a model's evaluation: the Parquet file and its card, or the record of its failure."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unswayed.errors import UserError, reason_of
from unswayed.files.tables import read_checked
from unswayed.files.whole import remove_file, remove_folder, write_json
from unswayed.jobs.parts import Parts, write_table
from unswayed.models.training_photographs import training_overlap
from unswayed.specs import slug_of

from .contract import chance_of
from .evaluator import OpenedModel, all_parts
from .inputs import ORIGINAL, Pictures
from .label_orders import suspect_exchange
from .model_cards import FAILED, FINGERPRINT, SCHEMA
from .settings import EvaluateSettings

ENOUGH = 256  # pictures below which re-estimated batch-norm statistics are worth a warning


def finish(folder: Path, model: OpenedModel, pictures: Pictures, settings: EvaluateSettings) -> list[str]:
    """Write the model's Parquet file and then its card, which marks the predictions as complete."""
    parts = model.parts(folder)
    table = _merged(parts)
    unreadable = parts.note("unreadable")
    if table.num_rows + len(unreadable) != len(pictures):
        parts.remove()
        raise UserError(
            f"the parts of {model.name} contain {table.num_rows} predictions for {len(pictures)} pictures; they "
            "were deleted",
            run="the same command again",
        )
    if not table.num_rows:
        parts.remove()  # the cause may be the folder, not the pictures
        first = next(iter(unreadable))
        raise UserError(f"none of the {len(pictures)} pictures can be read, first {first}: {unreadable[first]}")
    checked = parts.note("check")
    told = [str(remark) for remark in checked.get("remarks", [])]
    seen = training_overlap(model.name, model.card["origin"], pictures.photographs)
    doubts = [checked.get("suspicion") or _exchanged(table, model.name, pictures), pictures.doubt, seen.suspicion]
    suspicion = "; ".join(doubt for doubt in doubts if doubt) or None
    told += [seen.remark] if seen.remark else []
    warnings = [*([suspicion] if suspicion else []), *told]
    few = [number for number in parts.note("adapted").values() if number < ENOUGH]
    if few:
        warnings.append(
            f"{model.name}: the batch-norm statistics of {len(few)} edits come from at most {max(few)} pictures"
        )
    if unreadable:
        first = next(iter(unreadable))
        warnings.append(f"{model.name}: {len(unreadable)} pictures cannot be read, first {first}: {unreadable[first]}")
    of_originals = [
        right
        for right, edit in zip(*(table[name].to_pylist() for name in ("correct", "edit")), strict=True)
        if edit == ORIGINAL and right is not None
    ]
    results = {
        "settings": settings.on_card(),
        "rows": table.num_rows,
        "unreadable": unreadable,
        "originals": {
            "n": len(of_originals),
            "accuracy": float(np.mean(of_originals)) if of_originals else None,
            "chance": chance_of(model.mapping),
        },
        **_over_subset(table, pictures),
        "suspicion": suspicion,
        "remarks": [*told, *pictures.cautions],
        "warnings": warnings,
    }
    write_table(folder / f"{model.slug}.parquet", table, {**model.card, **results}, FINGERPRINT)
    remove_file(folder / f"{model.slug}{FAILED}")
    for left in all_parts(folder, model.slug):
        remove_folder(left)
    return warnings


def _merged(parts: Parts) -> pa.Table:
    """All parts as one table in the order of the pictures; one that was made twice is in it once."""
    try:
        tables = [read_checked(path, {}) for path in parts.files()]
    except UserError:
        parts.remove()  # the next run makes them again
        raise
    table = pa.concat_tables(tables, promote_options="permissive")
    _, rows = np.unique(table["order"].to_numpy(), return_index=True)
    table = table.take(pa.array(rows))
    # Dictionaries are made again, since those of the parts depend on how the batches were divided.
    columns = [
        table[field.name].cast(pa.string()).cast(field.type)
        if pa.types.is_dictionary(field.type)
        else table[field.name].cast(field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays([column.combine_chunks() for column in columns], schema=SCHEMA)


def _exchanged(table: pa.Table, name: str, pictures: Pictures) -> str | None:
    """Return which classes look exchanged on all originals; the check before the evaluation sees some of them."""
    originals = table.filter(pc.equal(table["edit"], ORIGINAL))
    labels, predicted = (originals[column].fill_null(-1).to_numpy() for column in ("label", "predicted"))
    return suspect_exchange(name, pictures.labels, labels, predicted)


def _over_subset(table: pa.Table, pictures: Pictures) -> dict[str, Any]:
    """Return the part of the card about the classes that occur in a folder, if they are some of ImageNet's."""
    classes = pictures.subset
    if classes is None:
        return {}
    right = [correct for correct in table["subset_correct"].to_pylist() if correct is not None]
    accuracy = float(np.mean(right)) if right else None
    return {"subset": {"classes": len(classes), "n": len(right), "accuracy": accuracy}}


def record_failure(folder: Path, name: str, error: BaseException) -> str:
    """Write why a model could not be evaluated; its earlier predictions are kept."""
    reason = reason_of(error)
    write_json(folder / f"{slug_of(name)}{FAILED}", {"model": name, "error": reason})
    return reason


def forget_failures(folder: Path, before: float) -> None:
    """Remove earlier records of models that failed and have no predictions, such as a misspelled name."""
    for path in folder.glob(f"*{FAILED}"):
        with contextlib.suppress(OSError):
            predictions = path.with_name(path.name.removesuffix(FAILED) + ".parquet")
            if path.stat().st_mtime < before and not predictions.is_file():
                remove_file(path)
