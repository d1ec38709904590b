"""The report's figures and numbers as files: PNG, SVG and PDF for each figure, CSV for each table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from unswayed.files.whole import write_bytes
from unswayed.views.tables import format_table

from .figures_factors import SUFFIXES, figure_bytes
from .section import Section


def write_assets(folder: Path, sections: Sequence[Section]) -> list[Path]:
    """Write FOLDER/<figure>.png, .svg, .pdf and FOLDER/<table>.csv; return the paths."""
    written = []
    for section in sections:
        for name, figure in section.figures.items():
            for suffix in SUFFIXES:
                written.append(folder / f"{_safe(name)}{suffix}")
                write_bytes(written[-1], figure_bytes(figure, suffix[1:]))
        for name, table in section.tables.items():
            written.append(folder / f"{_safe(name)}.csv")
            write_bytes(written[-1], format_table(table, "csv").encode())
    return written


def _safe(name: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", name)
