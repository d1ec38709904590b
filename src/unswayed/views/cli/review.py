"""`unswayed review`: a page on which people rate edited pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def review(
    benchmark: Annotated[Path, typer.Argument(metavar="BENCH", help="A built or imported benchmark.")],
    rater: Annotated[str, typer.Option(help="Who rates; answers are kept by rater.")] = "me",
    blind: Annotated[bool, typer.Option("--blind", help="Show neither the edit's name nor the class.")] = False,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Another order for each rater.")] = False,
    edit: Annotated[list[str] | None, typer.Option("--edit", "-e", help="Only this edit; may be repeated.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only N pictures, the same for every rater.")] = None,
    seed: Annotated[int, typer.Option(help="Of the choice and of the order.")] = 0,
    port: Annotated[int, typer.Option(min=0, max=65535, help="[default: any free one]", show_default=False)] = 0,
    summary: Annotated[bool, typer.Option("--summary", help="Print what raters said so far and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --summary: as JSON.")] = False,
) -> None:
    """Rate edited pictures on a local page: valid, object unrecognizable, or artifact.

    - `unswayed review bench --rater ann`
    - `unswayed review bench --rater bob --blind --shuffle --limit 100`
    - `unswayed review bench --summary`

    The page shows original and edited picture side by side and is used by keyboard: 1, 2 and 3 answer. Every answer is
    saved at once to `BENCH/reviews.parquet`; the same command continues. It is served to this computer alone. The
    summary has the answers by edit and the agreement of raters (Cohen's kappa for two, Fleiss' for more).
    """
    import json
    import signal
    import time

    from unswayed.views.review.server import served
    from unswayed.views.review.session import open_session
    from unswayed.views.review.summary import summarize, summary_text

    if summary:
        found = summarize(benchmark)
        typer.echo(json.dumps(found, ensure_ascii=False) if as_json else summary_text(found), nl=as_json)
        return
    session = open_session(benchmark, rater, blind=blind, shuffle=shuffle, edits=edit, limit=limit, seed=seed)
    with served(session, port) as server:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        print(f"{len(session.items)} pictures for {session.rater} at {server.address} (Ctrl-C ends it)", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            typer.echo(f"ended; answers are in {session.root}; unswayed review {session.root} --summary", err=True)
