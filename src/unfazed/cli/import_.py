"""`unfazed import`: a published set as a benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def import_(
    path: Annotated[Path, typer.Argument(help="The set: a folder of folders, a folder of tar shards, or one shard.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="BENCH", help="The benchmark's folder.")],
    labels: Annotated[
        Path | None, typer.Option(help="Lines `name<TAB>class` [default: labels.txt in the set, or its shards].")
    ] = None,
    classes: Annotated[
        Path | None, typer.Option(help="A text file, one class name a line, where they are not ImageNet's.")
    ] = None,
    original: Annotated[
        str | None, typer.Option(help="The folder of the unedited pictures [default: `ori` or `original`].")
    ] = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copy the pictures; else they are linked.")] = False,
    workers: Annotated[int, typer.Option(help="Threads that read and hash.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print what came of it as JSON.")] = False,
) -> None:
    """Import the official ImageNet-E release, or any folder-an-edit with a labels file, as a benchmark.

    - `unfazed import ImageNet-E -o bench`
    - `unfazed import shards/ -o bench`
    - `unfazed import myset -o bench --original clean --labels labels.csv --copy`

    The release's folders get our names (`ori` is `original`, `20_smooth` is `background-simple`, `005` is
    `size-0.05`, `rd` is `direction`); other folders keep theirs. A label is an index, a WNID or a class name.

    Exit codes: 0 done, 2 the command was wrong, 4 done but some pictures have no label or are no pictures.
    """
    import json
    from dataclasses import asdict

    from unfazed.benchmark import import_benchmark
    from unfazed.cli import EXIT_WITH_FAILURES

    from .progress import progress_line

    with progress_line("import", "pictures") as show:
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
