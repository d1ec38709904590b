"""Reading a published dataset with one folder per edit: its pictures, in folders or archives, and its labels.

`OFFICIAL` maps the folder names of the official ImageNet-E release to the edits of this package.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from unswayed.errors import UserError
from unswayed.files.archives import Archive, Member, open_archive
from unswayed.files.whole import MOST_PICTURE, parse_json, read_file
from unswayed.labels import LabelSpace
from unswayed.sources.labeled import files_below, folders_below, label_lines, listed, pictures_below
from unswayed.sources.pictures import SUFFIXES

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
    """One picture: the edit's folder, the name that all edits of one photograph share, and where its bytes are.

    path: of the picture, or of the archive that holds it as `member`.
    """

    folder: str
    stem: str
    suffix: str
    path: Path
    archive: Archive | None = None
    member: Member | None = None

    def read(self) -> bytes:
        if self.archive is None or self.member is None:
            return read_file(self.path, MOST_PICTURE)
        return self.archive.read(self.member)


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
        shards = [path] if path.is_file() else [root / one for one in files_below(root, SHARDS)]
        labels: dict[str, str] = {}
        if shards:
            pieces = _from_archives(root, [open_files.enter_context(open_archive(shard)) for shard in shards], labels)
        else:
            pieces = list(_from_folders(root))
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
    found = sorted({path / one.parent for one, _ in folders_below(path) if one.name == ORIGINALS})
    if len(found) > 1:
        raise UserError(
            f"{path} contains {len(found)} folders named {ORIGINALS}", allowed=f"one of {', '.join(map(str, found))}"
        )
    return found[0] if found else path / "ImageNet-E" if (path / "ImageNet-E").is_dir() else path


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


def _from_folders(root: Path) -> Iterator[Piece]:
    for folder in (one for one in listed(root) if one.is_dir() and not one.name.startswith(".")):
        for name in sorted(map(PurePosixPath, pictures_below(folder))):
            yield Piece(folder.name, without_suffix(str(name)), name.suffix.lower(), folder / name)


def _from_archives(root: Path, archives: Sequence[Archive], labels: dict[str, str]) -> list[Piece]:
    """Return the pieces, and add the labels, by WebDataset's convention: a name's part before its first dot is the key.

    The edit is named by the member's folder (`005/KEY.png`), by its extension (`KEY.005.png`), or by the archive's own
    folder or name (`005/000000.tar`, `005-000000.tar`).
    """
    pieces: list[Piece] = []
    for archive in archives:
        for member in archive.members:
            _take(root, archive, member, pieces, labels)
    return pieces


def _take(root: Path, archive: Archive, member: Member, pieces: list[Piece], labels: dict[str, str]) -> None:
    name = PurePosixPath(member.name)
    key, _, extension = name.name.partition(".")
    if not key or name.name.startswith(".") or "__MACOSX" in name.parts:
        return
    if name.suffix.lower() in SUFFIXES:
        inner = extension[: -len(name.suffix)]
        folder = inner or (name.parent.name if name.parent.name else _shard_edit(root, archive.path))
        pieces.append(Piece(folder, key, name.suffix.lower(), archive.path, archive, member))
    elif member.size > LARGEST_LABELS:
        return
    elif name.name in LABEL_FILES:
        lines = archive.read(member).decode("utf-8", "replace").splitlines()
        for _, given, label in label_lines(Path(member.name), lines):
            labels[PurePosixPath(without_suffix(given)).name] = label
    elif extension.lower() in _LABEL_MEMBERS:
        found = _member_label(extension.lower(), archive.read(member))
        if found is not None:
            labels.setdefault(key, found)


def _member_label(extension: str, data: bytes) -> str | None:
    text = data.decode("utf-8", "replace").strip()
    if extension != "json":
        return text or None
    try:
        value = parse_json(text, extension)
    except UserError:
        return None
    found = [value[name] for name in ("label", "cls", "class") if isinstance(value, dict) and name in value]
    return str(found[0]) if found and isinstance(found[0], str | int) else None


def _shard_edit(root: Path, shard: Path) -> str:
    if shard.stem in OFFICIAL:
        return shard.stem
    named = re.fullmatch(r"(.+?)[-_.]\d{2,}", shard.stem)
    if named is not None:
        return named.group(1)
    return shard.parent.name if root.is_dir() and shard.parent != root else shard.stem
