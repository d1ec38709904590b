"""`unswayed verify`: check a benchmark against its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def verify(
    benchmark: Annotated[Path, typer.Argument(metavar="BENCH", help="A built or imported benchmark.")],
    workers: Annotated[int, typer.Option(help="Number of threads that read and hash files.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Check a benchmark: every row has its file, every hash matches, every requested value is reached.

    - `unswayed verify bench`
    - `unswayed verify bench --json | jq '.problems[].where'`

    The pixel rate is measured on the written mask and must be within 0.002 of the requested one. Skipped rows are
    expected; failed rows are problems.

    Exit codes: 0 no problems, 1 there are problems (one per line), 2 BENCH is not a benchmark.
    """
    import json

    from unswayed.benchmark import verify as verify_benchmark
    from unswayed.files.storage import address

    from . import EXIT_FAILED
    from .progress import progress_line

    with progress_line("verify", "rows") as show:
        verdict = verify_benchmark(benchmark, workers, report=lambda done, total: show(done, total, ""))
    if as_json:
        print(json.dumps(verdict.to_json(), ensure_ascii=False))
    else:
        for problem in verdict.problems:
            print(problem)
        found = f"{len(verdict.problems)} problems" if verdict.problems else "no problems"
        print(f"{address(benchmark)}: {verdict.rows} rows, {verdict.files} files: {found}")
    if not verdict.passed:
        raise typer.Exit(EXIT_FAILED)
