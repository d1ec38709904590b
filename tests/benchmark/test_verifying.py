"""Verifying: a benchmark as built passes; whatever is changed in it is found and named."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import cv2
import pyarrow.parquet as parquet
import pytest

from unswayed.benchmark import Benchmark, verify
from unswayed.benchmark.folder import Problem, changed_files
from unswayed.benchmark.rows import read_rows, row_of, write_manifest, write_rows
from unswayed.errors import UserError


@pytest.fixture
def copied(sample_benchmark, tmp_path):
    return Path(shutil.copytree(sample_benchmark, tmp_path / "bench"))


def problems(root: Path) -> list[str]:
    return [str(problem) for problem in verify(root).problems]


def test_a_benchmark_as_built_passes(sample_benchmark):
    verdict = verify(sample_benchmark)
    assert verdict.passed
    assert verdict.rows == 300
    assert verdict.files == 2 * verdict.counts["ok"] - 20  # the files as found have no mask
    assert verdict.counts["skipped"] >= 80


@pytest.mark.parametrize("path", ["images/size-0.05/dog.png", "masks/position/cat.png", "images/source/pig.jpg"])
def test_one_changed_byte_is_found_and_named(copied, path):
    data = bytearray((copied / path).read_bytes())
    data[len(data) // 2] ^= 1
    (copied / path).write_bytes(bytes(data))
    assert problems(copied) == [f"{path}: is not the file that was written (its SHA-256 differs)"]


def test_a_label_that_is_changed_in_manifest_and_row_file_is_found(copied):
    manifest = [row_of(record) for record in Benchmark(copied).manifest.to_pylist()]
    changed = [replace(row, label=1) if row.source_id == "dog" else row for row in manifest]
    write_manifest(copied, changed)
    write_rows(copied, "dog", [row for row in changed if row.source_id == "dog"])
    assert problems(copied) == ["manifest.parquet: has labels that are not those that the benchmark was made with"]


def test_a_missing_file_is_found(copied):
    (copied / "images/original/dog.png").unlink()
    assert problems(copied) == ["images/original/dog.png: is missing"]


def test_pipes_devices_and_folders_in_place_of_pictures_are_problems(copied):
    for name in ("dog", "cat", "pig", "cow"):
        (copied / f"images/original/{name}.png").unlink()
    os.mkfifo(copied / "images/original/dog.png")
    (copied / "images/original/cat.png").symlink_to("/dev/zero")
    (copied / "images/original/pig.png").mkdir()
    with open(copied / "images/original/cow.png", "wb") as file:
        file.truncate(2**40)  # bytes, none of which is on the disk
    found = dict(problem.partition(": ")[::2] for problem in problems(copied))
    assert set(found) == {f"images/original/{name}.png" for name in ("dog", "cat", "pig", "cow")}
    assert "dog.png is no file)" in found["images/original/dog.png"]
    assert "cat.png is no file)" in found["images/original/cat.png"]
    assert "pig.png is a folder)" in found["images/original/pig.png"]
    assert "cow.png has 1,099,511,627,776 bytes)" in found["images/original/cow.png"]


def test_a_path_with_a_zero_byte_is_a_problem(copied):
    file = Problem("images/a\0.png", "is missing")
    assert changed_files(copied, [{"path": file.where, "sha256": "0"}]) == [file]


def test_a_rate_that_is_not_met_is_found_even_with_honest_hashes(copied):
    """The mask of another size under this row's name, its hash and rate written as they are."""
    rows = read_rows(copied, "dog")
    wrong = next(row for row in rows if row.edit == "size-0.1")
    at = rows.index(next(row for row in rows if row.edit == "size-0.05"))
    record = rows[at].__dict__ | {name: getattr(wrong, name) for name in ("mask_path", "mask_sha256", "pixel_rate")}
    rows[at] = type(wrong)(**record)
    replace_rows(copied, "dog", rows)
    [problem] = problems(copied)
    assert "0.05 was requested" in problem
    assert "covers 0.1" in problem or "covers 0.09" in problem


def test_a_recorded_rate_that_is_not_the_masks_is_found(copied):
    rows = read_rows(copied, "dog")
    at = next(i for i, row in enumerate(rows) if row.edit == "original")
    rows[at] = type(rows[at])(**(rows[at].__dict__ | {"pixel_rate": 0.5}))
    replace_rows(copied, "dog", rows)
    assert "the manifest says 0.5" in problems(copied)[0]


def test_a_skip_without_a_reason_and_a_failure_are_found(copied):
    rows = read_rows(copied, "dog")
    at = next(i for i, row in enumerate(rows) if row.status == "skipped")
    rows[at] = type(rows[at])(**(rows[at].__dict__ | {"reason": None}))
    rows[0] = type(rows[0])(**(rows[0].__dict__ | {"status": "failed", "reason": "the file is cut off"}))
    replace_rows(copied, "dog", rows)
    assert problems(copied) == [
        "dog/source/0: failed: the file is cut off",
        f"{rows[at].sample_id}: skipped without a reason",
    ]


def test_a_manifest_that_lacks_a_row_or_a_source_is_found(copied):
    table = parquet.read_table(copied / "manifest.parquet")
    keep = [
        index
        for index, row in enumerate(table.to_pylist())
        if row["source_id"] != "cat" and row["sample_id"] != "dog/position/0"
    ]
    parquet.write_table(table.take(keep), copied / "manifest.parquet")
    found = problems(copied)
    assert "dog/position: is in the recipe but not in the manifest" in found
    assert "manifest.parquet: has 19 sources, but the benchmark was made from 20" in found
    assert "rows/dog.json: does not match the manifest" in found


def test_a_row_may_not_point_outside(copied):
    rows = read_rows(copied, "dog")
    rows[1] = type(rows[1])(**(rows[1].__dict__ | {"path": "../../etc/passwd"}))
    replace_rows(copied, "dog", rows)
    assert "../../etc/passwd: is outside the benchmark" in problems(copied)


def test_what_is_no_benchmark_is_refused(tmp_path, copied):
    with pytest.raises(UserError, match="it does not exist"):
        verify(tmp_path / "nothing")
    with pytest.raises(UserError, match="contains no benchmark.json"):
        verify(tmp_path)
    (copied / "manifest.parquet").write_bytes(b"no parquet")
    with pytest.raises(UserError, match="is not a readable Parquet file"):
        verify(copied)
    (copied / "manifest.parquet").unlink()
    with pytest.raises(UserError, match="did not finish"):
        verify(copied)
    (copied / "benchmark.json").write_text("{")
    with pytest.raises(UserError, match="not readable JSON"):
        verify(copied)


def test_the_picture_under_the_mask_is_the_object(sample_benchmark):
    """Mask and picture agree: inside the mask of a shrunken object lie the object's colors, not the background's."""
    rows = {row.edit: row for row in read_rows(sample_benchmark, "scarlet_macaw") if row.status == "ok"}

    def colors(edit):
        """The mean color inside and outside the mask, as the files have them."""
        picture = cv2.imread(str(sample_benchmark / rows[edit].path))
        levels = cv2.imread(str(sample_benchmark / rows[edit].mask_path), cv2.IMREAD_GRAYSCALE)
        return picture[levels > 250].mean(axis=0), picture[levels < 5].mean(axis=0)

    bird, scenery = colors("original")
    for edit in ("size-0.05", "size-0.08"):
        inside, outside = colors(edit)
        assert abs(inside - bird).max() < 10
        assert abs(outside - scenery).max() < 10
        assert abs(inside - scenery).max() > 3 * abs(inside - bird).max()


def replace_rows(root: Path, source_id: str, rows: list) -> None:
    """Row file and manifest with these rows for one source: the benchmark is consistent but for what they say."""
    write_rows(root, source_id, rows)
    ids = list(dict.fromkeys(Benchmark(root).manifest.column("source_id").to_pylist()))
    write_manifest(root, [row for one in ids for row in read_rows(root, one)])
