"""The commands for diffusion networks: `unswayed weights` lists, fetches and checks files, `train-network` trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from unswayed.errors import UserError, unknown
from unswayed.files import downloads
from unswayed.rendering.training import Recipe

from . import EXIT_FAILED
from .options import Device
from .progress import progress_line, say, stoppable


def weights(
    action: Annotated[str, typer.Argument(help="`list`, `fetch NAME` or `check FILE`.")] = "list",
    name: Annotated[str | None, typer.Argument(help="A name or kind from the list, or a file to check.")] = None,
    url: Annotated[str | None, typer.Option(help="Download from this mirror instead.")] = None,
    sha256: Annotated[str | None, typer.Option(help="The expected hash, if the list has none.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """
    The list shows sizes, SHA-256 hashes and whether each file has been downloaded.

    - `unswayed weights`
    - `unswayed weights fetch 256x256_diffusion_uncond`
    - `unswayed weights fetch masks`
    - `unswayed weights check downloads/256x256_diffusion_uncond.pt`
    - `unswayed build sample -o bench --network 256x256_diffusion_uncond`

    An interrupted download resumes. Files are stored in ~/.cache/unswayed, or in $UNSWAYED_CACHE. The network `compact`
    comes with the package and needs no download.

    Exit codes: 0 done, 1 a checked file does not match its hash, 2 wrong command or the download failed.
    """
    if action == "list":
        _list(as_json)
        return
    if action not in ("fetch", "check"):
        raise unknown("action", action, ["list", "fetch", "check"])
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
                say(f"{path} was downloaded but not checked, because no SHA-256 of {file} is known")
            print(json.dumps({"path": str(path), "checked": checked}) if as_json else path)
        return
    digest, known = downloads.verify(name)
    right = known is not None if sha256 is None else digest == sha256.lower()
    record = json.dumps({"sha256": digest, "name": known, "right": right})
    print(record if as_json else f"{digest} {known or 'unknown file'}")
    if not right:
        raise typer.Exit(EXIT_FAILED)


def _list(as_json: bool) -> None:
    """Print the known files; this does not read them, so it cannot say that a hash matches."""
    rows = downloads.listing()
    if as_json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    for row in rows:
        size = f"{row['size'] / 1e6:,.0f} MB" if row["size"] else "size unknown"
        print(f"{row['name']}: {row['summary']} ({row['kind']}, {size}, {'' if row['here'] else 'not '}downloaded)")
        member = f", file {row['member']} in it" if row["member"] else ""
        licensed = f" ({row['license']})" if row["license"] and row["url"] else ""
        print(f"    {row['url'] or 'comes with the package'}{member}{licensed}")
        if row["sha256"] is None:
            told = f"sha256 unknown: {'the file cannot be checked' if row['here'] else 'fetch needs --sha256'}"
        elif row["url"] is None or not row["here"]:
            told = f"sha256 {row['sha256']}"
        elif row["size"] not in (None, row["size_here"]):
            told = f"{row['here']} is a different file: {row['size_here']:,} bytes instead of {row['size']:,}"
        else:
            told = f"sha256 should be {row['sha256']}; not checked: unswayed weights check {row['here']}"
        print(f"    {told}")


def train_network(
    photos: Annotated[list[Path], typer.Argument(help="Folders or tar files of photographs.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for the network and the run's state.")],
    recipe: Recipe,
    begin: Annotated[
        str | None, typer.Option("--from", help="Start from a network: a folder that this command wrote, or `compact`.")
    ] = None,
    critic: Annotated[
        Path | None,
        typer.Option(
            help="FID's Inception network, for a perceptual loss on its features: the file of `unswayed weights fetch "
            "inception`, or a file with its tensors."
        ),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after this time; run the same command to resume.")] = None,
    every: Annotated[int, typer.Option(help="Number of steps between two lines of progress.")] = 1000,
    device: Device = None,
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Compile the network first.")] = True,
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
        trainer = train(
            list(photos), output, recipe, device=device, minutes=minutes, compiled=compiled, every=every,
            critic=critic, begin=begin,
        )  # fmt: skip
        if len(trainer.held):
            write_sheet(trainer.folder, trainer.held)
    print(output)
