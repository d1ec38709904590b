"""A benchmark: its card, its manifest and its pictures as a torch-style dataset; and checking that they fit."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, overload

from typing_extensions import TypeVar

from unswayed.choices import OneLine
from unswayed.errors import BadPicture, UserError, check_known
from unswayed.files.storage import address, fetch_pictures, local_copy
from unswayed.files.whole import MOST_PICTURE, Json, read_file
from unswayed.labels import LabelSpace
from unswayed.sources.pictures import pixels_of

from .plan import labels_hash
from .rows import (
    FAILED,
    FILES,
    MANIFEST,
    OK,
    ORIGINAL_EDIT,
    SKIPPED,
    SOURCE_EDIT,
    Card,
    Record,
    Row,
    counts,
    finished_sources,
    leads_out,
    read_card,
    read_manifest,
    read_rows,
    record,
    row_of,
    schema,
)
from .validity import judge

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
        self.transform: Any = transform

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
        part: Benchmark[Picture] = Benchmark(self.root, self.transform)
        part.manifest = self.manifest.filter(compute.equal(self.manifest.column("edit"), name))
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


RATE_TOLERANCE = 0.002


@dataclass(frozen=True)
class Problem:
    """One problem: the file or sample it concerns, and what is wrong."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True, repr=False)
class Verdict(OneLine):
    """The result of `verify`: rows and files checked, rows by status, and the problems, if any."""

    root: Path
    rows: int
    files: int
    counts: dict[str, int]
    problems: tuple[Problem, ...]

    @property
    def passed(self) -> bool:
        return not self.problems

    def to_json(self) -> Json:
        return {
            "benchmark": address(self.root),
            "passed": self.passed,
            "rows": self.rows,
            "files": self.files,
            **self.counts,
            "problems": [asdict(problem) for problem in self.problems],
        }


def verify(path: str | Path, workers: int = 2, report: Callable[[int, int], None] | None = None) -> Verdict:
    """Check the benchmark in `path` and return the verdict; `report(done, rows)` is called for progress.

    A skipped row is expected and needs a reason and no file; a failed row is a problem. The pixel rate is measured on
    the written mask and must be within 0.002 of the requested one.
    """
    benchmark = Benchmark(path)
    table = read_manifest(benchmark.root, outside=True)
    if missing := [name for name in schema().names if name not in table.column_names]:
        raise UserError(f"{benchmark.root / MANIFEST} has no column {', '.join(missing)}")
    rows = table.to_pylist()
    fetch_pictures(benchmark.root)
    problems = plan_problems(benchmark, rows)
    files = 0
    with ThreadPoolExecutor(workers) as pool:
        for number, (read, wrong) in enumerate(pool.map(lambda row: _check_row(benchmark.root, row), rows), start=1):
            files += read
            problems += wrong
            if report is not None:
                report(number, len(rows))
    return Verdict(benchmark.root, len(rows), files, counts(row["status"] for row in rows), tuple(problems))


def changed_files(root: Path, rows: Sequence[Record], workers: int = 8) -> list[Problem]:
    """Return the files that are missing or do not match the manifest's hashes; a file without a hash is not read."""
    both = [(row.get(path), row.get(digest)) for row in rows for path, digest in FILES.values()]
    files = [(path, digest) for path, digest in both if path and digest]
    parts = [files[first : first + 64] for first in range(0, len(files), 64)]  # a task for each would take longer
    with ThreadPoolExecutor(workers) as pool:
        return [problem for problems, _ in pool.map(lambda part: _checked(root, part), parts) for problem in problems]


def plan_problems(benchmark: Benchmark, rows: list[Record]) -> list[Problem]:
    """What is missing or duplicated in the manifest, compared with the card and the row files."""
    seen = Counter(row["sample_id"] for row in rows)
    problems = [Problem(name, f"appears {count} times in the manifest") for name, count in seen.items() if count > 1]
    built_with = benchmark.card.get("labels_sha256")
    if built_with not in (None, labels_hash((row["source_id"], row["label"]) for row in rows)):
        problems.append(Problem(MANIFEST, "has labels that are not those that the benchmark was made with"))
    if benchmark.card.get("kind") != "build":
        return problems
    by_source: dict[str, list[Record]] = {}
    for row in rows:
        by_source.setdefault(row["source_id"], []).append(row)
    planned = {SOURCE_EDIT, *(edit["name"] for edit in benchmark.card["recipe"]["edits"])}
    for source_id, its in by_source.items():
        for edit in sorted(planned - {row["edit"] for row in its}):
            problems.append(Problem(f"{source_id}/{edit}", "is in the recipe but not in the manifest"))
    scenes = benchmark.card["source"]["scenes"]
    if len(by_source) != scenes:
        problems.append(Problem(MANIFEST, f"has {len(by_source)} sources, but the benchmark was made from {scenes}"))
    for source_id in sorted(finished_sources(benchmark.root) & set(by_source)):
        columns = by_source[source_id][0]
        there = [record(row) for row in read_rows(benchmark.root, source_id)]
        if [{name: row[name] for name in columns} for row in there] != by_source[source_id]:
            problems.append(Problem(f"rows/{source_id}.json", "does not match the manifest"))
    return problems


def _check_row(root: Path, row: Record) -> tuple[int, list[Problem]]:
    """How many files of a row were read, and what is wrong with it."""
    problem = _row_problem(row)
    if problem is not None or row["status"] == SKIPPED:
        return 0, [Problem(row["sample_id"], problem)] if problem else []
    files = [(row[path], row[digest]) for path, digest in FILES.values() if row[path] is not None]
    checked = [_checked(root, [file]) for file in files]
    problems = [problem for wrong, _ in checked for problem in wrong]
    if len(checked) == 2 and not checked[1][0]:
        problems += [Problem(row["mask_path"], what) for what in _rate_problems(row, checked[1][1])]
    return len(files), problems


def _row_problem(row: Record) -> str | None:
    """What is wrong with a row itself; its validity must be the verdict on the measures beside it."""
    if row["validity"] is not None:
        try:
            known = row_of(row)
        except UserError as error:
            return error.given
        verdict = judge(known.validity_measures)
        if abs(verdict.score - row["validity"]) > 1e-3 or list(verdict.reasons) != known.validity_reasons:
            return f"has the validity {row['validity']:g}, its measures give {verdict.score:g}"
    if row["status"] == SKIPPED:
        return None if row["reason"] else "skipped without a reason"
    if row["status"] == FAILED:
        return f"failed: {row['reason']}"
    if row["status"] != OK:
        return f"has the status '{row['status']}'"
    return None if row["path"] else "has no file"


def _checked(root: Path, files: Sequence[tuple[str, str]]) -> tuple[list[Problem], bytes]:
    """Return what is wrong with files, each a path and its hash, and the bytes of the last one; a file outside the
    benchmark is not read."""
    problems, data = list[Problem](), b""
    # No file has a zero byte in its name, wherever it is.
    outside = {path for path, _ in files if leads_out(path.replace("\0", ""))}
    for path, expected in files:
        if path in outside:
            problems.append(Problem(path, "is outside the benchmark"))
            continue
        try:
            data = read_file(root / path, MOST_PICTURE)
        except UserError as error:
            there = os.path.exists(root / path)
            problems.append(Problem(path, f"cannot be read ({error.given})" if there else "is missing"))
            continue
        if hashlib.sha256(data).hexdigest() != expected:
            problems.append(Problem(path, "is not the file that was written (its SHA-256 differs)"))
    return problems, data


def _rate_problems(row: Record, mask: bytes) -> list[str]:
    import cv2
    import numpy as np

    from unswayed.rendering.layers import written_rate

    try:
        pixels_of(mask)  # OpenCV itself would decode a picture of a gigabyte
    except BadPicture as error:
        return [f"is not a readable picture ({error.given})"]
    levels = cv2.imdecode(np.frombuffer(mask, np.uint8), cv2.IMREAD_GRAYSCALE)
    if levels is None:
        return ["is not a picture"]
    achieved, rate, requested = written_rate(levels), row["pixel_rate"], row["requested"]
    problems = []
    if rate is None or abs(achieved - rate) > 1e-9:
        problems.append(f"covers {achieved:.4f}, the manifest says {rate}")
    if requested is not None and abs(achieved - requested) > RATE_TOLERANCE:
        problems.append(f"covers {achieved:.4f}, {requested:g} was requested")
    if achieved == 0 and row["edit"] == ORIGINAL_EDIT:
        problems.append("is empty")
    return problems
