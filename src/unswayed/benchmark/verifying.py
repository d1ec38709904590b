"""Checking a benchmark against its manifest: every file exists, every hash matches, every request is met."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unswayed.choices import one_line
from unswayed.errors import BadPicture, UserError
from unswayed.files.storage import address, fetch_pictures
from unswayed.files.whole import MOST_PICTURE, hash_files, read_file
from unswayed.rendering.layers import written_rate
from unswayed.sources.pictures import pixels_of

from .folder import Benchmark
from .plan import labels_hash
from .rows import (
    FAILED,
    MANIFEST,
    OK,
    ORIGINAL_EDIT,
    SKIPPED,
    SOURCE_EDIT,
    Record,
    counts,
    finished_sources,
    leads_out,
    read_manifest,
    read_rows,
    record,
    row_of,
    schema,
)
from .validity import judge

RATE_TOLERANCE = 0.002


@dataclass(frozen=True)
class Problem:
    """One problem: the file or sample it concerns, and what is wrong."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@one_line
@dataclass(frozen=True)
class Verdict:
    """The result of `verify`: rows and files checked, rows by status, and the problems, if any."""

    root: Path
    rows: int
    files: int
    counts: dict[str, int]
    problems: tuple[Problem, ...]

    @property
    def passed(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
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


def changed_files(root: Path, rows: Sequence[Mapping[str, Any]], workers: int = 2) -> list[Problem]:
    """Return the files that are missing or do not match the manifest's hashes; a file without a hash is not read."""
    files = [
        (row[path], row[digest])
        for row in rows
        for path, digest in (("path", "sha256"), ("mask_path", "mask_sha256"))
        if row.get(path) and row.get(digest)
    ]
    inside = [path for path, _ in files if not _is_outside(path)]
    hashes = dict(zip(inside, hash_files([root / path for path in inside], MOST_PICTURE, workers), strict=True))
    problems = (_problem(root, path, expected, hashes.get(path)) for path, expected in files)
    return [problem for problem in problems if problem is not None]


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
    _, picture_problem = _read(root, row["path"], row["sha256"])
    problems = [picture_problem] if picture_problem else []
    if row["mask_path"] is None:
        return 1, problems
    mask, mask_problem = _read(root, row["mask_path"], row["mask_sha256"])
    if mask_problem is not None:
        problems.append(mask_problem)
    elif mask is not None:
        problems += [Problem(row["mask_path"], what) for what in _rate_problems(row, mask)]
    return 2, problems


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


def _read(root: Path, path: str, expected: str | None) -> tuple[bytes | None, Problem | None]:
    """Return a file's bytes, or what is wrong with it."""
    if _is_outside(path):
        return None, _problem(root, path, expected, None)
    try:
        data = read_file(root / path, MOST_PICTURE)
    except UserError as error:
        return None, _problem(root, path, expected, error)
    return data, _problem(root, path, expected, hashlib.sha256(data).hexdigest())


def _is_outside(path: str) -> bool:
    return leads_out(path.replace("\0", ""))  # no file has a zero byte in its name, wherever it is


def _problem(root: Path, path: str, expected: str | None, hashed: str | UserError | None) -> Problem | None:
    """What is wrong with a file, by its SHA-256 or why it has none; None for a file outside, which is not read."""
    if hashed is None:
        return Problem(path, "is outside the benchmark")
    if isinstance(hashed, UserError):
        there = os.path.exists(root / path)
        return Problem(path, f"cannot be read ({hashed.given})" if there else "is missing")
    if hashed != expected:
        return Problem(path, "is not the file that was written (its SHA-256 differs)")
    return None


def _rate_problems(row: Record, mask: bytes) -> list[str]:
    import cv2
    import numpy as np

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
