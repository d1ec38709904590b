"""A benchmark as a folder that `datasets.load_dataset` opens, on disk or on the Hugging Face Hub, and back.

FOLDER/README.md                        the dataset card
FOLDER/data/test-00000-of-00002.parquet the pictures and masks as their files' bytes, with every column of the manifest
FOLDER/benchmark/benchmark.json, …      what else the benchmark's folder holds, unchanged
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from unswayed.errors import UserError
from unswayed.files.records import require_fields
from unswayed.files.tables import check_size, readable
from unswayed.files.whole import MOST_PICTURE, check_regular, make_folder, whole, write_bytes

from .exporting import ExportResult, Show, check_empty, read_unchanged
from .folder import Benchmark
from .licenses import CREDITS, credits_csv
from .rows import (
    CARD,
    FILES,
    OK,
    SOURCE_EDIT,
    Record,
    Row,
    counts,
    leads_out,
    record,
    row_of,
    row_path,
    schema,
    write_rows,
)

if TYPE_CHECKING:
    import pyarrow


DATA, REST, HUB = "data", "benchmark", "hf:"
_SHARD = 400 << 20  # bytes of pictures in one Parquet file
_GROUP = 64  # pictures in one row group, which readers load as a whole


@dataclass(frozen=True)
class ImportResult:
    """The result of an import: rows by status, number of photographs, and the edits in order."""

    root: Path
    counts: dict[str, int]
    sources: int
    edits: tuple[str, ...]
    failures: dict[str, str]


def write_datasets(benchmark: Benchmark, folder: Path, show: Show) -> ExportResult:
    """Write the benchmark to `folder`; the pictures keep the bytes of their files."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    rows = [row for row in benchmark.manifest.to_pylist() if row["status"] == OK]
    if not rows:
        raise UserError(f"{benchmark.root} contains no finished pictures")
    columns = _schema(benchmark)
    shards = list(_shards(benchmark.root, rows))
    done = 0
    for number, shard in enumerate(shards):
        path = folder / DATA / f"test-{number:05}-of-{len(shards):05}.parquet"
        with whole(path) as file, parquet.ParquetWriter(file, columns, compression="none") as writer:
            for start in range(0, len(shard), _GROUP):
                records = [_record(benchmark.root, row) for row in shard[start : start + _GROUP]]
                writer.write_table(pa.Table.from_pylist(records, schema=columns))
                done += len(records)
                show(done, len(rows))
    for path in benchmark.root.iterdir():
        if path.is_file() and not path.name.startswith("."):
            _copy(path, folder / REST / path.name)
    credits = credits_csv(benchmark)
    if credits is not None:
        write_bytes(folder / CREDITS, credits)
    write_bytes(folder / "README.md", _dataset_card(benchmark, credits is not None).encode())
    return ExportResult(str(folder), len(rows), sum(row["label"] is None for row in rows))


def _schema(benchmark: Benchmark) -> pyarrow.Schema:
    """The columns with `datasets`' own description of them: pictures, a class label, and the manifest's columns."""
    import pyarrow as pa

    classes = benchmark.labels.classes
    # `datasets` demands names that occur once each: ImageNet's two cranes get their index.
    names = [name if classes.count(name) == 1 else f"{name} ({index})" for index, name in enumerate(classes)]
    plain = [field for field in schema() if field.name != "label"]
    features: dict[str, object] = {
        "image": {"_type": "Image"},
        "mask": {"_type": "Image"},
        "label": {"names": names, "_type": "ClassLabel"},
        **{field.name: {"dtype": str(field.type).replace("double", "float64"), "_type": "Value"} for field in plain},
    }
    described = {"huggingface": json.dumps({"info": {"features": features}})}
    file = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return pa.schema([("image", file), ("mask", file), ("label", pa.int64()), *plain], metadata=described)


def _shards(root: Path, rows: list[Record]) -> Iterator[list[Record]]:
    """The rows in pieces of about `_SHARD` bytes of pictures."""
    shard: list[Record] = []
    size = 0
    for row in rows:
        shard.append(row)
        check_regular(root / row["path"], MOST_PICTURE)
        size += (root / row["path"]).stat().st_size
        if size >= _SHARD:
            yield shard
            shard, size = [], 0
    if shard:
        yield shard


def _record(root: Path, row: Record) -> Record:
    files: Record = {}
    for name, (path, digest) in FILES.items():
        data = read_unchanged(root, row[path], row[digest]) if row[path] else None
        files[name] = None if data is None else {"bytes": data, "path": row[path]}
    return {**record(row_of(row)), **files}


def _copy(path: Path, to: Path) -> None:
    check_regular(path)
    with whole(to) as file, open(path, "rb") as content:
        shutil.copyfileobj(content, file)


def _dataset_card(benchmark: Benchmark, credited: bool) -> str:
    """README.md in the form that the Hugging Face Hub shows: settings on top, then the text."""

    from jinja2 import StrictUndefined, Template

    rows, card = benchmark.manifest.to_pylist(), benchmark.card
    made = Counter(row["edit"] for row in rows if row["status"] == OK)
    missing = Counter(row["edit"] for row in rows if row["status"] != OK)
    # The Hub's name for a range of sizes.
    bounds = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
    size = next((name for most, name in bounds if made.total() < most), "1M<n<10M")
    facts = ("source", "recipe", "renderer", "removal", "frame", "size", "seed", "runs", "versions")
    text = resources.files("unswayed.benchmark").joinpath("dataset_card.md").read_text(encoding="utf-8")
    template = Template(text, trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    return template.render(
        benchmark=benchmark,
        photographs=len({row["source_id"] for row in rows}),
        size=size,
        pretty_name=json.dumps(f"{benchmark.root.name}: edited photographs", ensure_ascii=False),  # as YAML
        version=card.get("versions", {}).get("unswayed", ""),
        edits=[(edit, made[edit], missing[edit]) for edit in benchmark.edits],
        facts={name: _shown(card[name]) for name in facts if card.get(name) is not None},
        credits=CREDITS if credited else None,
    )


def _shown(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{name} {item}" for name, item in value.items() if not isinstance(item, dict | list))


def is_published(path: str) -> bool:
    """Whether `path` names a repository on the Hugging Face Hub or is an exported folder."""
    folder = Path(path).expanduser()
    return path.startswith(HUB) or ((folder / REST / CARD).is_file() and (folder / DATA).is_dir())


def import_published(path: str | Path, out: str | Path, *, progress: Show | None = None) -> ImportResult:
    """Write the benchmark at `path` (a folder, `hf:REPO` or `hf:REPO@REVISION`) to the new folder `out`.

    It has the same rows, files, hashes, reviews and credits. A picture that is missing or whose bytes do not match the
    manifest's hash is listed among the failures.
    """
    text, root = str(path), Path(out).expanduser()
    folder = Path(text).expanduser()
    if text.startswith(HUB):
        import huggingface_hub

        name, _, revision = text.removeprefix(HUB).partition("@")
        with _explained(f"{text} could not be downloaded"):
            folder = Path(huggingface_hub.snapshot_download(name, repo_type="dataset", revision=revision or None))
    if not is_published(str(folder)):
        raise UserError(
            f"{text} is not a benchmark that unswayed exported: it has no benchmark/benchmark.json",
            allowed="what `unswayed export BENCH --to datasets` wrote",
        )
    check_empty(root)
    benchmark = Benchmark(folder / REST)
    rows = {row["sample_id"]: row for row in benchmark.manifest.to_pylist()}
    for row in rows.values():
        for path in (row_path(row["source_id"]), row["path"], row["mask_path"]):
            if path and leads_out(path):
                raise UserError(f"the manifest in {folder} names a file outside the benchmark: {path}")
    failures = _place_pictures(folder, root, rows, progress or (lambda done, total: None))
    by_source: dict[str, list[Row]] = {}
    for row in rows.values():
        by_source.setdefault(row["source_id"], []).append(row_of(row))
    if benchmark.card.get("kind") == "build":
        for source_id, its in by_source.items():
            write_rows(root, source_id, its)
    if (folder / CREDITS).is_file():
        _copy(folder / CREDITS, root / CREDITS)
    # The card comes last: a folder without one is not a benchmark.
    for file in sorted((folder / REST).iterdir(), key=lambda file: file.name == CARD):
        if file.is_file():
            _copy(file, root / file.name)
    edits = tuple(edit for edit in benchmark.edits if edit != SOURCE_EDIT)
    statuses = counts(row["status"] for row in rows.values())
    return ImportResult(make_folder(root), statuses, len(by_source), edits, failures)


def _place_pictures(folder: Path, root: Path, rows: dict[str, Record], show: Show) -> dict[str, str]:
    """Write the files of the finished rows to `root`; what is wrong with them, by sample."""
    waiting = {name for name, row in rows.items() if row["status"] == OK}
    total, failures = len(waiting), dict[str, str]()
    for stored in _stored(folder / DATA):
        name = stored["sample_id"]
        if name not in waiting:
            continue
        waiting.discard(name)
        row = rows[name]
        for kind, (path, digest) in FILES.items():
            if not row[path]:
                continue
            data = (stored.get(kind) or {}).get("bytes")
            if data is None:
                failures[name] = f"its {kind} is missing"
                break
            if row[digest] and hashlib.sha256(data).hexdigest() != row[digest]:
                failures[name] = f"its {kind} does not match the manifest's hash"
                break
            write_bytes(root / row[path], data)
        show(total - len(waiting), total)
    return failures | dict.fromkeys(sorted(waiting), f"the dataset in {folder} has no picture of it")


def _stored(folder: Path) -> Iterator[Record]:
    import pyarrow.parquet as parquet

    for path in sorted(folder.glob("*.parquet")):
        numbers = itertools.count(1)
        with readable(path, "Parquet"):
            check_size(path)
            # As dictionaries, and one row at a time: one large picture may stand in all rows.
            file = parquet.ParquetFile(path, read_dictionary=["sample_id", *(f"{name}.bytes" for name in FILES)])
            for batch in file.iter_batches(_GROUP, columns=["sample_id", *FILES]):
                for position, number in zip(range(len(batch)), numbers, strict=False):
                    [row] = batch.slice(position, 1).to_pylist()
                    require_fields(row, {"sample_id": str}, f"{path}, row {number}")
                    for name in FILES:
                        where = f"{path}, row {number}, {name}"
                        require_fields({} if row.get(name) is None else row[name], {"bytes": bytes | None}, where)
                    yield row


def push(folder: str | Path, repo: str, public: bool = False) -> str:
    """Upload an exported folder as the dataset repository `repo`, private unless `public`; return its address."""
    import huggingface_hub

    api, message = huggingface_hub.HfApi(), "Benchmark made with unswayed"
    with _explained(f"{folder} could not be uploaded to {repo}"):
        api.create_repo(repo, repo_type="dataset", private=not public, exist_ok=True)
        api.upload_folder(repo_id=repo, repo_type="dataset", folder_path=str(folder), commit_message=message)
    return f"https://huggingface.co/datasets/{repo}"


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """A block that uses the Hub, and whose errors become a UserError."""
    try:
        yield
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        allowed, run = "OWNER/NAME of a dataset repository", "hf auth login"
        raise UserError(f"{what}: {reason}", allowed=allowed, run=run) from error
