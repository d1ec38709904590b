"""Reading a published dataset with one folder per edit: its pictures, in folders or tar shards, and its labels.

`OFFICIAL` maps the folder names of the official ImageNet-E release to the edits of this package.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from unfazed.errors import UserError
from unfazed.labels import LabelSpace
from unfazed.sources.labeled import label_lines
from unfazed.sources.pictures import SUFFIXES

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

LABEL_FILES = ("labels.txt", "labels.csv", "labels.tsv")
_LABEL_MEMBERS = ("cls", "cls.txt", "label", "label.txt", "json")


@dataclass(frozen=True)
class Piece:
    """One picture: the edit's folder, the name that all edits of one photograph share, and where its bytes are."""

    folder: str
    stem: str
    suffix: str
    path: Path
    offset: int = 0
    length: int | None = None

    @property
    def in_shard(self) -> bool:
        return self.length is not None

    def read(self) -> bytes:
        if self.length is None:
            return self.path.read_bytes()
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            return file.read(self.length)


@dataclass(frozen=True)
class Release:
    """The pieces of a dataset, and the labels in its shards (by stem, as written)."""

    root: Path
    pieces: tuple[Piece, ...]
    labels: dict[str, str]


def open_release(path: Path) -> Release:
    """Open the dataset in a folder or its subfolder `ImageNet-E` (edits as folders or tar files) or in a tar file."""
    if not path.exists():
        raise UserError(f"{path} does not exist")
    if path.is_file():
        shards, root = [path], path.parent
    else:
        root = path / "ImageNet-E" if (path / "ImageNet-E").is_dir() else path
        shards = sorted(root.rglob("*.tar"))
    if shards:
        pieces, labels = _from_shards(root, shards)
    else:
        pieces, labels = list(_from_folders(root)), {}
    if not pieces:
        raise UserError(
            f"{path} contains neither pictures in folders named after edits nor tar shards",
            allowed=f"folders such as {', '.join(OFFICIAL)}, and labels.txt",
        )
    return Release(root, tuple(pieces), labels)


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
    for folder in sorted(one for one in root.iterdir() if one.is_dir() and not one.name.startswith(".")):
        for path in sorted(folder.rglob("*")):
            if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file():
                stem = without_suffix(path.relative_to(folder).as_posix())
                yield Piece(folder.name, stem, path.suffix.lower(), path)


def _from_shards(root: Path, shards: list[Path]) -> tuple[list[Piece], dict[str, str]]:
    """Return pieces and labels by WebDataset's convention: the part of a member's name before its first dot is the key.

    The edit is named by the member's folder (`005/KEY.png`), by its extension (`KEY.005.png`), or by the shard's own
    folder or name (`005/000000.tar`, `005-000000.tar`).
    """
    pieces: list[Piece] = []
    labels: dict[str, str] = {}
    for shard in shards:
        try:
            with tarfile.open(shard, "r:") as tar:
                for member in tar:
                    if member.isfile():
                        _take(root, shard, member, tar, pieces, labels)
        except (tarfile.TarError, OSError, EOFError) as error:
            raise UserError(f"{shard} is not a readable tar file: {error}", allowed="uncompressed tar shards") from None
    return pieces, labels


def _take(
    root: Path, shard: Path, member: tarfile.TarInfo, tar: tarfile.TarFile, pieces: list[Piece], labels: dict[str, str]
) -> None:
    name = PurePosixPath(member.name)
    key, _, extension = name.name.partition(".")
    if not key or name.name.startswith("."):
        return
    if name.suffix.lower() in SUFFIXES:
        inner = extension[: -len(name.suffix)]
        folder = inner or (name.parent.name if name.parent.name else _shard_edit(root, shard))
        pieces.append(Piece(folder, key, name.suffix.lower(), shard, member.offset_data, member.size))
        return
    content = tar.extractfile(member)
    if content is None or member.size > 50_000_000:
        return
    if name.name in LABEL_FILES:
        lines = content.read().decode("utf-8", "replace").splitlines()
        for _, given, label in label_lines(Path(member.name), lines):
            labels[PurePosixPath(without_suffix(given)).name] = label
    elif extension.lower() in _LABEL_MEMBERS:
        found = _member_label(extension.lower(), content.read())
        if found is not None:
            labels.setdefault(key, found)


def _member_label(extension: str, data: bytes) -> str | None:
    text = data.decode("utf-8", "replace").strip()
    if extension != "json":
        return text or None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    found = [value[name] for name in ("label", "cls", "class") if isinstance(value, dict) and name in value]
    return str(found[0]) if found else None


def _shard_edit(root: Path, shard: Path) -> str:
    if shard.stem in OFFICIAL:
        return shard.stem
    named = re.fullmatch(r"(.+?)[-_.]\d{2,}", shard.stem)
    if named is not None:
        return named.group(1)
    return shard.parent.name if shard.parent != root else shard.stem
