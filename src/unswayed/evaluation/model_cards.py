"""What a folder of predictions holds: the columns of its tables, the cards of its models, and the benchmark in them.

Predictions for different pictures must not be compared as if the pictures were the same. So every card holds the
identity of its benchmark, a hash of its settings and pictures, which `evaluate`, `analyze`, `compare` and the report
compare first, to report what differs.

A suspicion in a card says that a number measured with the model means nothing, and no gate passes: labels in another
order, a wrong transform, untrained weights, wrong masks, photographs of the training, answers mostly of other classes.
A remark says what a reader must know beside numbers that are right, and gates pass: outputs that are no logits, a few
answers of other classes, automatic masks, repeated photographs, a few photographs of the training.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pyarrow as pa
import pyarrow.parquet as parquet

from unswayed.errors import UnswayedWarning, UserError, some
from unswayed.files.records import differences, fits, read_object, refuse_newer, require_fields
from unswayed.files.storage import local_copy
from unswayed.files.tables import columns_of, read_checked, stored_text
from unswayed.files.whole import Json, hash_values, read_json
from unswayed.labels import Task, task_of

# What a card says that a gate must know, as columns of a frame of predictions: the suspicion about the model, the
# accuracy of guessing, and the share of photographs with unsure automatic masks.
GUARDS = ("suspicion", "chance", "doubted_masks")
PARTS = ".parts"
FAILED = ".failed.json"
# A field of the card, and of the Parquet file itself, since a stop can leave it beside an earlier card.
FINGERPRINT = "fingerprint"
REPEAT = "repeat"  # the edit of rows in which a model was asked about an original again
WHITE_BOX = "white_box"  # a field of the card, and a column that `read_predictions` adds
SCHEMA = pa.schema(
    [
        ("model", pa.dictionary(pa.int32(), pa.string())),
        ("sample_id", pa.string()),
        ("source_id", pa.string()),
        ("file_name", pa.string()),
        ("edit", pa.dictionary(pa.int32(), pa.string())),
        ("run", pa.int32()),
        ("label", pa.int32()),
        ("predicted", pa.int32()),
        ("probability", pa.float32()),
        ("true_probability", pa.float32()),
        ("correct", pa.bool_()),
        ("rank", pa.int32()),
        ("top5", pa.list_(pa.int32())),
        ("top5_probabilities", pa.list_(pa.float32())),
        ("energy", pa.float32()),
        ("object_survives", pa.float32()),
        ("picture", pa.string()),
        ("subset_correct", pa.bool_()),
        ("task", pa.dictionary(pa.int32(), pa.string())),
        # Of a detector or segmenter: the IoU of the right class with the object; the box and the mask, as compressed
        # run lengths, that decide about `correct`; the model's own name for what they show.
        ("iou", pa.float32()),
        ("box", pa.list_(pa.float32())),
        ("mask", pa.string()),
        ("found_class", pa.string()),
        # All boxes of a detector, four numbers each: left, top, right, bottom in pixels; the most certain first.
        ("boxes", pa.list_(pa.float32())),
        ("box_scores", pa.list_(pa.float32())),
        ("box_classes", pa.list_(pa.int32())),
        # Which of the picture's objects each box is matched with, -1 for none, and the classes of these objects.
        ("box_matches", pa.list_(pa.int32())),
        ("truth_classes", pa.list_(pa.int32())),
        # Of a vision-language model: its words; what became of the question; the place of the chosen option among the
        # choices, from 0; how many tokens the question and the answer took.
        ("answer_text", pa.string()),
        ("outcome", pa.string()),
        ("choice_position", pa.int32()),
        ("tokens", pa.int32()),
    ]
)

_RANGES = {
    **dict.fromkeys(("run", "label", "predicted", "rank", "choice_position", "tokens"), (-1, 2**31 - 1)),
    **dict.fromkeys(("probability", "true_probability", "iou"), (0, 1.001)),
}
STORED = columns_of(SCHEMA, ("model", "source_id", "edit"), _RANGES)

# The fields of a card that concern every picture; edits, runs and photographs are known for each picture.
SETTINGS = ("kind", "frame", "size", "seed", "whole_objects", "removal", "renderer")
KEYS = ("source_id", "edit", "run")
PICTURE = "picture"
DIGITS = 16  # of a picture's hash: 64 bits are enough to distinguish the pictures of one benchmark


@dataclass(frozen=True)
class Picture:
    """One picture to be classified.

    path and mask are files; mask is None if there is none; picture: a short hash that identifies the picture; objects:
    the other objects in it, as the manifest's JSON text.
    """

    sample_id: str
    source_id: str
    file_name: str
    edit: str
    run: int
    label: int | None
    path: str
    mask: str | None = None
    picture: str | None = None
    objects: str | None = None


def rows_of(root: Path, manifest: Iterable[Json]) -> tuple[Picture, ...]:
    """Return the finished pictures in the rows of a benchmark's manifest, in their order."""
    finished = [row for row in manifest if row["status"] == "ok"]
    hashes = hash_values([[row.get("sha256") or row["sample_id"]] for row in finished], DIGITS)
    return tuple(
        Picture(
            row["sample_id"],
            row["source_id"],
            Path(row["path"]).name,
            row["edit"],
            row["run"],
            row.get("label"),
            str(root / row["path"]),
            str(root / row["mask_path"]) if row.get("mask_path") else None,
            digest,
            row.get("objects"),
        )
        for row, digest in zip(finished, hashes, strict=True)
    )


FORMAT = 4  # raised when the meaning of a column changes, so that old predictions are replaced
_MAPPING = Json | None
_CARD = {
    "model": str,
    "task": str | None,
    "spec": str | None,
    "weights_sha256": str | None,
    "fingerprint": str | None,
    "white_box": bool | None,
    **dict.fromkeys(("labels", "benchmark", "originals", "versions", "transform", "mapping", "origin"), _MAPPING),
}


def prediction_files(folder: str | Path) -> list[Path]:
    """Return the folder's Parquet files, one per model, in the order of their names."""
    folder = local_copy(folder)
    if folder.is_file() and folder.suffix == ".parquet":
        return [folder]
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}", run="unswayed evaluate BENCH -m MODEL -o PREDICTIONS")
    files = sorted(folder.glob("[!.]*.parquet"))
    if not files:
        raise UserError(f"{folder} contains no predictions", run=f"unswayed evaluate BENCH -m MODEL -o {folder}")
    return files


def read_cards(predictions: object) -> dict[str, Json]:
    """Return the cards by model, with the file's name without suffix as `file`.

    Of a data frame, what `read_predictions` states in its columns, so that no gate passes a frame that it would not
    pass as a folder. Predictions beside the card of other settings, which an evaluation that was killed can leave, are
    refused.
    """
    if not isinstance(predictions, str | Path):
        return _cards_of_frame(predictions)
    cards = {}
    for path in prediction_files(predictions):
        file = path.with_suffix(".json")
        card = read_json(file) if file.is_file() else None
        if not isinstance(card, dict) or "model" not in card:
            continue
        require_fields(card, _CARD, str(file))
        refuse_newer(card, FORMAT, file)
        require_fields(card.get("benchmark") or {}, {"path": str | None}, f"{file}, benchmark")
        # None if an earlier version wrote the file.
        stored = stored_text(path, f"unswayed.{FINGERPRINT}".encode())
        if stored is not None and stored != card.get(FINGERPRINT):
            raise UserError(
                f"{file} is not the card of {path.name}: the evaluation that wrote one of them was stopped",
                run="the same `unswayed evaluate` command again",
            )
        rows = card.get("rows")
        if rows is not None and rows != (there := parquet.read_metadata(path).num_rows):
            raise UserError(
                f"{path} has {there:,} rows, but its card {file.name} says {rows!r}: rows were removed or added",
                allowed="predictions as `unswayed evaluate` wrote them",
                run="the same `unswayed evaluate` command again, into a new folder",
            )
        cards[str(card["model"])] = {**card, "file": path.stem}
    return cards


def _cards_of_frame(predictions: object) -> dict[str, dict[str, object]]:
    """Return what the columns `GUARDS` of a frame say about its models, as the cards of a folder say it."""
    import polars as pl

    if not isinstance(predictions, pl.DataFrame | pl.LazyFrame) and hasattr(predictions, "__arrow_c_stream__"):
        predictions = pl.DataFrame(predictions)
    if not hasattr(predictions, "lazy") or not {"model", *GUARDS} <= set(predictions.lazy().collect_schema()):
        return {}
    task = pl.col("task") if "task" in predictions.lazy().collect_schema() else pl.lit(None).alias("task")
    columns = pl.col("model", "suspicion").cast(pl.String), pl.col("chance", "doubted_masks").cast(pl.Float64)
    models = predictions.lazy().select(*columns, task.cast(pl.String)).unique("model").drop_nulls("model").collect()
    return {
        model: {
            "model": model,
            "task": task,
            "suspicion": suspicion,
            "originals": {"chance": chance},
            "benchmark": {"masks": {"below_limit": doubted or 0.0, "of": 1}},
        }
        for model, suspicion, chance, doubted, task in models.iter_rows()
    }


def read_failures(folder: str | Path) -> list[tuple[str, str, bool]]:
    """Return each model whose last evaluation failed: its name, the reason, whether earlier predictions exist."""
    failures = []
    for path in sorted(local_copy(folder).glob(f"*{FAILED}")):
        record = read_object(path, {"model": str, "error": str})
        earlier = path.with_name(path.name.removesuffix(FAILED) + ".parquet").is_file()
        failures.append((str(record["model"]), " ".join(str(record["error"]).partition("\n")[0].split()), earlier))
    return failures


class _Masks(TypedDict):
    below_limit: float
    of: float


class _Identity(TypedDict):
    sha256: str
    settings: NotRequired[Json]
    edits: NotRequired[Json]
    photographs: NotRequired[Json]
    pictures: NotRequired[Json]


def identity_of(card: Mapping[str, object], labels: object, rows: Sequence[Picture]) -> Json:
    """Return the benchmark's hash (`sha256`) and what it is computed from, so that differences can be reported.

    settings: those of `benchmark.json` that determine the pictures; edits: a hash of the parameters of each;
    photographs, pictures: how many, with one hash each.
    """
    settings = {name: card[name] for name in SETTINGS if card.get(name) is not None}
    recipe = card.get("recipe")
    listed = recipe.get("edits", []) if isinstance(recipe, dict) else []
    parameters = {item["name"]: item.get("parameters") for item in listed if isinstance(item, dict) and "name" in item}
    there = sorted({row.edit for row in rows})
    sources = sorted({row.source_id for row in rows})
    pictures = sorted((row.source_id, row.edit, row.run, row.label, row.picture) for row in rows)
    hashed = hash_values([[value] for value in (labels, sources, pictures, *map(parameters.get, there))], DIGITS)
    parts = {
        "settings": settings,
        "labels": hashed[0],
        "edits": dict(zip(there, hashed[3:], strict=True)),
        "photographs": {"count": len(sources), "sha256": hashed[1]},
        "pictures": {"count": len(pictures), "sha256": hashed[2]},
    }
    return {"sha256": hash_values([parts])[0], **parts}


def identity_in(card: Mapping[str, object]) -> Json | None:
    """Return the identity in a model's card; None for cards of other programs."""
    benchmark = card.get("benchmark") if isinstance(card, Mapping) else None
    identity = benchmark.get("identity") if isinstance(benchmark, Mapping) else None
    return identity if fits(identity, _Identity) else None


def identity_differences(
    first: Json | None, second: Json | None, words: tuple[str, str], shared: int | None = None
) -> list[str]:
    """Return a line for each difference between two identities.

    words: the names of the two; shared: how many photographs both have, if that is known.
    """
    if (first or {}).get("sha256") == (second or {}).get("sha256"):
        return []
    if first is None or second is None:
        unknown = words[0] if first is None else words[1]
        return [f"benchmark: not stated {unknown}, whose predictions are of another version; evaluate again"]
    lines = differences(first.get("settings", {}), second.get("settings", {}), words=words)
    if first.get("labels") != second.get("labels"):
        lines.append("labels: other classes, or in another order")
    edits = [identity.get("edits", {}) for identity in (first, second)]
    for index in (0, 1):
        alone = sorted(set(edits[index]) - set(edits[1 - index]))
        if alone:
            lines.append(f"edits: {some(alone)} only {words[index]}")
    changed = sorted(name for name in set(edits[0]) & set(edits[1]) if edits[0][name] != edits[1][name])
    if changed:
        lines.append(f"edits: {some(changed)} with other parameters")
    photographs = [identity.get("photographs", {}) for identity in (first, second)]
    if photographs[0] != photographs[1]:
        counts = [photographs[index].get("count") for index in (0, 1)]
        alike = "" if counts[0] != counts[1] else ", not the same ones"
        alike = alike if shared is None else f", {shared} of them in both"
        lines.append(f"photographs: {counts[0]} {words[0]}, {counts[1]} {words[1]}{alike}")
    return lines or ["pictures: the same settings and names, but other files or labels"]


def require_one_benchmark(cards: Mapping[str, Mapping[str, object]], models: Iterable[str] | None = None) -> None:
    """Refuse models of one folder that were evaluated on different benchmarks, with what differs."""
    chosen = [name for name in cards if models is None or name in set(models)]
    for name in chosen[1:]:
        require_same_benchmark(cards[chosen[0]], cards[name], (chosen[0], name))


def require_same_benchmark(
    first: Mapping[str, object] | None,
    second: Mapping[str, object] | None,
    names: tuple[str, str],
    shared: int | None = None,
) -> None:
    """Refuse to compare predictions whose cards name different benchmarks, with what differs.

    names: the names of the two in the message; shared: how many photographs both have, if that is known.
    """
    words = ("for the first", "for the second")
    lines = identity_differences(identity_in(first or {}), identity_in(second or {}), words, shared)
    if lines:
        raise UserError(
            f"{names[0]} and {names[1]} were evaluated on different benchmarks:\n  " + "\n  ".join(lines),
            allowed="predictions on the same benchmark; --common keeps only the pictures that all of them have",
            run="unswayed evaluate BENCH -m MODEL … -o PREDICTIONS, with all models on the same benchmark",
        )


def require_room(folder: Path, identity: Json, rows: Sequence[Picture]) -> None:
    """Refuse a folder with predictions for another benchmark; a benchmark that has only grown counts as the same."""
    looked_at = {identity["sha256"]}
    for path in sorted(folder.glob("*.parquet")):
        card = path.with_suffix(".json")
        stated = identity_in(read_json(card)) if card.is_file() else None
        if stated is None or stated.get("sha256") in looked_at:
            continue
        looked_at.add(stated.get("sha256"))
        lines = stored_differences(path, stated, identity, rows, ("there", "now"))
        if lines:
            raise UserError(
                f"{folder} contains predictions for another benchmark; what differs:\n  " + "\n  ".join(lines),
                allowed="the same benchmark, or another folder",
                run="unswayed evaluate … -o ANOTHER",
            )


def stored_differences(
    path: Path, stated: Json, identity: Json, rows: Sequence[Picture], words: tuple[str, str], whole: bool = False
) -> list[str]:
    """Return what differs between the benchmark of stored predictions, `stated` in their card, and another one.

    identity, rows: of the other one, which is the same if it has the settings, and the pictures and labels of the
    predictions: some of them, or, if `whole`, all of them. So a benchmark that has only grown is the same.
    """

    columns = [*KEYS, PICTURE, "label"]
    table = read_checked(path, STORED, select=columns, required=columns).to_pylist()
    there = {tuple(row[name] for name in KEYS): (row[PICTURE], row["label"]) for row in table if row["edit"] != REPEAT}
    now = {(row.source_id, row.edit, row.run): (row.picture, row.label) for row in rows}
    shared = there.keys() & now.keys()
    same_settings = all(stated.get(name) == identity[name] for name in ("settings", "labels"))
    enough = shared == there.keys() if whole else shared
    if same_settings and enough and all(there[key] == now[key] for key in shared):
        return []
    photographs = {key[0] for key in there} & {key[0] for key in now}
    return identity_differences(stated, identity, words, len(photographs))


Cards = Mapping[str, Mapping[str, object]]


def tasks_in(cards: Cards, models: Iterable[str] | None = None) -> dict[str, Task]:
    """Return the tasks of these models, or of all; a model without a card is a classifier."""
    return {name: task_of(cards.get(name, {}).get("task")) for name in (cards if models is None else models)}


def suspicion_in(card: Mapping[str, object]) -> str | None:
    """Return what `evaluate` found suspicious about a model, as one sentence; None if nothing."""
    suspicion = card.get("suspicion")
    return str(suspicion) if suspicion else None


def chance_in(card: Mapping[str, object]) -> float:
    """Return the accuracy of guessing, in [0, 1]; 0 if the card does not state it."""
    originals: Any = card.get("originals") or {}
    return float(originals.get("chance") or 0)


def doubted_share_in(card: Mapping[str, object]) -> float:
    """Return the share of the photographs whose masks were made automatically and are unsure, in [0, 1]."""
    benchmark = card.get("benchmark")
    masks = benchmark.get("masks") if isinstance(benchmark, Mapping) else None
    if masks is None or not fits(masks, _Masks):
        return 0.0
    return min(max(masks["below_limit"], 0.0) / max(masks["of"], 1), 1.0)


def suspicions(cards: Cards, models: Iterable[str] | None = None) -> list[str]:
    """Return the suspicions about these models, or about all."""
    return [suspicion for card in _chosen(cards, models) if (suspicion := suspicion_in(card))]


def remarks(cards: Cards, models: Iterable[str] | None = None) -> list[str]:
    """Return what else a reader of the numbers of these models, or of all, must know; each remark once."""
    lists = (card.get("remarks") for card in _chosen(cards, models))
    return list(dict.fromkeys(str(remark) for listed in lists if isinstance(listed, list) for remark in listed))


def sentences(cards: Cards, models: Iterable[str] | None = None) -> list[str]:
    """Return the suspicions about these models, or about all, and then the remarks, as sentences for a reader."""
    chosen = list(cards if models is None else models)
    return [
        *(f"Suspicious: {sentence}." for sentence in suspicions(cards, chosen)),
        *(f"Note: {sentence}." for sentence in remarks(cards, chosen)),
    ]


def sentences_in(folder: str | Path, slugs: Iterable[str] | None = None) -> list[str]:
    """Return the suspicions and remarks about the models of a folder of results, or about those called `slugs`."""
    files = sorted((Path(folder) / "suspicions").glob("*.json"))
    kinds = {"suspicion": str, "remarks": list}
    return sentences({path.stem: read_object(path, kinds) for path in files}, slugs)


def warn_of_suspicions(cards: Cards, models: Iterable[str] | None = None) -> None:
    """Warn of the suspicions and remarks about these models, for callers in Python."""
    for text in sentences(cards, models):
        warnings.warn(text, UnswayedWarning, stacklevel=3)


def _chosen(cards: Cards, models: Iterable[str] | None) -> list[Mapping[str, object]]:
    return [cards[name] for name in (cards if models is None else models) if name in cards]
