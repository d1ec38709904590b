"""Labels for the files of a folder: from its class folders or from a table, in ImageNet's label space or one's own."""

from __future__ import annotations

import csv
import difflib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NoReturn

from unswayed.errors import UserError, check_known, some
from unswayed.files.whole import read_lines
from unswayed.labels import LabelSpace, imagenet, nearly_equal, own

from .pictures import SUFFIXES
from .source import NO_LABELS

SPACES = ("auto", "imagenet-1k", "own")
_WNID = re.compile(r"n\d{8}")
_COLUMNS = ("file", "label", "mask")
MOST_FOLDERS = 1_000_000
MOST_PATHS = 1000  # that lead to one folder: with links that branch at every level, a few folders have endlessly many
_HEADINGS = ("file", "filename", "file_name", "image", "name", "path", "id")


@dataclass(frozen=True)
class Row:
    """One line of a table: the picture's name, its label as written, its mask's name; None if not given; where: the
    table and the line."""

    file: str
    label: str | None = None
    mask: str | None = None
    where: str = ""


def pictures_below(folder: Path) -> list[str]:
    """The sorted names, relative to `folder`, of all files below it with a picture's suffix, without hidden ones."""
    return files_below(folder, tuple(SUFFIXES))


def files_below(folder: Path, endings: tuple[str, ...]) -> list[str]:
    """The sorted names, relative to `folder`, of all files below it with one of these endings, without hidden ones."""
    return sorted(
        (relative / name).as_posix()
        for relative, files in folders_below(folder)
        for name in files
        if not name.startswith(".") and name.lower().endswith(endings)
    )


def folders_below(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """The folder and all below it that are not hidden: each relative to it, with the names of its files.

    Links to folders are followed, except back to a folder that contains them. A folder that cannot be listed is an
    error, because its files would be missing without a word; so is one that links lead to on very many paths.
    """
    above = {str(folder): frozenset((_identity(folder),))}
    visits = Counter[tuple[int, int]]()
    for root, folders, files in os.walk(folder, followlinks=True, onerror=_cannot_list):
        containing = above.pop(root)
        entered = {name: _identity(Path(root, name)) for name in folders if not name.startswith(".")}
        folders[:] = [name for name, identity in entered.items() if identity not in containing]
        above |= {os.path.join(root, name): containing | {entered[name]} for name in folders}
        visits.update(entered[name] for name in folders)
        for name in folders:
            if visits[entered[name]] > MOST_PATHS:
                raise UserError(f"links lead to the folder {os.path.join(root, name)} on more than {MOST_PATHS} paths")
        if len(visits) > MOST_FOLDERS:
            raise UserError(f"{folder} contains more than {MOST_FOLDERS:,} folders")
        yield Path(root).relative_to(folder), files


def listed(folder: Path) -> list[Path]:
    """What a folder contains, sorted; a folder that cannot be listed is an error."""
    try:
        return sorted(Path(entry) for entry in os.scandir(folder))
    except OSError as error:
        _cannot_list(error)


def _identity(folder: Path) -> tuple[int, int]:
    try:
        status = os.stat(folder)
    except OSError as error:
        _cannot_list(error)
    return status.st_dev, status.st_ino


def _cannot_list(error: OSError) -> NoReturn:
    raise UserError(f"the folder {error.filename} cannot be listed: {error.strerror}") from None


def within(root: Path, name: str) -> Path:
    """A path that the user gave: inside the source's folder if it exists there, else as written."""
    return root / name if (root / name).exists() else Path(name).expanduser()


def class_folder(name: str) -> str | None:
    """The first folder of a picture's name, which is its class; None for a picture at the root."""
    parts = PurePosixPath(name).parts
    return parts[0] if len(parts) > 1 else None


def read_table(path: Path) -> list[Row]:
    """The rows of a labels file.

    A CSV file with a header: columns `file` and, each optional, `label` and `mask`. Any other file: lines of a
    picture's name and its label, separated by a tab, a comma or the last space. A row with an empty label is refused.
    """
    if path.suffix.lower() == ".csv":
        rows = list(_with_header(path))
    else:
        rows = [Row(_posix(file), label, None, f"line {number} of {path}") for number, file, label in label_lines(path)]
    blank = [row for row in rows if row.label == ""]
    if blank:
        more = f", and {len(blank) - 1} more" * (len(blank) > 1)
        raise UserError(
            f"{blank[0].where} has no label: {blank[0].file}{more}",
            allowed="a label in every row; without labels, leave out the column `label`",
        )
    twice = next((name for name, count in Counter(row.file for row in rows).items() if count > 1), None)
    if twice is not None:
        raise UserError(f"{path} names {twice} more than once", allowed="one row per picture")
    return rows


FEW_NUMBERS = 20  # labels that only count up to here are more likely one's own than ImageNet's first classes


def label_space(labels: Iterable[str | None], space: str = "auto") -> LabelSpace:
    """The label space of labels as written.

    `auto`: ImageNet-1k where every label is a WNID, a class name or an index of it; else the sorted names.
    """
    names = sorted({label for label in labels if label is not None})
    names.sort(key=lambda name: int(name) if name.isdecimal() and len(name) < 19 else 10**19)
    if not names:
        return NO_LABELS
    if space == "own":
        return own(names)
    missing = [name for name in names if not _in_imagenet(name)]
    if not missing:
        return imagenet()
    if space == "imagenet-1k" or all(_WNID.fullmatch(name) for name in names):
        raise UserError(
            f"{len(missing)} of {len(names)} classes are not in ImageNet-1k: {some(missing)}",
            allowed="WNIDs, class names or indices of ImageNet-1k, or the option space=own",
        )
    return own(names)


def name_remarks(labels: LabelSpace, written: Iterable[str | None] = ()) -> tuple[str, ...]:
    """What may be wrong with the names of one's own classes: two that are nearly equal, or a few not in ImageNet.

    written: the labels as they stand in the data; a few small numbers may be one's own, but are read as ImageNet's.

    >>> name_remarks(imagenet(), ["0", "1"])[0].partition(";")[0]
    'the labels 0, 1 were read as indices of ImageNet-1k (tench, goldfish)'
    """
    numbers = sorted({int(label) for label in written if label is not None and label.isdecimal()})
    if labels == imagenet() and numbers and numbers[-1] < FEW_NUMBERS:
        read = ", ".join(labels.classes[number] for number in numbers)
        told = f"the labels {', '.join(map(str, numbers))} were read as indices of ImageNet-1k ({read})"
        return (f"{told}; for classes of your own: the option space=own",)
    if labels == imagenet() or not labels.classes:
        return ()
    remarks = [
        f"the classes '{name}' and '{other}' have nearly the same name: is one of them misspelled?"
        for name, other in nearly_equal(labels.classes)
    ]
    missing = [name for name in labels.classes if not _in_imagenet(name)]
    if 0 < len(missing) <= len(labels) / 5:
        near = difflib.get_close_matches(missing[0], imagenet().classes, n=1, cutoff=0.6)
        hint = f" (did you mean '{near[0]}'?)" if near else ""
        remarks.append(
            f"{len(labels) - len(missing)} of {len(labels)} classes are ImageNet's and {len(missing)} not, such as "
            f"'{missing[0]}'{hint}; so all of them count as classes of your own"
        )
    return tuple(remarks)


def label_lines(path: Path, lines: Iterable[str] | None = None) -> Iterator[tuple[int, str, str]]:
    """The number of each line, the picture's name and its label, apart by a tab, a comma or the last space.

    lines: those of the file, if they are not to be read from `path`. Empty lines, comments that begin with `#` and a
    first line of column names are left out.
    """
    for number, line in enumerate(read_lines(path, "labels file") if lines is None else lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        separator = next((sign for sign in ("\t", ",", " ") if sign in line.strip()), " ")
        name, _, label = (part.strip().strip('"') for part in line.strip().rpartition(separator))
        if not name:
            raise UserError(
                f"line {number} of {path} is '{line.strip()[:60]}'", allowed="a picture's name, then its label"
            )
        if number > 1 or name.lower() not in _HEADINGS:
            yield number, name, label


def _with_header(path: Path) -> Iterator[Row]:
    reader = csv.DictReader(read_lines(path, "labels file"), skipinitialspace=True)
    columns = [name.strip() for name in reader.fieldnames or ()]
    if "file" not in columns:
        raise UserError(f"{path} has the columns {', '.join(columns) or 'none'}", allowed=", ".join(_COLUMNS))
    check_known(f"column for {path.name}", columns, _COLUMNS)
    reader.fieldnames = columns
    try:
        for row in reader:
            values = {name: (row.get(name) or "").strip() for name in _COLUMNS}
            if values["file"]:
                label, where = values["label"] if "label" in columns else None, f"line {reader.line_num} of {path}"
                yield Row(_posix(values["file"]), label, _posix(values["mask"]) or None, where)
    except csv.Error as error:
        raise UserError(f"line {reader.line_num} of {path} is not CSV: {error}") from None


def _posix(name: str) -> str:
    return name.replace("\\", "/").removeprefix("./")


def _in_imagenet(name: str) -> bool:
    try:
        imagenet().index(name)
    except UserError:
        return False
    return True
