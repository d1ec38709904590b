"""`unfazed verify`: is a benchmark what its manifest says?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def verify(
    benchmark: Annotated[Path, typer.Argument(metavar="BENCH", help="A built or imported benchmark.")],
    workers: Annotated[int, typer.Option(help="Threads that read and hash.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Check a benchmark: every row has its file, every hash matches, every requested value is met.

    - `unfazed verify bench`
    - `unfazed verify bench --json | jq '.problems[].where'`

    The pixel rate is measured on the written mask and must lie within 0.002 of the one requested. Skipped rows are
    planned and fine; failed rows are problems.

    Exit codes: 0 all is well, 1 there are problems (each on a line), 2 this is no benchmark.
    """
    import json

    from unfazed.benchmark import verify as verify_benchmark
    from unfazed.cli import EXIT_FAILED

    from .progress import progress_line

    with progress_line("verify", "rows") as show:
        verdict = verify_benchmark(benchmark, workers, report=lambda done, total: show(done, total, ""))
    if as_json:
        print(json.dumps(verdict.to_json(), ensure_ascii=False))
    else:
        for problem in verdict.problems:
            print(problem)
        found = f"{len(verdict.problems)} problems" if verdict.problems else "all is well"
        print(f"{benchmark}: {verdict.rows} rows, {verdict.files} files: {found}")
    if not verdict.passed:
        raise typer.Exit(EXIT_FAILED)
