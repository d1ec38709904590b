"""Reading a benchmark: its card, its manifest, and its pictures as a torch-style dataset."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, overload

from typing_extensions import TypeVar

from unswayed.errors import UserError, check_known
from unswayed.files.storage import address, local_copy
from unswayed.labels import LabelSpace

from .rows import OK, Card, Row, read_card, read_manifest, row_of

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    import torch
    from PIL import Image

# The type that `transform` returns; a Pillow image without a transform.
Picture = TypeVar("Picture", default="Image.Image")


class Benchmark(Generic[Picture]):
    """The folder of a built or imported benchmark.

    `len(benchmark)` counts its finished pictures and `benchmark[i]` is one of them: the picture, its label (an index
    into `labels`, or None) and its row of the manifest. transform: applied to every picture, a Pillow image in RGB,
    such as torchvision's `v2.Compose`. A benchmark can be passed to a torch
    `DataLoader` with `collate_fn=Benchmark.collate`. Paths in the manifest are relative to `root`.
    """

    @overload
    def __init__(self: Benchmark[Image.Image], path: str | Path, transform: None = None) -> None: ...
    @overload
    def __init__(self, path: str | Path, transform: Callable[[Image.Image], Picture]) -> None: ...
    def __init__(self, path: str | Path, transform: Callable[[Image.Image], Any] | None = None) -> None:
        self.root = local_copy(path).expanduser()
        self.card: Card = read_card(self.root)
        self.transform = transform

    def __repr__(self) -> str:
        return f"Benchmark('{address(self.root)}')"

    @cached_property
    def labels(self) -> LabelSpace:
        return LabelSpace.from_json(self.card["labels"])

    @cached_property
    def manifest(self) -> pyarrow.Table:
        """One row per picture, made or not (columns: `unswayed.benchmark.rows.schema`)."""
        return read_manifest(self.root)

    @cached_property
    def edits(self) -> tuple[str, ...]:
        """Return the names of the edits, in the order of the recipe."""
        return tuple(dict.fromkeys(self.manifest.column("edit").to_pylist()))

    def edit(self, name: str) -> Benchmark[Picture]:
        """Return the benchmark with the pictures of one edit only, such as `original` or `size-0.05`."""
        import pyarrow.compute as compute

        check_known(f"edit in {self.root}", [name], self.edits)
        part = copy.copy(self)
        for cached in ("edits", "_finished"):
            part.__dict__.pop(cached, None)
        part.__dict__["manifest"] = self.manifest.filter(compute.equal(self.manifest.column("edit"), name))
        return part

    @cached_property
    def _finished(self) -> list[int]:
        return [at for at, status in enumerate(self.manifest.column("status").to_pylist()) if status == OK]

    def __len__(self) -> int:
        return len(self._finished)

    def __getitem__(self, index: int) -> tuple[Picture, int | None, Row]:
        from PIL import Image

        from unswayed.sources.pictures import read_picture

        [record] = self.manifest.slice(self._finished[index], 1).to_pylist()
        row = row_of(record)
        assert row.path is not None
        image: Any = Image.fromarray(read_picture(self.root / row.path))
        return image if self.transform is None else self.transform(image), row.label, row

    @staticmethod
    def collate(
        samples: Sequence[tuple[torch.Tensor, int | None, Row]],
    ) -> tuple[torch.Tensor, torch.Tensor, list[Row]]:
        """Return a batch for a torch `DataLoader`: pictures (N, …), labels (N,) int64 with -1 for None, and rows."""
        import torch

        pictures, labels, rows = zip(*samples, strict=True)
        indices = torch.tensor([-1 if label is None else label for label in labels])
        return torch.stack(pictures), indices, list(rows)

    def to_polars(self) -> polars.DataFrame:
        """Return the manifest as a polars data frame."""
        import polars

        return polars.DataFrame(self.manifest)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the manifest as a pandas data frame; needs pandas."""
        try:
            return self.manifest.to_pandas()
        except ImportError:
            raise UserError("pandas is not installed", run="pip install pandas") from None
