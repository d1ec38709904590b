"""A benchmark that lies on the disk, opened."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unfazed.errors import UserError
from unfazed.labels import LabelSpace

from .card import read_card
from .layout import MANIFEST

if TYPE_CHECKING:
    import pyarrow


class Benchmark:
    """The folder of a built or imported benchmark: its card, its label space, its manifest.

    Paths in the manifest are relative to `root`.
    """

    def __init__(self, path: str | Path) -> None:
        self.root = Path(path).expanduser()
        self.card: dict[str, Any] = read_card(self.root)

    def __repr__(self) -> str:
        return f"Benchmark('{self.root}')"

    @cached_property
    def labels(self) -> LabelSpace:
        return LabelSpace.from_json(self.card["labels"])

    @cached_property
    def manifest(self) -> pyarrow.Table:
        """A row a picture (columns: `unfazed.benchmark.rows.schema`)."""
        import pyarrow.parquet as parquet

        path = self.root / MANIFEST
        if not path.is_file():
            raise UserError(
                f"{self.root} has no {MANIFEST}: its build did not finish", run="the same `unfazed build` command again"
            )
        try:
            return parquet.read_table(path)
        except Exception as error:
            raise UserError(
                f"{path} cannot be read: {error}", run="the same `unfazed build` command again, which writes it anew"
            ) from None
