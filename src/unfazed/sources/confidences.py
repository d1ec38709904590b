"""`confidence.csv`: how far each mask that `unfazed masks` made can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unfazed.tables import Column
from unfazed.text_tables import read_csv

if TYPE_CHECKING:
    import pyarrow as pa

FILE = "confidence.csv"
MEASURES = ("confidence", "agreement", "edge", "size")


def read_confidences(path: Path) -> pa.Table:
    """The rows of the table: picture and MEASURES, each in [0, 1]; the last three may be missing."""
    columns = {name: Column("number", nulls=name != "confidence", lowest=0, highest=1) for name in MEASURES}
    columns["picture"] = Column("text", nulls=False)
    return read_csv(path, columns, required=("picture", "confidence"), run="unfazed masks FOLDER -o MASKS")
