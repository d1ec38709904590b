"""The pictures to be classified, in order: those of a benchmark, or those of a labeled folder (`images:FOLDER`)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unswayed.benchmark.folder import Benchmark, changed_files, verify
from unswayed.benchmark.rows import SOURCE_EDIT
from unswayed.errors import UserError
from unswayed.files.storage import address, fetch_pictures
from unswayed.files.whole import Json, canonical, hash_values, parse_json, sha256
from unswayed.labels import LabelSpace, imagenet
from unswayed.masks.checks import doubted_masks, mask_origins, warning_summary
from unswayed.sources import open_source
from unswayed.sources.source import repeated_photographs

from .model_cards import DIGITS, Picture, identity_of, rows_of

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
    described: Json
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
        return copies or [self.rows[position].path for position in self.originals]

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


def open_pictures(spec: str, limit: int | None = None, verified: bool = False) -> Pictures:
    """Open the pictures of a benchmark's folder or of `images:FOLDER`. limit: number of sources, not of pictures.

    A benchmark whose files do not match the manifest's hashes is refused; verified: run all checks of `verify`.
    """
    if limit is not None and limit < 1:
        raise UserError(f"the limit is {limit}", allowed="1 or more scenes")
    return _of_folder(spec, limit) if spec.startswith("images:") else _of_benchmark(spec, limit, verified)


def _of_folder(spec: str, limit: int | None) -> Pictures:
    from unswayed.sources.folder import corruption_of

    source = open_source(spec, limit=limit)
    digest = hashlib.sha256()
    files, parts = [Path(entry.image) for entry in source.entries], []
    for entry, path in zip(source.entries, files, strict=True):
        try:
            status = path.stat()
            size, changed = status.st_size, status.st_mtime_ns
        except OSError:  # a link that leads nowhere, which is recorded as unreadable when it is read
            size, changed = -1, 0
        # To avoid reading fifty thousand photographs twice, they are identified by name, size and modification time.
        digest.update(canonical([entry.id, _name(path), entry.label, size, changed]).encode())
        # Copies of one folder are the same pictures, so the modification time is not part of their identity.
        parts.append([entry.id, _name(path), size])
    rows = []
    for entry, path, picture in zip(source.entries, files, hash_values(parts, DIGITS), strict=True):
        corrupted = corruption_of(path.as_posix())
        edit = ORIGINAL if corrupted is None else f"{corrupted[0]}-{corrupted[1]}"
        named = (f"{entry.id}/{edit}/0", entry.id, _name(path), edit)
        rows.append(Picture(*named, 0, entry.label, str(path), picture=picture))
    described: dict[str, object] = {
        "spec": spec,
        "path": str(Path(spec.removeprefix("images:").partition("?")[0]).expanduser().resolve()),
        "sha256": digest.hexdigest(),
        "pictures": len(rows),
        "identity": identity_of({"kind": "images"}, source.labels.to_json(), rows),
    }
    return Pictures(spec, source.labels, tuple(rows), described, remarks=source.remarks)


def _name(path: Path) -> str:
    """The name of a file as text, which on Linux it need not be."""
    return path.name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _of_benchmark(spec: str, limit: int | None, verified: bool) -> Pictures:
    benchmark = Benchmark(spec)
    root, card, labels = benchmark.root, benchmark.card, benchmark.labels
    manifest = benchmark.manifest.to_pylist()
    if limit is not None:
        kept = set(list(dict.fromkeys(row["source_id"] for row in manifest))[:limit])
        manifest = [row for row in manifest if row["source_id"] in kept]
    rows = rows_of(root, manifest)
    if not rows:
        raise UserError(f"the benchmark {root} contains no finished picture", run=f"unswayed status {root}")
    finished = [row for row in manifest if row["status"] == "ok"]
    fetch_pictures(root, [row[name] for row in manifest for name in ("path", "mask_path") if row.get(name)])
    _check_files(root, rows)
    problems = verify(root).problems if verified else changed_files(root, finished)
    if problems:
        shown = "\n  ".join(str(problem) for problem in problems[:10])
        more = f"\n  … {len(problems)} in all" if len(problems) > 10 else ""
        raise UserError(f"the benchmark {root} fails verification:\n  {shown}{more}", run=f"unswayed verify {root}")
    guides = guides_of(card) | {row["guide"] for row in manifest if row.get("guide")}
    recipe = card.get("recipe")
    identity, digest = identity_of(card, card["labels"], rows), sha256(root / "manifest.parquet")
    described = {
        "spec": address(root),
        "path": address(root.resolve()),
        "sha256": digest if limit is None else f"{digest}:{limit}",
        "card_sha256": sha256(root / "benchmark.json"),
        "recipe": recipe.get("name") if isinstance(recipe, dict) else recipe,
        "guide": sorted(guides) or None,
        "pictures": len(rows),
        "masks": card.get("masks"),
        "identity": identity,
    }
    originals = [
        (row["source_id"], (row["sha256"], row.get("mask_sha256")), row.get("label"))
        for row in finished
        if row["edit"] == ORIGINAL and row.get("sha256")
    ]
    notes = {
        row["source_id"]: parse_json(row.get("notes") or "[]", f"{root}: the notes of {row['source_id']}")
        for row in finished
    }
    origins = mask_origins(manifest)
    remarks, doubt = warning_summary(notes, origins), doubted_masks(notes, origins)
    remarks += repeated_photographs(originals)
    return Pictures(str(root), labels, rows, described, frozenset(guides), tuple(remarks), doubt)


def guides_of(card: object, within: bool = False) -> set[str]:
    """Return every name and hash under any `guide` in a benchmark's card; within: this is the value of one."""
    if isinstance(card, dict):
        return {text for key, value in card.items() for text in guides_of(value, within or key == "guide")}
    if isinstance(card, list):
        return {text for part in card for text in guides_of(part, within)}
    return {card} if within and isinstance(card, str) else set()


def _check_files(root: Path, rows: Sequence[Picture]) -> None:
    """Refuse a benchmark with missing pictures; lists each folder once instead of checking every file."""
    needed = [path for row in rows for path in (row.path, row.mask) if path]
    folders = filter(os.path.isdir, dict.fromkeys(map(os.path.dirname, needed)))
    there = {os.path.join(folder, name) for folder in folders for name in os.listdir(folder)}
    missing = [os.path.relpath(path, root) for path in needed if path not in there]
    if missing:
        raise UserError(
            f"{len(missing)} files of the benchmark {root} are missing, first {missing[0]}",
            run=f"unswayed verify {root}",
        )
