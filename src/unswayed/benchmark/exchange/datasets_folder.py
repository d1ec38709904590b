"""A benchmark as a folder that `datasets.load_dataset` opens, and such a folder as a benchmark.

FOLDER/README.md                        the dataset card
FOLDER/data/test-00000-of-00002.parquet the pictures and masks as their files' bytes, with every column of the manifest
FOLDER/benchmark/benchmark.json, …      what else the benchmark's folder holds, unchanged
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unswayed.benchmark.folder import Benchmark
from unswayed.benchmark.importing import Imported
from unswayed.benchmark.layout import CARD, SOURCE_EDIT, row_path
from unswayed.benchmark.rows import OK, counts, record, row_of, schema, write_rows
from unswayed.benchmark.verifying import is_inside
from unswayed.errors import UserError
from unswayed.files.records import require_fields
from unswayed.files.tables import check_size, readable
from unswayed.files.whole import MOST_PICTURE, check_regular, make_folder, read_file, whole, write_bytes

from .dataset_card import CREDITS, credits_file, dataset_card
from .exported import Exported, Show

if TYPE_CHECKING:
    import pyarrow

DATA, REST = "data", "benchmark"
_SHARD = 400 << 20  # bytes of pictures in one Parquet file
_GROUP = 64  # pictures in one row group, which readers load as a whole
_FILES = {"image": ("path", "sha256"), "mask": ("mask_path", "mask_sha256")}


def write_datasets(benchmark: Benchmark, folder: Path, show: Show) -> Exported:
    """Write the benchmark in `benchmark` to `folder`; the pictures keep the bytes of their files."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    rows = [row for row in benchmark.manifest.to_pylist() if row["status"] == OK]
    if not rows:
        raise UserError(f"{benchmark.root} contains no finished pictures")
    columns = _schema(benchmark)
    shards = list(_shards(benchmark.root, rows))
    done = 0
    for number, shard in enumerate(shards):
        path = folder / DATA / f"test-{number:05}-of-{len(shards):05}.parquet"
        with whole(path) as file, parquet.ParquetWriter(file, columns, compression="none") as writer:
            for start in range(0, len(shard), _GROUP):
                records = [_record(benchmark.root, row) for row in shard[start : start + _GROUP]]
                writer.write_table(pa.Table.from_pylist(records, schema=columns))
                done += len(records)
                show(done, len(rows))
    for path in benchmark.root.iterdir():
        if path.is_file() and not path.name.startswith("."):
            _copy(path, folder / REST / path.name)
    credits = credits_file(benchmark)
    if credits is not None:
        write_bytes(folder / CREDITS, credits)
    write_bytes(folder / "README.md", dataset_card(benchmark, credits is not None).encode())
    return Exported(str(folder), len(rows), sum(row["label"] is None for row in rows))


def is_datasets_folder(path: Path) -> bool:
    """Whether `path` is what `write_datasets` wrote."""
    return (path / REST / CARD).is_file() and (path / DATA).is_dir()


def read_datasets(path: Path, root: Path, show: Show) -> Imported:
    """Write the benchmark in the folder `path` to `root`: the same rows, files, hashes, reviews and credits.

    A picture that is missing or whose bytes do not match the manifest's hash is listed among the failures.
    """
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UserError(f"{root} already exists and is not empty", allowed="a new or empty folder")
    benchmark = Benchmark(path / REST)
    rows = {row["sample_id"]: row for row in benchmark.manifest.to_pylist()}
    for row in rows.values():
        for path_in_it in (row_path(row["source_id"]), row["path"], row["mask_path"]):
            if path_in_it and not is_inside(path_in_it):
                raise UserError(f"the manifest in {path} names a file outside the benchmark: {path_in_it}")
    waiting = {name for name, row in rows.items() if row["status"] == OK}
    total, failures = len(waiting), dict[str, str]()
    for found in _stored(path / DATA):
        row = rows.get(found["sample_id"])
        if row is None or row["sample_id"] not in waiting:
            continue
        waiting.discard(row["sample_id"])
        problem = _place(root, row, found)
        if problem is not None:
            failures[row["sample_id"]] = problem
        show(total - len(waiting), total)
    failures |= dict.fromkeys(sorted(waiting), f"the dataset in {path} has no picture of it")
    by_source: dict[str, list[Any]] = {}
    for row in rows.values():
        by_source.setdefault(row["source_id"], []).append(row_of(row))
    if benchmark.card.get("kind") == "build":
        for source_id, its in by_source.items():
            write_rows(root, source_id, its)
    for one in (path / REST).iterdir():
        # The card comes last: a folder without one is not a benchmark.
        if one.is_file() and one.name != CARD:
            _copy(one, root / one.name)
    if (path / CREDITS).is_file():
        _copy(path / CREDITS, root / CREDITS)
    _copy(path / REST / CARD, root / CARD)
    edits = tuple(edit for edit in benchmark.edits if edit != SOURCE_EDIT)
    everything = [one for its in by_source.values() for one in its]
    return Imported(make_folder(root), counts(everything), len(by_source), edits, failures)


def _copy(path: Path, to: Path) -> None:
    check_regular(path)
    with whole(to) as file, open(path, "rb") as given:
        shutil.copyfileobj(given, file)


def _schema(benchmark: Benchmark) -> pyarrow.Schema:
    """The columns with `datasets`' own description of them: pictures, a class label, and the manifest's columns."""
    import pyarrow as pa

    file = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    plain = [field for field in schema() if field.name != "label"]
    features: dict[str, Any] = {
        "image": {"_type": "Image"},
        "mask": {"_type": "Image"},
        "label": {"names": _distinct(benchmark.labels.classes), "_type": "ClassLabel"},
    }
    features |= {field.name: {"dtype": _kind(field.type), "_type": "Value"} for field in plain}
    described = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.schema([("image", file), ("mask", file), ("label", pa.int64()), *plain], metadata=described)


def _kind(type: Any) -> str:
    return {"double": "float64"}.get(str(type), str(type))


def _distinct(classes: tuple[str, ...]) -> list[str]:
    """Class names that occur once each, as `datasets` demands: ImageNet's two cranes get their index."""
    return [name if classes.count(name) == 1 else f"{name} ({index})" for index, name in enumerate(classes)]


def _shards(root: Path, rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The rows in pieces of about `_SHARD` bytes of pictures."""
    shard: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        shard.append(row)
        check_regular(root / row["path"], MOST_PICTURE)
        size += (root / row["path"]).stat().st_size
        if size >= _SHARD:
            yield shard
            shard, size = [], 0
    if shard:
        yield shard


def _record(root: Path, row: dict[str, Any]) -> dict[str, Any]:
    files: dict[str, Any] = {}
    for name, (path, digest) in _FILES.items():
        data = read_file(root / row[path], MOST_PICTURE) if row[path] else None
        if data is not None and row[digest] and hashlib.sha256(data).hexdigest() != row[digest]:
            raise UserError(f"{root / row[path]} has changed since it was built", run=f"unswayed verify {root}")
        files[name] = None if data is None else {"bytes": data, "path": row[path]}
    return {**record(row_of(row)), **files}


def _stored(folder: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as parquet

    for path in sorted(folder.glob("*.parquet")):
        numbers = itertools.count(1)
        with readable(path, "Parquet"):
            check_size(path)
            # As dictionaries, and one row at a time: one large picture may stand in all rows.
            file = parquet.ParquetFile(path, read_dictionary=["sample_id", *(f"{name}.bytes" for name in _FILES)])
            for batch in file.iter_batches(_GROUP, columns=["sample_id", *_FILES]):
                for place, number in zip(range(len(batch)), numbers, strict=False):
                    [row] = batch.slice(place, 1).to_pylist()
                    require_fields(row, {"sample_id": str}, f"{path}, row {number}")
                    for name in _FILES:
                        where = f"{path}, row {number}, {name}"
                        require_fields({} if row.get(name) is None else row[name], {"bytes": bytes | None}, where)
                    yield row


def _place(root: Path, row: dict[str, Any], found: dict[str, Any]) -> str | None:
    """Write the files of one row; what is wrong with them, or None."""
    for name, (path, digest) in _FILES.items():
        if not row[path]:
            continue
        data = (found.get(name) or {}).get("bytes")
        if data is None:
            return f"its {name} is missing"
        if row[digest] and hashlib.sha256(data).hexdigest() != row[digest]:
            return f"its {name} does not match the manifest's hash"
        write_bytes(root / row[path], data)
    return None
