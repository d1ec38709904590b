"""`unswayed import`: import a published dataset as a benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def import_(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH|hf:REPO",
            help="An archive (.zip, .tar, .tar.gz), a folder with the edits at any depth or of tar shards, an exported "
            "folder, or a repository on the Hub.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="BENCH", help="The benchmark's folder.")],
    labels: Annotated[
        Path | None, typer.Option(help="Lines of `name<TAB>class` [default: labels.txt in the dataset, or its shards].")
    ] = None,
    classes: Annotated[
        Path | None, typer.Option(help="A text file with one class name per line, if the classes are not ImageNet's.")
    ] = None,
    original: Annotated[
        str | None, typer.Option(help="The folder of unedited pictures [default: `ori` or `original`].")
    ] = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copy the pictures instead of linking to them.")] = False,
    workers: Annotated[int, typer.Option(help="Number of threads that read and hash files.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Import the official ImageNet-E release, any dataset with one folder per edit, or a benchmark that was exported.

    - `unswayed import ImageNet-E.zip -o bench`
    - `unswayed import ImageNet-E -o bench`
    - `unswayed import hf:OWNER/NAME -o bench`
    - `unswayed import shards/ -o bench`
    - `unswayed import myset -o bench --original clean --labels labels.csv --copy`

    The folders of the release get the names that `unswayed build` uses (`ori` becomes `original`, `20_smooth`
    `background-simple`, `005` `size-0.05`, `rd` `direction`); other folders keep their names. A label is an index, a
    WNID or a class name. What `unswayed export --to datasets` wrote, in a folder or on the Hugging Face Hub
    (`hf:OWNER/NAME`, `hf:OWNER/NAME@REVISION`), becomes the same benchmark again and needs no options.

    Exit codes: 0 done, 2 wrong command, 4 done but some pictures have no label or cannot be read.
    """
    import json
    from dataclasses import asdict

    from unswayed.benchmark import import_benchmark
    from unswayed.benchmark.datasets_folder import import_published, is_published
    from unswayed.errors import UserError

    from . import EXIT_WITH_FAILURES
    from .progress import progress_line

    published = is_published(path)
    if published and (labels or classes or original):
        raise UserError("an exported benchmark has its labels: --labels, --classes and --original do not apply")
    with progress_line("import", "pictures") as show:
        if published:
            imported = import_published(path, output, progress=lambda done, total: show(done, total, ""))
        else:
            imported = import_benchmark(
                path,
                output,
                labels=labels,
                classes=classes,
                original=original,
                copy=copy,
                workers=workers,
                report=lambda done, total: show(done, total, ""),
            )
    if as_json:
        print(json.dumps({**asdict(imported), "root": str(imported.root)}, ensure_ascii=False))
    else:
        rows = ", ".join(f"{number} {status}" for status, number in imported.counts.items())
        print(f"{imported.root}: {imported.sources} photographs, {len(imported.edits)} edits, {rows}")
        for sample_id, reason in list(imported.failures.items())[:20]:
            typer.echo(f"failed: {sample_id}: {reason}", err=True)
    if imported.failures:
        raise typer.Exit(EXIT_WITH_FAILURES)
