"""CSV files and lines of JSON: checked when they are read, without formulas when they are written."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from unswayed.errors import UserError
from unswayed.files.tables import Column
from unswayed.files.text_tables import csv_names, csv_text, read_csv, read_json_lines

COLUMNS = {"model": Column("text", nulls=False), "drop": Column("number", lowest=0, highest=1), "n": Column("integer")}


def file(folder: Path, text: str | bytes) -> Path:
    path = folder / "table.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_declared_columns_have_their_type_and_empty_cells_no_value(tmp_path: Path) -> None:
    path = file(tmp_path, '\ufeff model ,drop,n,day\n7,0.5,,2020-01-01\n"a, b\nc",,3,x\n')
    assert csv_names(path) == ["model", "drop", "n", "day"]
    assert read_csv(path, COLUMNS).to_pylist() == [
        {"model": "7", "drop": 0.5, "n": None, "day": "2020-01-01"},
        {"model": "a, b\nc", "drop": None, "n": 3, "day": "x"},
    ]
    assert read_csv(path, {}, select=["n"], others="text").to_pylist() == [{"n": None}, {"n": "3"}]
    assert read_csv(path, COLUMNS, categories=["model"]).column("model").to_pylist() == ["7", "a, b\nc"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("model,drop\na,0.5\nb,high\n", r"table\.csv, column 'drop', row 3: invalid value 'high'"),
        ("model,drop\na,0.5\nb,2\n", r"table\.csv, column 'drop', row 3 is 2\.0"),
        ("model,n\na,1.5\n", r"column 'n', row 2: invalid value '1\.5'"),
        ("model,drop\na,0.5\n,0.5\n", r"column 'model', row 3 has no value"),
        ("model,drop\na,0.5,7\n", r"not a readable CSV file: CSV parse error: Row #2: Expected 2 columns"),
        ("model,model\na,b\n", "two columns named model"),
        ("drop\n1\n", "lacks the column model"),
        ("", "it is empty"),
        (b"model,other\na,\xff\n", "column 'other' contains bytes that are not UTF-8"),
        (b"model\n\xff\n", "column 'model', row 2"),
    ],
)
def test_a_wrong_cell_is_named_with_its_row_and_column(tmp_path: Path, text: str | bytes, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        read_csv(file(tmp_path, text), COLUMNS, required=["model"])


def test_no_cell_and_no_heading_is_a_formula_and_reading_gives_the_same_texts(tmp_path: Path) -> None:
    texts = ["=cmd|' /C calc'!A0", "@x", "+x", "-x", "\tx", "＝1", "'=x", "-1+cmd|' /C calc'!A0", "-.5+A1", "+1e5+A1"]
    texts += ["a=b", "-20", "+0.5", "-1e-05", "-"]
    table = pl.DataFrame({"=HYPERLINK(1)": texts, "number": range(len(texts))})
    written = csv_text(table)
    cells = [line.lstrip('"') for line in written.splitlines()]
    assert [cell[0] for cell in cells[:11]] == ["'"] * 11
    assert [cell.rpartition(",")[0] for cell in cells[11:]] == texts[10:]
    assert read_csv(file(tmp_path, written), {"number": Column("integer")}).column(0).to_pylist() == texts


def test_a_line_break_in_a_text_is_a_space(tmp_path: Path) -> None:
    """What prints the file could obey a line that begins inside a cell."""
    written = csv_text(pl.DataFrame({"a": ["\n=1+1", "-1\n"], "b\r\x1b[0m": ["x\u202ey", "1\t2"]}))
    assert written == "a,b  [0m\n =1+1,x y\n'-1 ,1\t2\n"
    assert read_csv(file(tmp_path, written), {}).column(0).to_pylist() == [" =1+1", "-1 "]


def test_lines_of_json_are_checked_field_by_field(tmp_path: Path) -> None:
    good = '{"model": "a", "drop": 1, "n": 3, "more": []}\n\n{"model": "b", "drop": 0.5}\n'
    assert read_json_lines(file(tmp_path, good), COLUMNS).to_pylist() == [
        {"model": "a", "drop": 1.0, "n": 3},
        {"model": "b", "drop": 0.5, "n": None},
    ]
    for text, reason in {
        '{"model": "a"}\n{"model": 3}\n': r"table\.csv, row 2: the field 'model' is 3",
        '{"model": "a"}\n{"model"\n': r"table\.csv, row 2 is not readable JSON",
        '{"model": "a", "drop": 7}\n': r"column 'drop', row 1 is 7",
        '{"model": "a", "n": 18446744073709551615}\n': "not a readable JSON-lines file",
    }.items():
        with pytest.raises(UserError, match=reason):
            read_json_lines(file(tmp_path, text), COLUMNS)


def test_lists_and_structures_are_json_in_csv():
    frame = pl.DataFrame({"pair": [[1.5, float("inf")], None], "facts": [{"n": 1, "names": ["a"]}, {"n": 2}]})
    lines = csv_text(frame).splitlines()
    assert lines == ["pair,facts", '"[1.5, null]","{""n"": 1, ""names"": [""a""]}"', ',"{""n"": 2, ""names"": null}"']
