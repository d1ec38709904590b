"""`unfazed status`: print the progress of a build."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A benchmark's folder, finished or not.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Print the progress of a build: what is done, what failed, whether it is running, and the remaining time.

    - `unfazed status bench`

    - `watch -n 10 unfazed status bench`

    This command changes nothing. Exit codes: 0 done, 2 DIR is not a benchmark.
    """
    import json

    from unfazed.benchmark.status import standing
    from unfazed.storage import address

    now = standing(folder)
    if as_json:
        print(json.dumps(now.to_json(), ensure_ascii=False))
        return
    state = (
        "running" if now.running else "finished" if now.finished else "stopped: run the same build command to resume"
    )
    rows = ", ".join(f"{number} {name}" for name, number in now.counts.items())
    print(f"{address(now.root)}: {now.kind} of {now.recipe}, {state}")
    print(f"{now.done} of {now.total} scenes, {rows}")
    if now.pace is not None and now.left is not None:
        print(f"{now.pace:.3g} scenes/s, about {now.left / 60:.0f} min left")
