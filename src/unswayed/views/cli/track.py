"""`--track` of several commands: where the results are also recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="mlflow|wandb|none",
        help="Also record the results there; may be repeated [default: by MLFLOW_TRACKING_URI and WANDB_PROJECT].",
    ),
]


def open_trackers(track: Sequence[str] | None) -> Mapping[str, Any]:
    """The trackers that `--track` or the environment names; a wrong name is refused before the work begins."""
    from unswayed.views.tracking.tracker import chosen_trackers

    return chosen_trackers(track or (), _say)


def record_results(
    predictions: Path, trackers: Mapping[str, Any], models: Sequence[str] | None = None, report: Path | None = None
) -> None:
    """Record the results of a folder of predictions; failures are printed."""
    if trackers:
        from unswayed.views.tracking import record

        for name, runs in record(predictions, trackers, models=models, report=report, say=_say).items():
            _say(f"{name}: {runs} run{'s' * (runs != 1)} recorded")


def _say(line: str) -> None:
    typer.echo(line, err=True)
