"""A benchmark as image folders, one for each edit, that torchvision's ImageFolder and timm read.

FOLDER/size-0.05/n02510455/panda.png    an edit, a class, a picture
FOLDER/class_map.txt                    the class folders in the order of the labels, for timm's --class-map
FOLDER/classes.csv                      index, folder and name of each class
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from unswayed.benchmark.folder import Benchmark
from unswayed.benchmark.rows import OK
from unswayed.errors import UserError
from unswayed.files.text_tables import csv_text
from unswayed.files.whole import MOST_PICTURE, make_folder, read_file, write_bytes
from unswayed.labels import LabelSpace

from .exported import Exported, Show


def write_imagefolder(benchmark: Benchmark, folder: Path, show: Show) -> Exported:
    """Copy every labeled picture to FOLDER/edit/class/; class folders sort in the order of the labels."""
    rows = [row for row in benchmark.manifest.to_pylist() if row["status"] == OK]
    labeled = [row for row in rows if row["label"] is not None]
    if not labeled:
        raise UserError(f"{benchmark.root} contains no labeled pictures, so there are no class folders to put them in")
    names = class_folders(benchmark.labels)
    for done, row in enumerate(labeled, start=1):
        place = make_folder(folder / row["edit"] / names[row["label"]])
        write_bytes(place / Path(row["path"]).name, read_file(benchmark.root / row["path"], MOST_PICTURE))
        show(done, len(labeled))
    write_bytes(folder / "class_map.txt", "".join(f"{name}\n" for name in names).encode())
    classes = pl.DataFrame({"index": range(len(names)), "folder": names, "name": benchmark.labels.classes})
    write_bytes(folder / "classes.csv", csv_text(classes).encode())
    return Exported(str(folder), len(labeled), len(rows) - len(labeled))


def class_folders(labels: LabelSpace) -> list[str]:
    """The name of each class's folder: its WNID, whose order is that of the labels, or its index.

    >>> class_folders(LabelSpace("own", ("cat", "dog")))
    ['0', '1']
    """
    if labels.wnids:
        return list(labels.wnids)
    width = len(str(len(labels) - 1))
    return [f"{index:0{width}}" for index in range(len(labels))]
