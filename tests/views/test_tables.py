"""Tables as text: what programs read is exact, what people read is rounded and harmless."""

import csv
import io
import json
import math
from pathlib import Path

import polars as pl
import pytest

from unswayed.errors import UserError
from unswayed.views.tables import format_of, format_table

FRAME = pl.DataFrame(
    {
        "model": ["lite:0", "[red]a|b_c[/red]"],
        "n": [4352, 20],
        "drop": [21.26491, -0.0001],
        "p_value": [3.2e-9, math.nan],
        "white_box": [True, None],
        "tags": [["a", "b"], []],
    }
)


def test_json_is_a_list_of_exact_records_without_nan():
    records = json.loads(format_table(FRAME, "json", title="not in the page"))
    assert records[0] == {
        "model": "lite:0",
        "n": 4352,
        "drop": 21.26491,
        "p_value": 3.2e-9,
        "white_box": True,
        "tags": ["a", "b"],
    }
    assert records[1]["p_value"] is None
    assert records[1]["white_box"] is None


def test_csv_keeps_names_and_precision():
    rows = list(csv.DictReader(io.StringIO(format_table(FRAME, "csv", headings={"drop": "Drop"}))))
    assert rows[0]["drop"] == "21.26491"
    assert json.loads(rows[0]["tags"]) == ["a", "b"]
    assert rows[1]["model"] == "[red]a|b_c[/red]"


def test_table_shows_markup_as_text_and_rounds():
    text = format_table(
        FRAME, "table", digits={"drop": 1, "p_value": 4}, headings={"drop": "drop (points)"}, title="T [x]"
    )
    assert "[red]a|b_c[/red]" in text
    assert "T [x]" in text
    assert "drop (points)" in text
    assert "21.3" in text
    assert "< 0.001" in text, "a p-value below 0.001 is printed so"
    assert "−0.0" not in text, "a rounded zero has no sign"
    assert "–" in text


def test_terminal_control_characters_are_not_passed_on():
    assert "\x1b" not in format_table(pl.DataFrame({"class": ["\x1b[31mred\x1b[0m"]}), "table")


def test_markdown_escapes_pipes_and_markup():
    text = format_table(pl.DataFrame({"name": ["a|b", "<script>"], "x": [1.0, -2.0]}), "markdown", title="T", notes="N")
    lines = text.splitlines()
    assert lines[0] == "**T**"
    assert lines[2:4] == ["| name | x |", "| :--- | ---: |"]
    assert lines[4] == "| a\\|b | 1.00 |"
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert lines[-1] == "N"


def test_latex_escapes_what_latex_reads():
    text = format_table(pl.DataFrame({"edit_name": ["50% & more_#{}"], "x": [-1.5]}), "latex", title="Drop")
    assert r"edit\_name & x \\" in text
    assert r"50\% \& more\_\#\{\} & $-$1.50 \\" in text
    assert r"\begin{tabular}{lr}" in text
    assert r"\caption{Drop.}" in text


def test_unknown_format_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'markdown'"):
        format_table(FRAME, "markdwn")


@pytest.mark.parametrize("format", ["table", "csv", "json", "markdown", "latex"])
def test_an_empty_frame_still_has_its_columns(format):
    text = format_table(FRAME.clear(), format)
    assert text.strip() == "[]" if format == "json" else "model" in text


def test_the_format_follows_the_ending():
    assert [format_of(Path(name)) for name in ("a.json", "a.csv", "a.txt")] == ["json", "csv", "table"]
