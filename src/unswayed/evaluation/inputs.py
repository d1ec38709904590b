"""The pictures to be classified, in order: those of a benchmark, or those of a labeled folder (`images:FOLDER`)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unswayed.benchmark.rows import SOURCE_EDIT
from unswayed.errors import UserError
from unswayed.files.storage import address, fetch_pictures, local_copy
from unswayed.files.whole import canonical, parse_json, sha256
from unswayed.labels import LabelSpace, imagenet
from unswayed.masks.checks import doubted_masks, mask_origins, warning_summary
from unswayed.sources.source import repeated_photographs

from .model_cards import Picture, identity_of, picture_hash, rows_of

ORIGINAL = "original"


@dataclass(frozen=True)
class Pictures:
    """The pictures that `evaluate` classifies.

    labels: the label space of the predictions; rows: in their order; described: the part of a card about them; guides:
    hashes and names of the classifiers that adversarial pictures attack; remarks: notes about them for the user;
    doubt: why numbers measured on them may mean nothing.
    """

    spec: str
    labels: LabelSpace
    rows: tuple[Picture, ...]
    described: dict[str, Any]
    guides: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()
    doubt: str | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def frame(self) -> str | None:
        """Return how the benchmark framed its photographs; None for pictures as they were found."""
        stated = self.described.get("identity", {}).get("settings", {}).get("frame")
        return None if stated is None else str(stated)

    @property
    def originals(self) -> list[int]:
        """Return the positions of the unedited pictures; in a folder, of all pictures."""
        return [position for position, row in enumerate(self.rows) if row.edit == ORIGINAL and row.run == 0]

    @property
    def photographs(self) -> list[str]:
        """Return the files of the photographs: a benchmark's copies of its sources, or a folder's unedited pictures."""
        copies = [row.path for row in self.rows if row.edit == SOURCE_EDIT]
        return copies or [self.rows[place].path for place in self.originals]

    @property
    def cautions(self) -> tuple[str, ...]:
        """Return the remarks that every table of numbers repeats: those about a benchmark's masks and photographs."""
        return () if self.spec.startswith("images:") else self.remarks

    @property
    def needed(self) -> set[int]:
        """Return the labels that occur."""
        return {row.label for row in self.rows if row.label is not None}

    @property
    def subset(self) -> tuple[int, ...] | None:
        """Return the classes over which a folder of some of ImageNet's classes is scored, as ImageNet-A and -R are;
        None for a benchmark, and for a folder with all classes or with classes of its own."""
        if not self.spec.startswith("images:") or self.labels != imagenet() or len(self.needed) < 2:
            return None
        return tuple(sorted(self.needed)) if len(self.needed) < len(self.labels) else None


def open_pictures(spec: str, limit: int | None = None, verify: bool = False) -> Pictures:
    """Open the pictures of a benchmark's folder or of `images:FOLDER`. limit: number of sources, not of pictures.

    A benchmark whose files do not match the manifest's hashes is refused; verify: run all checks of `verify`.
    """
    if limit is not None and limit < 1:
        raise UserError(f"the limit is {limit}", allowed="1 or more scenes")
    if spec.startswith("images:"):
        return _of_folder(spec, limit)
    return _of_benchmark(local_copy(spec).expanduser(), limit, verify)


def _of_folder(spec: str, limit: int | None) -> Pictures:
    from unswayed.sources import open_source
    from unswayed.sources.folder import corruption_of

    source = open_source(spec, limit=limit)
    digest = hashlib.sha256()
    rows = []
    for entry in source.entries:
        path = Path(entry.image)
        status = path.stat()
        # To avoid reading fifty thousand photographs twice, they are identified by name, size and modification time.
        digest.update(canonical([entry.id, path.name, entry.label, status.st_size, status.st_mtime_ns]).encode())
        # Copies of one folder are the same pictures, so the modification time is not part of their identity.
        picture = picture_hash(entry.id, path.name, status.st_size)
        corrupted = corruption_of(path.as_posix())
        edit = ORIGINAL if corrupted is None else f"{corrupted[0]}-{corrupted[1]}"
        rows.append(
            Picture(
                f"{entry.id}/{edit}/0",
                entry.id,
                path.name,
                edit,
                0,
                entry.label,
                str(path),
                picture=picture,
            )
        )
    described: dict[str, Any] = {
        "spec": spec,
        "path": str(Path(spec.removeprefix("images:").partition("?")[0]).expanduser().resolve()),
    }
    identity = identity_of({"kind": "images"}, source.labels.to_json(), rows)
    described |= {"sha256": digest.hexdigest(), "pictures": len(rows), "identity": identity}
    return Pictures(spec, source.labels, tuple(rows), described, remarks=source.remarks)


def _of_benchmark(root: Path, limit: int | None, verify: bool) -> Pictures:
    from unswayed.benchmark import Benchmark

    benchmark = Benchmark(root)
    manifest = benchmark.manifest.to_pylist()
    if limit is not None:
        kept = set(list(dict.fromkeys(row["source_id"] for row in manifest))[:limit])
        manifest = [row for row in manifest if row["source_id"] in kept]
    rows = rows_of(root, manifest)
    if not rows:
        raise UserError(f"the benchmark {root} contains no finished picture", run=f"unswayed status {root}")
    fetch_pictures(root, [row[name] for row in manifest for name in ("path", "mask_path") if row.get(name)])
    _check_files(root, rows)
    if verify:
        _verify(root)
    else:
        _check_hashes(root, [row for row in manifest if row["status"] == "ok"])
    guides = guides_of(benchmark.card) | {row["guide"] for row in manifest if row.get("guide")}
    described = {
        "spec": address(root),
        "path": address(root.resolve()),
        "sha256": sha256(root / "manifest.parquet")
        if limit is None
        else f"{sha256(root / 'manifest.parquet')}:{limit}",
        "card_sha256": sha256(root / "benchmark.json"),
        "recipe": _recipe(benchmark.card),
        "guide": sorted(guides) or None,
        "pictures": len(rows),
        "identity": identity_of(benchmark.card, benchmark.card["labels"], rows),
    }
    notes = {
        row["source_id"]: parse_json(row.get("notes") or "[]", f"{root}: the notes of {row['source_id']}")
        for row in manifest
        if row["status"] == "ok"
    }
    origins = mask_origins(manifest)
    originals = (
        (row["source_id"], (row["sha256"], row.get("mask_sha256")), row.get("label"))
        for row in manifest
        if row["edit"] == ORIGINAL and row["status"] == "ok" and row.get("sha256")
    )
    return Pictures(
        str(root),
        benchmark.labels,
        rows,
        described,
        frozenset(guides),
        (*warning_summary(notes, origins), *repeated_photographs(originals)),
        doubted_masks(notes, origins),
    )


def _recipe(card: dict[str, Any]) -> Any:
    recipe = card.get("recipe")
    return recipe.get("name") if isinstance(recipe, dict) else recipe


def guides_of(card: Any) -> set[str]:
    """Return every name and hash under any `guide` in a benchmark's card."""
    found: set[str] = set()
    if isinstance(card, dict):
        for key, value in card.items():
            if key == "guide":
                found |= set(_strings(value))
            found |= guides_of(value)
    elif isinstance(card, list):
        for part in card:
            found |= guides_of(part)
    return found


def _strings(value: Any) -> Sequence[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for part in value.values() for text in _strings(part)]
    return []


def _check_files(root: Path, rows: Sequence[Picture]) -> None:
    """Refuse a benchmark with missing pictures; lists each folder once instead of checking every file."""
    listed: dict[str, set[str]] = {}
    missing = []
    for row in rows:
        for path in filter(None, (row.path, row.mask)):
            folder, name = os.path.split(path)
            if folder not in listed:
                listed[folder] = set(os.listdir(folder)) if os.path.isdir(folder) else set()
            if name not in listed[folder]:
                missing.append(os.path.relpath(path, root))
    if missing:
        raise UserError(
            f"{len(missing)} files of the benchmark {root} are missing, first {missing[0]}",
            run=f"unswayed verify {root}",
        )


def _verify(root: Path) -> None:
    from unswayed.benchmark import verify

    _refuse(root, verify(root).problems)


def _check_hashes(root: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Refuse a benchmark whose files have changed; files without a hash are not checked."""
    from unswayed.benchmark import changed_files

    _refuse(root, changed_files(root, rows))


def _refuse(root: Path, problems: Sequence[Any]) -> None:
    if problems:
        shown = "\n  ".join(str(problem) for problem in problems[:10])
        more = f"\n  … {len(problems)} in all" if len(problems) > 10 else ""
        raise UserError(f"the benchmark {root} fails verification:\n  {shown}{more}", run=f"unswayed verify {root}")
