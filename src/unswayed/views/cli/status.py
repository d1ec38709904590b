"""`unswayed status`: how a build, an evaluation or another long command stands."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from unswayed.benchmark.rows import CARD
from unswayed.choices import option
from unswayed.errors import UserError
from unswayed.files.storage import address
from unswayed.jobs.monitor import EVERY, heartbeats

from .options import Json, gave_json, print_rows
from .progress import wrapped


def status(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of a benchmark, of predictions or of other results.")
    ],
    watch: bool = option(False, "Repeat every few seconds while a run is alive."),
    as_json: Json = None,
) -> None:
    """
    - `unswayed status bench`
    - `unswayed status predictions --watch`

    For every run that writes into the folder: what is done, the rate, the time left, failures, and which workers do
    nothing and why. A run that has not been heard of for a minute is said to be stale. Also what is there: scenes of
    a benchmark, the finished, failed and unfinished models of an evaluation, or masks.

    This command changes nothing. Exit codes: 0 done, 2 DIR does not exist or holds nothing of unswayed.
    """
    while True:
        state = _status(folder)
        if not gave_json(as_json, state):
            _print(folder, state)
        sys.stdout.flush()
        if not watch or not any(run["alive"] for run in state["runs"]):
            return
        time.sleep(EVERY)


def _status(folder: Path) -> dict[str, Any]:
    """What is known about the folder, as JSON."""
    beats = heartbeats(folder)
    runs = [{**beat.content, "alive": beat.alive, "seconds_ago": round(beat.seconds_ago, 1)} for beat in beats]
    if (folder / CARD).is_file():
        from unswayed.benchmark.plan import standing

        return {**standing(folder).to_json(), "runs": runs}
    from unswayed.evaluation.predictions import model_standings
    from unswayed.masks.confidence import confidence_rows
    from unswayed.scene import LOOK_BELOW

    models = [asdict(model) for model in model_standings(folder)]
    confidences = [row["confidence"] for row in confidence_rows(folder).values()]
    if not folder.is_dir() or not (models or beats or confidences or any(folder.glob("*/*.parquet"))):
        raise UserError(
            f"{address(folder)} is not a folder of a benchmark, of predictions or of other results",
            allowed="a folder that a command of unswayed writes to",
        )
    state: dict[str, Any] = {"root": address(folder), "models": models, "runs": runs}
    if confidences:
        doubtful = sum(confidence < LOOK_BELOW for confidence in confidences)
        state["masks"] = {"made": len(confidences), "doubtful": doubtful}
    return state


def _print(folder: Path, state: dict[str, Any]) -> None:
    if "recipe" in state:
        phase = "running" if state["running"] else "finished" if state["finished"] else "stopped"
        resume = ": run the same build command to resume" if phase == "stopped" else ""
        rows = ", ".join(f"{number} {name}" for name, number in state["counts"].items())
        line = f"{address(folder)}: {state['kind']} of {state['recipe'].replace(',', ', ')}, {phase}{resume}"
        print("\n".join(wrapped(line)))
        print(f"{state['done']} of {state['total']} scenes, {rows}")
        if state["pace"] is not None and state["left"] is not None:
            print(f"{state['pace']:.3g} scenes/s, about {state['left'] / 60:.0f} min left")
    else:
        what = f": {len(state['models'])} models" if state["models"] else ""
        if "masks" in state:
            what += ": {made} masks, of which {doubtful} should be looked at".format(**state["masks"])
        print(f"{address(folder)}{what}")
        if state["models"]:
            print_rows(tuple(state["models"][0]), [tuple(model.values()) for model in state["models"]])
    for run in state["runs"]:
        process = f"{run.get('command')} on {run.get('machine')} (process {run.get('process')})"
        if not run["alive"]:
            print(f"{process}: stale, not heard of for {run['seconds_ago']:.0f} s; run the same command to resume")
            continue
        rate = f", {run['rate']:.3g} {run.get('unit')}/s" if run.get("rate") else ""
        left = f", about {run['left'] / 60:.0f} min left" if run.get("left") else ""
        print(f"{process}: {run.get('done')} of {run.get('total')} {run.get('unit')}{rate}{left}")
        for remark in run.get("remarks") or []:
            print(f"  {remark}")
