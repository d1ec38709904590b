"""The readers of tables: Parquet and CSV files."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
from fuzzing import Reader, placed
from mutations import as_parquet, other_columns


def predictions() -> Reader:
    from unfazed.predictions.frames import common_predictions, in_memory
    from unfazed.predictions.storage import SCHEMA

    rows = 4
    columns: dict[str, Any] = {
        "model": ["m"] * rows,
        "sample_id": [f"s/{edit}/0" for edit in ("original", "size-0.1") for _ in range(2)],
        "source_id": ["a", "b"] * 2,
        "file_name": ["a.jpg", "b.jpg"] * 2,
        "edit": ["original", "original", "size-0.1", "size-0.1"],
        "run": [0] * rows,
        "label": [1, None, 1, None],
        "predicted": [1, 2, 3, 4],
        "probability": [0.5] * rows,
        "true_probability": [0.5] * rows,
        "correct": [True, None, False, None],
        "rank": [0] * rows,
        "top5": [[1, 2]] * rows,
        "top5_probabilities": [[0.5, 0.1]] * rows,
        "energy": [1.0] * rows,
        "object_survives": [1.0] * rows,
        "picture": ["p"] * rows,
    }
    columns |= {name: [None] * rows for name in SCHEMA.names if name not in columns}
    table = pa.Table.from_pydict(columns, schema=SCHEMA)
    file = io.BytesIO()
    parquet.write_table(table, file, compression="zstd")

    def read(data: bytes) -> None:
        path = placed("predictions/m.parquet", data)
        in_memory(common_predictions(path.parent), list(columns))

    return Reader([file.getvalue(), as_parquet(columns)], read, other_columns)


def manifest() -> Reader:
    from unfazed.benchmark.folder import Benchmark
    from unfazed.benchmark.rows import Row, read_manifest, record, row_of, schema
    from unfazed.predictions.facts import Facts, _with_manifest
    from unfazed.predictions.frames import polars_table

    rows = [Row("dog", edit, path=f"images/{edit}/dog.png", label=1, notes=["n"]) for edit in ("original", "size-0.1")]
    file = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist([record(row) for row in rows], schema=schema()), file)
    placed("benchmark/benchmark.json", b'{"labels": {"name": "imagenet-1k"}}')

    def read(data: bytes) -> Facts:
        root = placed("benchmark/manifest.parquet", data).parent
        if len(data) % 2:
            return _with_manifest(polars_table(read_manifest(root, (), outside=True)), {}, frozenset(), {})
        for row in (table := Benchmark(root).manifest).to_pylist():
            row_of(row)
        return _with_manifest(polars_table(table), {}, frozenset(), {})

    return Reader([file.getvalue()], read, other_columns)
