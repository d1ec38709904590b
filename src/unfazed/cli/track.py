"""`--track` of several commands: where the results are also recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="mlflow|wandb|none",
        help="Also record the results there; may be repeated [default: by MLFLOW_TRACKING_URI and WANDB_PROJECT].",
    ),
]


def record_results(
    predictions: Path, track: Sequence[str] | None, models: Sequence[str] | None = None, report: Path | None = None
) -> None:
    """Record the results of a folder of predictions where `--track` or the environment says; failures are printed."""
    from unfazed.tracking.tracker import chosen_trackers

    def say(line: str) -> None:
        typer.echo(line, err=True)

    trackers = chosen_trackers(track or (), say)
    if trackers:
        from unfazed.tracking import record

        for name, runs in record(predictions, trackers, models=models, report=report, say=say).items():
            say(f"{name}: {runs} run{'s' * (runs != 1)} recorded")
