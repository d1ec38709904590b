"""The section about a repair: plain model, control and repaired, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from unswayed.errors import UserError
from unswayed.files.records import read_object
from unswayed.views.text import joined

from .findings import Findings
from .html_table import Cell, Line, sortable
from .section import Section, paragraphs

RESULT = "repair.json"
VERDICTS = {
    "better": "The repair was worth it",
    "worse": "The repair was not worth it",
    "cannot tell": "These photographs are too few to decide whether the repair was worth it",
}
HEADINGS = ("measure", "pictures", "n", "before", "control", "repaired", "difference", "95 % interval")


def repair_section(folder: Path, findings: Findings) -> Section:
    """The table of before and after that `unswayed repair` wrote into `folder`."""
    path = folder / RESULT
    if not path.is_file():
        raise UserError(f"{folder} holds no {RESULT}", run=f"unswayed repair SOURCE -m MODEL -o {folder}")
    result = read_object(path, {"verdict": str, "reason": str, "model": str, "photographs": dict[str, int]})
    frame = repair_table(result)
    counts = result["photographs"]
    body = joined(
        [
            paragraphs(
                f"{VERDICTS[result['verdict']]}: {result['reason']}.",
                f"{result['model']} was fine-tuned twice on the same {counts['train']:,} photographs with the same "
                f"number of steps: plainly (the control) and with edits of the {counts['train_with_mask']:,} that have "
                "a mask (repaired). All values are points; the difference is repaired minus control, with its "
                "paired 95 % interval.",
            ),
            sortable(
                "repair-table",
                "Before and after the repair.",
                list(HEADINGS),
                [_line(row) for row in frame.iter_rows(named=True)],
                frozenset(range(2, 7)),
            ),
        ]
    )
    return Section("repair", "Before and after the repair", body, tables={"repair": frame})


def repair_table(result: dict[str, Any]) -> pl.DataFrame:
    """The rows of `repair.json` as a frame."""
    columns = ("measure", "pictures", "n", "before", "control", "repaired", "difference", "low", "high")
    return pl.DataFrame([{name: row.get(name) for name in columns} for row in result["rows"]], infer_schema_length=None)


def _line(row: dict[str, Any]) -> Line:
    cells = [Cell(row["measure"], None), Cell(row["pictures"], None), Cell(f"{row['n']:,}", float(row["n"]))]
    for name in ("before", "control", "repaired", "difference"):
        value = row[name]
        signed = f"{value:+.1f}" if name == "difference" and value is not None else None
        cells.append(Cell("–" if value is None else (signed or f"{value:.1f}").replace("-", "−"), value))
    known = row["low"] is not None
    cells.append(Cell(f"{row['low']:+.1f} to {row['high']:+.1f}".replace("-", "−") if known else "–", None))
    return Line(cells)
