"""`export_benchmark`: a benchmark in the format of another library."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from unswayed.benchmark.folder import Benchmark
from unswayed.choices import check_choice
from unswayed.errors import UserError
from unswayed.files.storage import fetch_pictures, local_copy

from .exported import Exported, Show

Format = Literal["datasets", "imagefolder", "fiftyone"]


def export_benchmark(
    benchmark: str | Path | Benchmark,
    to: Format,
    output: str | Path,
    *,
    predictions: str | Path | None = None,
    overwrite: bool = False,
    progress: Show | None = None,
) -> Exported:
    """Write a benchmark as `datasets` (a folder that `datasets.load_dataset` opens), `imagefolder` or `fiftyone`.

    output: a new or empty folder; for FiftyOne the name of the dataset. predictions: also shown in FiftyOne, with the
    flips as a saved view. overwrite: replace a FiftyOne dataset of that name. progress: called with pictures done and
    in all.
    """
    check_choice("format", to, Format)
    opened = benchmark if isinstance(benchmark, Benchmark) else Benchmark(benchmark)
    fetch_pictures(opened.root)
    show = progress or (lambda done, total: None)
    if to == "fiftyone":
        from .fiftyone_dataset import write_fiftyone

        return write_fiftyone(opened, str(output), predictions, overwrite, show)
    if predictions is not None or overwrite:
        raise UserError("--predictions and --overwrite belong to --to fiftyone")
    folder = local_copy(output).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} already exists and is not empty", allowed="a new or empty folder")
    if to == "datasets":
        from .datasets_folder import write_datasets

        return write_datasets(opened, folder, show)
    from .imagefolder import write_imagefolder

    return write_imagefolder(opened, folder, show)
