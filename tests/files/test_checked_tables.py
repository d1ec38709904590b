"""Parquet files are read as the types that they declare, and never into more memory than their size allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from unswayed.errors import UserError
from unswayed.files.tables import MOST_BYTES, array_of, read_checked

LONG = 1000


def repeated(value: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), [value])


def written(path: Path, column: pa.Array, **options: Any) -> Path:
    parquet.write_table(pa.table({"model": column}), path, **options)
    return path


@pytest.mark.parametrize("declared", [False, True], ids=["as text", "as a dictionary"])
def test_one_long_text_in_very_many_rows_is_refused_before_it_is_written_out(tmp_path: Path, declared: bool) -> None:
    rows = MOST_BYTES // LONG + 1
    path = written(tmp_path / "a.parquet", repeated("x" * LONG, rows), store_schema=declared)
    assert path.stat().st_size < 200_000
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(UserError, match=r"a\.parquet holds a table of 26\d,"):
        read_checked(path, {})
    assert pa.default_memory_pool().max_memory() <= max(before, MOST_BYTES // 4)


def test_long_texts_inside_lists_count_as_well(tmp_path: Path) -> None:
    rows = MOST_BYTES // LONG + 1
    lists = pa.ListArray.from_arrays(pa.array([0, rows], pa.int32()), repeated("x" * LONG, rows))
    with pytest.raises(UserError, match="holds a table of"):
        read_checked(written(tmp_path / "a.parquet", lists, store_schema=False), {})


def test_more_numbers_than_the_size_of_the_file_allows_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with parquet.ParquetWriter(path, pa.schema([("label", pa.int64())])) as writer:
        part = pa.table({"label": pa.array([7] * 1_000_000)})
        for _ in range(MOST_BYTES // 8 // len(part) + 1):
            writer.write_table(part)
    with pytest.raises(UserError, match="holds a table of 30\\d,"):
        read_checked(path, {})


def test_every_type_is_read_as_the_file_declares_it(tmp_path: Path) -> None:
    texts = pa.array(["a", None, "b"])
    table = pa.table(
        {
            "text": texts,
            "large": texts.cast(pa.large_string()),
            "view": texts.cast(pa.string_view()),
            "bytes": texts.cast(pa.binary()),
            "views of bytes": texts.cast(pa.binary()).cast(pa.binary_view()),
            "dictionary": texts.dictionary_encode(),
            "lists": pa.array([["a", "b"], None, []]),
            "records": pa.array([{"x": "a"}, None, {"x": "b"}]),
            "pairs": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int32())),
            "numbers": pa.array([[0.5], None, []]),
            "truth": pa.array([True, None, False]),
        }
    )
    for rows in (3, 0):
        parquet.write_table(table.slice(0, rows), tmp_path / "a.parquet")
        assert read_checked(tmp_path / "a.parquet", {}).equals(table.slice(0, rows))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY"])
def test_texts_that_are_not_encoded_as_a_dictionary_are_read(tmp_path: Path, encoding: str, version: str) -> None:
    table = pa.table({"n": pa.array([1.5, None, 2.5]), "model": pa.array(["a", None, "ab"])})
    options = {"n": "BYTE_STREAM_SPLIT", "model": encoding}
    path = tmp_path / "a.parquet"
    parquet.write_table(table, path, use_dictionary=False, column_encoding=options, data_page_version=version)
    assert read_checked(path, {}).equals(table)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_texts_whose_length_is_not_known_before_they_are_read_are_refused(tmp_path: Path, version: str) -> None:
    options = {"use_dictionary": False, "column_encoding": {"model": "DELTA_BYTE_ARRAY"}, "data_page_version": version}
    path = written(tmp_path / "a.parquet", pa.array(["x" * 100] * 9), **options)
    with pytest.raises(UserError, match="DELTA_BYTE_ARRAY .* write it again with pyarrow or polars"):
        read_checked(path, {})


def test_very_many_numbers_in_the_list_of_one_row_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unswayed.files.tables.MOST_BYTES", 2**22)
    path = written(tmp_path / "a.parquet", pa.array([[0.5] * 600_000]))
    assert path.stat().st_size < 2**14
    with pytest.raises(UserError, match="holds a table of 4,8"):
        read_checked(path, {})


def test_a_million_honest_rows_are_read(tmp_path: Path) -> None:
    rows = 1_000_000
    read = read_checked(written(tmp_path / "a.parquet", repeated("m" * 40, rows), store_schema=False), {})
    assert (len(read), read.schema.field("model").type) == (rows, pa.string())


@pytest.mark.parametrize(
    ("values", "kind", "missing"),
    [
        (["a", None, "ü", ""], pa.string(), None),
        ([3, None, -1, 0], pa.int64(), None),
        ([None, None], pa.float32(), None),
        ([True, False, None], pa.bool_(), None),
        (np.array([0.5, np.nan, 2.0]), pa.float32(), np.array([False, True, False])),
        (np.arange(20) % 3 == 0, pa.bool_(), np.arange(20) == 7),
        (np.arange(10).reshape(2, 5), pa.list_(pa.int32()), None),
        (np.zeros((0, 5)), pa.list_(pa.float32()), None),
        ([[1.0, 2.0], None], pa.list_(pa.float32()), None),
    ],
)
def test_an_array_is_the_one_that_pyarrow_makes(values, kind, missing):
    given = values.tolist() if isinstance(values, np.ndarray) and values.ndim == 2 else values
    made = array_of(values if missing is None else np.ma.array(values, mask=missing), kind)
    made.validate(full=True)
    assert made.equals(pa.array(given, kind, mask=missing))
    assert made.null_count == pa.array(given, kind, mask=missing).null_count
