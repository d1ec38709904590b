"""Commands for networks and long runs: `weights` lists, fetches and checks files, `train-network` trains, and `status`
prints how a long command stands.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from unswayed.benchmark.rows import CARD
from unswayed.choices import Option, option
from unswayed.errors import UserError, check_known, need, printable
from unswayed.files import downloads
from unswayed.files.storage import address
from unswayed.files.whole import Json as JsonObject
from unswayed.jobs.monitor import EVERY, heartbeats
from unswayed.rendering.training import Recipe, TrainingSettings
from unswayed.views.text import plural

from . import EXIT_FAILED
from .options import OUTPUT, Json, gave_json, print_rows
from .progress import progress_line, say, stoppable, wrapped


def weights(
    action: Annotated[str, typer.Argument(help="`list`, `fetch NAME` or `check FILE`.")] = "list",
    name: Annotated[str | None, typer.Argument(help="A name or kind from the list, or a file to check.")] = None,
    url: str | None = option(None, "Download from this mirror instead."),
    sha256: str | None = option(None, "The expected hash, if the list has none."),
    as_json: Json = None,
) -> None:
    """
    The list shows sizes and whether each file has been downloaded; with `--json` also addresses, licenses and SHA-256
    hashes.

    - `unswayed weights`
    - `unswayed weights fetch 256x256_diffusion_uncond`
    - `unswayed weights fetch masks`
    - `unswayed weights list diffusers:OWNER/NAME`
    - `unswayed weights fetch diffusers:OWNER/NAME`
    - `unswayed weights check downloads/256x256_diffusion_uncond.pt`
    - `unswayed build sample -o bench --network 256x256_diffusion_uncond`

    An interrupted download resumes. Files are stored in ~/.cache/unswayed, or in $UNSWAYED_CACHE. The network `compact`
    comes with the package and needs no download. `diffusers:OWNER/NAME` is a pipeline of the Hugging Face Hub: its
    size, its license and whether it is gated are said before anything is downloaded.

    Exit codes: 0 done, 1 a checked file does not match its hash, 2 wrong command or the download failed.
    """
    if name is not None and name.startswith("diffusers:") and action in ("list", "fetch"):
        _pipeline(name.removeprefix("diffusers:"), action == "fetch", as_json)
        return
    if action == "list":
        rows = downloads.listing()
        if gave_json(as_json, rows):
            return
        facts = [
            (row["name"], row["size"] and round(row["size"] / 1e6), f"{row['kind']}: {row['summary']}; {_state(row)}")
            for row in rows
        ]
        print_rows(("name", "MB", "what it is"), facts)
        say("addresses, licenses and hashes: unswayed weights --json", "check a file: unswayed weights check FILE")
        return
    check_known("action", [action], ["list", "fetch", "check"])
    if name is None:
        what = "a name from the list" if action == "fetch" else "the path of a weight file"
        raise UserError(f"`unswayed weights {action}` needs {what}", run="unswayed weights")
    if action == "fetch":
        # A kind of which every file has a known hash can be fetched as a whole.
        of_kind = [file for file, known in downloads.KNOWN.items() if known.kind == name]
        for file in of_kind if name in ("masks", "measure") else [name]:
            with progress_line(file, "MB") as show:
                path = downloads.fetch(
                    file, url=url, expected=sha256, progress=lambda done, size: show(done >> 20, (size or 0) >> 20)
                )
            checked = (downloads.find(file).sha256 or sha256) is not None
            if not checked:
                say(f"no SHA-256 of {file} is published: that of its first use is kept in {path}.sha256 and checked")
            if not gave_json(as_json, {"path": str(path), "checked": checked}):
                print(path)
        return
    digest, known = downloads.verify(name)
    right = known is not None if sha256 is None else digest == sha256.lower()
    if not gave_json(as_json, {"sha256": digest, "name": known, "right": right}):
        print(f"{digest} {known or 'unknown file'}")
    if not right:
        raise typer.Exit(EXIT_FAILED)


def _pipeline(name: str, fetched: bool, as_json: Path | None) -> None:
    """Say what a pipeline of the Hub takes, and download it if it is to be fetched."""
    from unswayed.rendering.editors.folders import download, hub_facts

    need("editors", "huggingface_hub")
    facts = hub_facts(name)
    terms = "gated: its publisher asks for an agreement" if facts["gated"] else "not gated"
    text = f"{name}: {facts['bytes'] / 1e9:.2f} GB, license {facts['license'] or 'not stated'}, {terms}"
    if fetched:
        say(text)
        text = str(download(name))
        facts["path"] = text
    if not gave_json(as_json, facts):
        print(text)


def _state(row: JsonObject) -> str:
    """What is known of a file on this computer; it is not read, so that nothing is said about its hash."""
    if row["url"] is None:
        return "comes with the package"
    if not row["here"]:
        return f"not here; opens as {row['model']} with ?checkpoint=FILE" if row["model"] else "not here"
    if row["size"] not in (None, row["size_here"]):
        return f"a different file: {row['size_here']:,} bytes instead of {row['size']:,}"
    return "here, not checked" if row["sha256"] else "here, held to its hash at the first use"


def train_network(
    photos: Annotated[list[Path], typer.Argument(help="Folders or tar files of photographs.")],
    output: Annotated[Path, Option("The folder for the network and the run's state.", flags=OUTPUT)],
    recipe: Recipe,
    settings: TrainingSettings,
) -> None:
    """
    Example: `unswayed train-network photos/ -o runs/network --minutes 15`, then
    `unswayed build sample -o B --network runs/network`.

    A photograph that looks like one of the sample scenes is refused. Each line of progress is one JSON record with
    the loss for each noise level and the loss on the held-out photographs. `sheet.png` shows reconstructions by the
    network.

    The state is saved every few minutes, and when Ctrl-C or SIGTERM stops the run.

    Exit codes: 0 done or the time is up, 2 wrong command or full disk, 130 stopped.
    """
    from unswayed.rendering.training.loop import train
    from unswayed.rendering.training.photos import write_sheet

    with stoppable():
        trainer = train(list(photos), output, recipe, settings)
        if len(trainer.held):
            write_sheet(trainer.folder, trainer.held)
    print(output)


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


def _status(folder: Path) -> JsonObject:
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
    state: dict[str, object] = {"root": address(folder), "models": models, "runs": runs}
    if confidences:
        doubtful = sum(confidence < LOOK_BELOW for confidence in confidences)
        state["masks"] = {"made": len(confidences), "doubtful": doubtful}
    return state


def _print(folder: Path, state: JsonObject) -> None:
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
        what = f": {plural(len(state['models']), 'model')}" if state["models"] else ""
        if "masks" in state:
            what += ": {made} masks, of which {doubtful} should be looked at".format(**state["masks"])
        print(f"{address(folder)}{what}")
        if state["models"]:
            print_rows(tuple(state["models"][0]), [tuple(model.values()) for model in state["models"]])
    for run in state["runs"]:
        process = printable(f"{run.get('command')} on {run.get('machine')} (process {run.get('process')})")
        if not run["alive"]:
            said = f"{process}: stale, not heard of for {run['seconds_ago']:.0f} s; run the same command to resume"
            print("\n".join(wrapped(said)))
            continue
        rate = f", {run['rate']:.3g}/s" if run.get("rate") else ""
        left = f", about {run['left'] / 60:.0f} min left" if run.get("left") else ""
        said = f"{process}: {run.get('done')} of {run.get('total')} {run.get('unit')}{rate}{left}"
        print("\n".join(wrapped(printable(said))))
        for remark in run.get("remarks") or []:
            print(printable(f"  {remark}"))
