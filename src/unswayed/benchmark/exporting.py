"""`export`: a benchmark in the format of another library; each format is an exporter of the registry."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from unswayed.choices import takes
from unswayed.errors import UserError
from unswayed.files.whole import MOST_PICTURE, make_folder, read_file, write_bytes
from unswayed.registry import Part, Registry

from .settings import ExportSettings

if TYPE_CHECKING:
    from .folder import Benchmark

Show = Callable[[int, int], None]  # called with the pictures done and in all


@dataclass(frozen=True)
class ExportResult:
    """The folder or the name of the dataset, its pictures, and those without a label."""

    place: str
    pictures: int
    unlabeled: int = 0


class Exporter(Protocol):
    """Writes a benchmark in the format of another library.

    output: a new or empty folder, or the name of a dataset if `facts` of its declaration has `named=True`. options:
    those of `predictions` and `overwrite` that `facts` lists as `options=(…)`, and that the user has set.
    """

    def __call__(self, benchmark: Benchmark, output: object, show: Show, **options: object) -> ExportResult: ...


# The formats of `unswayed export --to`. facts: `options` of the command that apply; `named`: the output is a name, no
# folder; `hub`: the folder can be uploaded to the Hugging Face Hub.
EXPORTERS: Registry[Exporter] = Registry(
    "exporter",
    {
        "datasets": Part(
            "unswayed.benchmark.datasets_folder:write_datasets",
            "a folder with a dataset card that `datasets.load_dataset` opens; `unswayed import` reads it back with the "
            "same pictures, hashes and credits",
            facts={"hub": True},
        ),
        "imagefolder": Part(
            "unswayed.benchmark.exporting:write_imagefolder", "FOLDER/edit/class/picture for torchvision and timm"
        ),
        "fiftyone": Part(
            "unswayed.evaluation.fiftyone_dataset:write_fiftyone",
            "one group per photograph, with masks, predictions and the flips as a saved view",
            needs=("fiftyone",),
            extra="fiftyone",
            facts={"named": True, "options": ("predictions", "overwrite")},
        ),
    },
)


@takes(ExportSettings)
def export(
    benchmark: str | Path | Benchmark,
    to: str,
    output: str | Path,
    settings: ExportSettings,
    *,
    progress: Show | None = None,
) -> ExportResult:
    """Write a benchmark as `datasets` (a folder that `datasets.load_dataset` opens), `imagefolder` or `fiftyone`.

    to: also the name of an exporter of another installed package. output: a new or empty folder; for FiftyOne the name
    of the dataset. The fields of settings are also keywords. progress: called with pictures done and in all.
    """
    from unswayed.files.storage import fetch_pictures, local_copy

    from .folder import Benchmark, plan_problems
    from .rows import read_manifest

    write = EXPORTERS.load(to)
    options = {name: value for name, value in vars(settings).items() if value}
    if wrong := [name for name in options if name not in EXPORTERS.part(to).facts.get("options", ())]:
        having = [name for name in EXPORTERS if wrong[0] in EXPORTERS.part(name).facts.get("options", ())]
        raise UserError(f"--{wrong[0]} does not apply to --to {to}", allowed=f"--to {' or '.join(having)}")
    opened = benchmark if isinstance(benchmark, Benchmark) else Benchmark(benchmark)
    fetch_pictures(opened.root)
    if problems := plan_problems(opened, read_manifest(opened.root).to_pylist()):
        raise UserError(f"{opened.root} is not as it was built: {problems[0]}", run=f"unswayed verify {opened.root}")
    show = progress or (lambda done, total: None)
    if EXPORTERS.part(to).facts.get("named"):
        return write(opened, str(output), show, **options)
    folder = local_copy(output).expanduser()
    check_empty(folder)
    return write(opened, folder, show, **options)


def check_empty(folder: Path) -> None:
    """Refuse a path at which there is anything but an empty folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} already exists and is not empty", allowed="a new or empty folder")


def read_unchanged(root: Path, path: str, digest: str | None) -> bytes:
    """The bytes of a picture or mask; UserError if they are not those that the manifest has the SHA-256 of."""
    data = read_file(root / path, MOST_PICTURE)
    if digest and hashlib.sha256(data).hexdigest() != digest:
        raise UserError(f"{root / path} has changed since it was built", run=f"unswayed verify {root}")
    return data


def write_imagefolder(benchmark: Benchmark, folder: Path, show: Show) -> ExportResult:
    """Copy every labeled picture to FOLDER/edit/class/, which torchvision's ImageFolder and timm read.

    Class folders are WNIDs or indices, which sort in the order of the labels. `class_map.txt` lists them for timm's
    --class-map, and `classes.csv` has the index, the folder and the name of each class.
    """
    import polars as pl

    from unswayed.files.text_tables import csv_text

    from .rows import OK

    rows = [row for row in benchmark.manifest.to_pylist() if row["status"] == OK]
    labeled = [row for row in rows if row["label"] is not None]
    if not labeled:
        raise UserError(f"{benchmark.root} contains no labeled pictures, so there are no class folders to put them in")
    width = len(str(len(benchmark.labels) - 1))
    names = list(benchmark.labels.wnids or (f"{index:0{width}}" for index in range(len(benchmark.labels))))
    for done, row in enumerate(labeled, start=1):
        target = make_folder(folder / row["edit"] / names[row["label"]])
        write_bytes(target / Path(row["path"]).name, read_unchanged(benchmark.root, row["path"], row.get("sha256")))
        show(done, len(labeled))
    write_bytes(folder / "class_map.txt", "".join(f"{name}\n" for name in names).encode())
    classes = pl.DataFrame({"index": range(len(names)), "folder": names, "name": benchmark.labels.classes})
    write_bytes(folder / "classes.csv", csv_text(classes).encode())
    return ExportResult(str(folder), len(labeled), len(rows) - len(labeled))
