"""Importing a published dataset: the official ImageNet-E release, or any with one folder per edit and a labels file."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unswayed.edits.recipes import named_items
from unswayed.errors import UserError
from unswayed.files.records import versions
from unswayed.files.storage import address_of
from unswayed.files.whole import explained, read_names, write_bytes
from unswayed.labels import LabelSpace, imagenet, own
from unswayed.sources.pictures import check_picture
from unswayed.sources.source import unique_slugs

from .card import edit_entry, ids_hash, settle_card
from .layout import ORIGINAL_EDIT, picture_path
from .official import LABEL_FILES, OFFICIAL, Piece, Release, open_release, read_labels
from .rows import FAILED, OK, SKIPPED, Row, counts, write_manifest


@dataclass(frozen=True)
class Imported:
    """The result of an import: rows by status, number of photographs, and the edits in order."""

    root: Path
    counts: dict[str, int]
    sources: int
    edits: tuple[str, ...]
    failures: dict[str, str]


def import_benchmark(
    path: str | Path,
    out: str | Path,
    *,
    labels: str | Path | None = None,
    classes: str | Path | None = None,
    original: str | None = None,
    copy: bool = False,
    workers: int = 4,
    report: Callable[[int, int], None] | None = None,
) -> Imported:
    """Write a benchmark to `out` with the pictures of the dataset in `path`, by links unless `copy`.

    labels: the labels file (default: `labels.txt` in the dataset, or the labels in its shards); classes: a text file
    with one class name per line, if they are not ImageNet's; original: the folder of unedited pictures (default: `ori`
    or `original`). Pictures in archives are always copied.
    """
    root = Path(out).expanduser()
    with open_release(Path(path).expanduser()) as release:
        space = imagenet() if classes is None else own(read_names(classes, "classes file"), name=Path(classes).stem)
        by_name = _labels(release, labels, space)
        edits = _edits(release, original)
        stems = sorted({piece.stem for piece in release.pieces})
        ids = dict(zip(stems, unique_slugs([f"{stem}.png" for stem in stems]), strict=True))
        pieces = _by_edit_and_stem(release, edits)
        with explained(root):
            root.mkdir(parents=True, exist_ok=True)
        settle_card(root, _card(release, edits, ids, space, copy))
        tasks = [(stem, edit) for stem in stems for edit in edits]
        controls = _controls(edits)

        def one(task: tuple[str, str]) -> Row:
            stem, edit = task
            row = replace(controls[edit], source_id=ids[stem], label=_label(by_name, stem))
            return _placed(root, row, pieces.get((edit, stem)), edits[edit], stem, copy)

        rows: list[Row] = []
        with ThreadPoolExecutor(workers) as pool:
            for row in pool.map(one, tasks):
                rows.append(row)
                if report is not None:
                    report(len(rows), len(tasks))
    write_manifest(root, rows)
    failures = {row.sample_id: str(row.reason) for row in rows if row.status == FAILED}
    return Imported(root, counts(rows), len(stems), tuple(edits), failures)


def _placed(root: Path, row: Row, piece: Piece | None, folder: str, stem: str, copy: bool) -> Row:
    """Put the picture into the benchmark and return its row; a missing or unreadable picture gets a reason."""
    if piece is None:
        return replace(row, status=SKIPPED, reason=f"the dataset has no picture of this photograph in {folder}")
    if row.label is None:
        return replace(row, status=FAILED, reason=f"the labels file has no line for {stem}")
    try:
        data = piece.read()
        check_picture(data, f"{folder}/{stem}{piece.suffix}")
    except UserError as error:
        return replace(row, status=FAILED, reason=error.given)
    where = picture_path(row.edit, row.source_id, suffix=piece.suffix)
    if copy or piece.archive is not None or address_of(root) is not None:  # storage has no links
        write_bytes(root / where, data)
    else:
        _link(piece.path.resolve(), root / where)
    return replace(row, status=OK, path=where, sha256=hashlib.sha256(data).hexdigest())


def _link(target: Path, place: Path) -> None:
    """Create a symbolic link, or replace an older one, in one step."""
    with explained(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{place.name}.part")
        part.unlink(missing_ok=True)
        try:
            part.symlink_to(target)
        except (OSError, NotImplementedError) as error:
            raise UserError(
                f"a link cannot be created in {place.parent}: {error}", run="unswayed import … --copy"
            ) from None
        os.replace(part, place)


def _edits(release: Release, original: str | None) -> dict[str, str]:
    """Return edit -> folder: the original first, official folders under our names, others under their own."""
    folders = list(dict.fromkeys(piece.folder for piece in release.pieces))
    first = original or next((name for name in ("ori", "original") if name in folders), None)
    if first is None or first not in folders:
        raise UserError(
            f"{release.root} has no folder of unedited pictures{f' named {original!r}' if original else ''}",
            allowed=f"ori, original, or --original with one of: {', '.join(folders)}",
        )
    edits = {ORIGINAL_EDIT: first}
    for folder in sorted((one for one in folders if one != first), key=_official_order):
        name = OFFICIAL.get(folder, folder)
        if not re.fullmatch(r"\w[\w.+-]*", name):
            raise UserError(f"the folder '{folder}' cannot name an edit", allowed="letters, digits and . + - _")
        if name in edits:
            raise UserError(f"the folders '{edits[name]}' and '{folder}' both contain the edit '{name}'")
        edits[name] = folder
    return edits


def _official_order(folder: str) -> tuple[int, str]:
    return (list(OFFICIAL).index(folder) if folder in OFFICIAL else len(OFFICIAL)), folder


def _by_edit_and_stem(release: Release, edits: dict[str, str]) -> dict[tuple[str, str], Piece]:
    """Return the pieces by edit and stem."""
    names = {folder: edit for edit, folder in edits.items()}
    found: dict[tuple[str, str], Piece] = {}
    for piece in release.pieces:
        key = names[piece.folder], piece.stem
        if key in found:
            raise UserError(f"{release.root} has more than one picture {piece.folder}/{piece.stem}")
        found[key] = piece
    return found


def _labels(release: Release, given: str | Path | None, space: LabelSpace) -> dict[str, int]:
    """Return class indices by stem, from the given file, the dataset's own labels file, or its shards."""
    if given is not None:
        return read_labels(Path(given).expanduser(), space)
    for name in LABEL_FILES:
        if (release.root / name).is_file():
            return read_labels(release.root / name, space)
    if release.labels:
        return {stem: space.index(label) for stem, label in release.labels.items()}
    raise UserError(f"{release.root} has no {LABEL_FILES[0]}", run="unswayed import PATH -o BENCH --labels FILE")


def _label(labels: dict[str, int], stem: str) -> int | None:
    return labels.get(stem, labels.get(stem.rpartition("/")[2]))


def _controls(edits: dict[str, str]) -> dict[str, Row]:
    """Return for every edit the row that its pictures share: its attribute, and its control if the dataset has it."""
    known = named_items()
    rows = {}
    for edit, folder in edits.items():
        item = known.get(edit)
        row = Row("", edit, parameters={"folder": folder})
        if item is not None:
            level = f"{item.level:g}" if isinstance(item.level, float) else item.level
            control = item.control if item.control in edits else None
            row = replace(row, attribute=item.attribute, level=level, control=control)
        rows[edit] = row
    return rows


def _card(
    release: Release, edits: dict[str, str], ids: dict[str, str], space: LabelSpace, copy: bool
) -> dict[str, Any]:
    return {
        "format": 1,
        "kind": "import",
        "source": {
            "spec": str(release.root.resolve()),
            "scenes": len(ids),
            "ids_sha256": ids_hash(tuple(ids.values())),
        },
        "recipe": {"name": "imported", "edits": [edit_entry(edit, row) for edit, row in _controls(edits).items()]},
        "renderer": {"renderer": "imported", "copied": copy},
        "labels": space.to_json(),
        "versions": versions(),
    }
