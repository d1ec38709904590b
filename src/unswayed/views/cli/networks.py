"""The commands for diffusion networks: `unswayed weights` lists, fetches and checks files, `train-network` trains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unswayed.rendering.training import Recipe

from .options import Device


def weights(
    action: Annotated[str, typer.Argument(help="`list`, `fetch NAME` or `check FILE`.")] = "list",
    name: Annotated[str | None, typer.Argument(help="A name or kind from the list, or a file to check.")] = None,
    url: Annotated[str | None, typer.Option(help="Download from this mirror instead.")] = None,
    sha256: Annotated[str | None, typer.Option(help="The expected hash, if the list has none.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """
    The list shows sizes, SHA-256 hashes and whether each file has been downloaded.

        unswayed weights

        unswayed weights fetch 256x256_diffusion_uncond

        unswayed weights fetch masks

        unswayed weights check downloads/256x256_diffusion_uncond.pt

        unswayed build sample -o bench --network 256x256_diffusion_uncond

    An interrupted download resumes. Files are stored in ~/.cache/unswayed, or in $UNSWAYED_CACHE. The network `compact`
    comes with the package and needs no download.

    Exit codes: 0 done, 1 a checked file does not match its hash, 2 wrong command or the download failed.
    """
    import json

    from unswayed.errors import UserError, unknown
    from unswayed.files.downloads import KNOWN, listing, verify

    if action == "list":
        rows = listing()
        if as_json:
            print(json.dumps(rows, indent=1, ensure_ascii=False))
            return
        for row in rows:
            size = f"{row['size'] / 1e6:,.0f} MB" if row["size"] else "size unknown"
            print(f"{row['name']}: {row['summary']} ({row['kind']}, {size}, {'' if row['here'] else 'not '}downloaded)")
            print(f"    {row['url'] or 'comes with the package'}{_inside(row)}")
            print(f"    {_hash_line(row)}")
        return
    if action not in ("fetch", "check"):
        raise unknown("action", action, ["list", "fetch", "check"])
    if name is None:
        what = "a name from the list" if action == "fetch" else "the path of a weight file"
        raise UserError(f"`unswayed weights {action}` needs {what}", run="unswayed weights")
    if action == "fetch":
        # A kind of which every file has a known hash can be fetched as a whole.
        kinds = [file for file, known in KNOWN.items() if known.kind == name]
        for file in kinds if name in ("masks", "measure") else [name]:
            _fetch(file, url, sha256, as_json)
        return
    digest, known = verify(name)
    right = known is not None if sha256 is None else digest == sha256.lower()
    print(
        json.dumps({"sha256": digest, "name": known, "right": right})
        if as_json
        else f"{digest} {known or 'unknown file'}"
    )
    if not right:
        raise typer.Exit(1)


def _fetch(name: str, url: str | None, sha256: str | None, as_json: bool) -> None:
    import json

    from unswayed.files.downloads import fetch, find

    from .progress import progress_line

    with progress_line(name, "MB") as show:
        path = fetch(
            name, url=url, expected=sha256, progress=lambda done, all_: show(done >> 20, (all_ or 0) >> 20, "")
        )
    checked = (find(name).sha256 or sha256) is not None
    if not checked:
        typer.echo(f"{path} was downloaded but not checked, because no SHA-256 of {name} is known", err=True)
    print(json.dumps({"path": str(path), "checked": checked}) if as_json else path)


def _inside(row: dict[str, Any]) -> str:
    licensed = f" ({row['license']})" if row["license"] and row["url"] else ""
    return (f", file {row['member']} in it" if row["member"] else "") + licensed


def _hash_line(row: dict[str, Any]) -> str:
    """Return the line about a row's hash; listing does not read the files, so it cannot say that a hash matches."""
    if row["sha256"] is None:
        return "sha256 unknown: the file cannot be checked" if row["here"] else "sha256 unknown: fetch needs --sha256"
    if row["url"] is None or not row["here"]:
        return f"sha256 {row['sha256']}"
    if row["size"] not in (None, row["size_here"]):
        return f"{row['here']} is a different file: {row['size_here']:,} bytes instead of {row['size']:,}"
    return f"sha256 should be {row['sha256']}; not checked: unswayed weights check {row['here']}"


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

    from .progress import stoppable

    with stoppable():
        trainer = train(
            list(photos),
            output,
            recipe,
            device=device,
            minutes=minutes,
            compiled=compiled,
            every=every,
            critic=critic,
            begin=begin,
        )
        if len(trainer.held):
            write_sheet(trainer.folder, trainer.held)
    print(output)
