"""Importing a published dataset: the official ImageNet-E release, or any with one folder per edit and a labels file.

`OFFICIAL` maps the folder names of the official release to the edits of this package.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from unswayed.choices import takes
from unswayed.edits.recipes import Item, named_item
from unswayed.errors import UserError
from unswayed.files.archives import Archive, Member, open_archive
from unswayed.files.records import versions
from unswayed.files.storage import address_of
from unswayed.files.whole import MOST_PICTURE, explained, make_folder, parse_json, read_file, read_names, write_bytes
from unswayed.labels import LabelSpace, imagenet, own
from unswayed.sources.labeled import files_below, folders_below, label_lines, listed, pictures_below
from unswayed.sources.pictures import SUFFIXES, pixels_of
from unswayed.sources.source import unique_slugs

from .datasets_folder import ImportResult, import_published, is_published
from .plan import ids_hash, labels_hash, record_facts, settle_card
from .rows import FAILED, FORMAT, OK, ORIGINAL_EDIT, SKIPPED, Row, counts, picture_path, template_row, write_manifest
from .settings import ImportSettings

OFFICIAL = {
    "ori": "original",
    "rec": "inversion",
    "20_smooth": "background-simple",
    "20_hard": "background-complex",
    "20_adv": "background-adversarial",
    "random_bg": "background-random",
    "full": "size-full",
    "01": "size-0.1",
    "008": "size-0.08",
    "005": "size-0.05",
    "rp": "position",
    "rd": "direction",
}

ORIGINALS = "ori"
SHARDS = (".tar", ".tar.gz", ".tgz")
LARGEST_LABELS = 50_000_000  # bytes
LABEL_FILES = ("labels.txt", "labels.csv", "labels.tsv")
_LABEL_MEMBERS = ("cls", "cls.txt", "label", "label.txt", "json")


@dataclass(frozen=True)
class Piece:
    """One picture: the edit's folder, the name that all edits of one photograph share, what reads its bytes, and the
    path of its file if it has one of its own."""

    folder: str
    stem: str
    suffix: str
    read: Callable[[], bytes]
    path: Path | None = None


@dataclass(frozen=True)
class Release:
    """The pieces of a dataset, and the labels in its archives (by stem, as written); root: its folder or archive."""

    root: Path
    pieces: tuple[Piece, ...]
    labels: dict[str, str]


@contextlib.contextmanager
def open_release(path: Path) -> Iterator[Release]:
    """Open the dataset in a folder, at any depth below it, or in an archive; its edits are folders or tar files."""
    if not path.exists():
        raise UserError(f"{path} does not exist")
    with contextlib.ExitStack() as open_files:
        root = path if path.is_file() else _release_folder(path)
        shards = [path] if path.is_file() else [root / name for name in files_below(root, SHARDS)]
        labels: dict[str, str] = {}
        pieces = [
            Piece(
                folder.name,
                without_suffix(str(name)),
                name.suffix.lower(),
                functools.partial(read_file, folder / name, MOST_PICTURE),
                folder / name,
            )
            for folder in (() if shards else listed(root))
            if folder.is_dir() and not folder.name.startswith(".")
            for name in sorted(map(PurePosixPath, pictures_below(folder)))
        ]
        for archive in [open_files.enter_context(open_archive(shard)) for shard in shards]:
            for member in archive.members:
                _take(root, archive, member, pieces, labels)
        if not pieces:
            raise UserError(
                f"{path} contains neither pictures in folders named after edits nor tar shards",
                allowed=f"folders such as {', '.join(OFFICIAL)}, and labels.txt",
            )
        yield Release(path.parent if path.is_file() and not labels else root, tuple(pieces), labels)


def _release_folder(path: Path) -> Path:
    """The folder that holds the edits: `path`, or the only folder below it with one named `ori`."""
    if (path / ORIGINALS).is_dir():
        return path
    holders = sorted({path / folder.parent for folder, _ in folders_below(path) if folder.name == ORIGINALS})
    if len(holders) > 1:
        raise UserError(
            f"{path} contains {len(holders)} folders named {ORIGINALS}",
            allowed=f"one of {', '.join(map(str, holders))}",
        )
    return holders[0] if holders else path / "ImageNet-E" if (path / "ImageNet-E").is_dir() else path


def read_labels(path: Path, space: LabelSpace) -> dict[str, int]:
    """Return class indices by stem and by name, from lines `name<TAB or comma>class` (index, WNID or class name)."""
    labels: dict[str, int] = {}
    for number, name, label in label_lines(path):
        try:
            index = space.index(label)
        except UserError as error:
            raise UserError(f"{path}, line {number}: {error.given}", allowed=error.allowed) from None
        for key in {without_suffix(name), PurePosixPath(without_suffix(name)).name}:
            if labels.setdefault(key, index) != index and key == without_suffix(name):
                raise UserError(f"{path}, line {number}: '{key}' has the class {labels[key]} in an earlier line")
    if not labels:
        raise UserError(f"the labels file {path} is empty", allowed="lines of a file's name, a tab, its class")
    return labels


def without_suffix(name: str) -> str:
    """Return a picture's name without `.JPEG` and the like; other dots belong to the name."""
    return name[: -len(PurePosixPath(name).suffix)] if PurePosixPath(name).suffix.lower() in SUFFIXES else name


def _take(root: Path, archive: Archive, member: Member, pieces: list[Piece], labels: dict[str, str]) -> None:
    """Add a member to the pieces or labels by WebDataset's convention: a name's part before its first dot is the key.

    The edit is named by the member's folder (`005/KEY.png`), by its extension (`KEY.005.png`), or by the archive's own
    folder or name (`005/000000.tar`, `005-000000.tar`).
    """
    name = PurePosixPath(member.name)
    key, _, extension = name.name.partition(".")
    if not key or name.name.startswith(".") or "__MACOSX" in name.parts:
        return
    if name.suffix.lower() in SUFFIXES:
        inner = extension[: -len(name.suffix)]
        folder = inner or (name.parent.name if name.parent.name else _shard_edit(root, archive.path))
        pieces.append(Piece(folder, key, name.suffix.lower(), functools.partial(archive.read, member)))
    elif member.size > LARGEST_LABELS:
        return
    elif name.name in LABEL_FILES:
        lines = archive.read(member).decode("utf-8", "replace").splitlines()
        for _, name_there, label in label_lines(Path(member.name), lines):
            labels[PurePosixPath(without_suffix(name_there)).name] = label
    elif extension.lower() in _LABEL_MEMBERS:
        written = _member_label(extension.lower(), archive.read(member))
        if written is not None:
            labels.setdefault(key, written)


def _member_label(extension: str, data: bytes) -> str | None:
    text = data.decode("utf-8", "replace").strip()
    if extension != "json":
        return text or None
    try:
        value = parse_json(text, extension)
    except UserError:
        return None
    labels = [value[name] for name in ("label", "cls", "class") if isinstance(value, dict) and name in value]
    return str(labels[0]) if labels and isinstance(labels[0], str | int) else None


def _shard_edit(root: Path, shard: Path) -> str:
    if shard.stem in OFFICIAL:
        return shard.stem
    if named := re.fullmatch(r"(.+?)[-_.]\d{2,}", shard.stem):
        return named[1]
    return shard.parent.name if root.is_dir() and shard.parent != root else shard.stem


@takes(ImportSettings)
def import_benchmark(
    path: str | Path,
    output: str | Path,
    settings: ImportSettings,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> ImportResult:
    """Write a benchmark to `output` with the pictures of the dataset in `path`, or of what `export` wrote.

    path: an archive, a folder, or `hf:OWNER/NAME`. The fields of settings are also keywords; they do not apply to an
    exported benchmark. Pictures in archives are always copied. progress: called with the pictures done and in all.
    """
    classes, copy, root = settings.classes, settings.copy, Path(output).expanduser()
    if is_published(str(path)):
        if settings.labels or classes or settings.original:
            raise UserError("an exported benchmark has its labels: --labels, --classes and --original do not apply")
        return import_published(path, output, progress=progress)
    with open_release(Path(path).expanduser()) as release:
        space = imagenet() if classes is None else own(read_names(classes, "classes file"), name=Path(classes).stem)
        by_name = _labels(release, settings.labels, space)
        edits = _edits(release, settings.original)
        stems = sorted({piece.stem for piece in release.pieces})
        ids = dict(zip(stems, unique_slugs([f"{stem}.png" for stem in stems]), strict=True))
        names = {folder: edit for edit, folder in edits.items()}
        pieces: dict[tuple[str, str], Piece] = {}
        for piece in release.pieces:
            if pieces.setdefault((names[piece.folder], piece.stem), piece) is not piece:
                raise UserError(f"{release.root} has more than one picture {piece.folder}/{piece.stem}")
        make_folder(root)
        records = []
        for edit, folder in edits.items():
            item = named_item(edit) or Item(edit)
            about = {"name": edit, "parameters": {"folder": folder}, "attribute": item.attribute}
            level = f"{item.level:g}" if isinstance(item.level, float) else item.level
            records.append({**about, "level": level, "control": item.control if item.control in edits else None})
        shared = {record["name"]: template_row(record) for record in records}
        card = {
            "format": FORMAT,
            "kind": "import",
            "source": {"spec": str(release.root.resolve()), "scenes": len(ids), "ids_sha256": ids_hash(ids.values())},
            "recipe": {"name": "imported", "edits": records},
            "renderer": {"renderer": "imported", "copied": copy},
            "labels": space.to_json(),
            "versions": versions(),
        }
        settle_card(root, card)
        tasks = [(stem, edit) for stem in stems for edit in edits]

        def row_of(task: tuple[str, str]) -> Row:
            stem, edit = task
            label = by_name.get(stem, by_name.get(stem.rpartition("/")[2]))
            row = replace(shared[edit], source_id=ids[stem], label=label)
            return _placed(root, row, pieces.get((edit, stem)), edits[edit], stem, copy)

        rows: list[Row] = []
        with ThreadPoolExecutor(settings.workers) as pool:
            for row in pool.map(row_of, tasks):
                rows.append(row)
                if progress is not None:
                    progress(len(rows), len(tasks))
    write_manifest(root, rows)
    record_facts(root, labels_sha256=labels_hash((row.source_id, row.label) for row in rows))
    failures = {row.sample_id: str(row.reason) for row in rows if row.status == FAILED}
    return ImportResult(root, counts(row.status for row in rows), len(stems), tuple(edits), failures)


def _placed(root: Path, row: Row, piece: Piece | None, folder: str, stem: str, copy: bool) -> Row:
    """Put the picture into the benchmark and return its row; a missing or unreadable picture gets a reason."""
    if piece is None:
        return replace(row, status=SKIPPED, reason=f"the dataset has no picture of this photograph in {folder}")
    if row.label is None:
        return replace(row, status=FAILED, reason=f"the labels file has no line for {stem}")
    try:
        data = piece.read()
        pixels_of(data, f"{folder}/{stem}{piece.suffix}")
    except UserError as error:
        return replace(row, status=FAILED, reason=error.given)
    where = picture_path(row.edit, row.source_id, suffix=piece.suffix)
    if copy or piece.path is None or address_of(root) is not None:  # storage has no links
        write_bytes(root / where, data)
    else:
        _link(piece.path.resolve(), root / where)
    return replace(row, status=OK, path=where, sha256=hashlib.sha256(data).hexdigest())


def _link(target: Path, link: Path) -> None:
    """Create a symbolic link, or replace an older one, in one step."""
    with explained(link):
        link.parent.mkdir(parents=True, exist_ok=True)
        part = link.with_name(f".{link.name}.part")
        part.unlink(missing_ok=True)
        try:
            part.symlink_to(target)
        except (OSError, NotImplementedError) as error:
            raise UserError(
                f"a link cannot be created in {link.parent}: {error}", run="unswayed import … --copy"
            ) from None
        os.replace(part, link)


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
    order = {folder: number for number, folder in enumerate(OFFICIAL)}
    others = [folder for folder in folders if folder != first]
    for folder in sorted(others, key=lambda name: (order.get(name, len(order)), name)):
        name = OFFICIAL.get(folder, folder)
        if not re.fullmatch(r"\w[\w.+-]*", name):
            raise UserError(f"the folder '{folder}' cannot name an edit", allowed="letters, digits and . + - _")
        if name in edits:
            raise UserError(f"the folders '{edits[name]}' and '{folder}' both contain the edit '{name}'")
        edits[name] = folder
    return edits


def _labels(release: Release, file: str | Path | None, space: LabelSpace) -> dict[str, int]:
    """Return class indices by stem, from the given file, the dataset's own labels file, or its shards."""
    if file is not None:
        return read_labels(Path(file).expanduser(), space)
    for name in LABEL_FILES:
        if (release.root / name).is_file():
            return read_labels(release.root / name, space)
    if release.labels:
        return {stem: space.index(label) for stem, label in release.labels.items()}
    raise UserError(f"{release.root} has no {LABEL_FILES[0]}", run="unswayed import PATH -o BENCH --labels FILE")
