"""`unswayed edit`: apply one or several edits to one photograph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .options import GIVEN, NetworkFacts, chosen, command_with


def _edits() -> dict[str, tuple[Any, Any]]:
    """One option for each edit that is installed, its help made from what the edit declares."""
    from unswayed.edits import all_edits

    found = {}
    for name, kind in all_edits().items():
        text = f"{kind.description[:1].upper()}{kind.description[1:]}: {kind.usage()}."
        option = typer.Option(f"--{name}", rich_help_panel="Edits", help=text)
        found[_parameter(name)] = (Annotated[str | None, option], None)
    return found


def _parameter(edit: str) -> str:
    return edit.replace("-", "_")


COMMAND = command_with("unswayed.rendering.settings:RenderSettings", _edits)


def edit(
    context: typer.Context,
    image: Annotated[Path | None, typer.Argument(metavar="IMAGE", help="The photograph.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="OUT.png", help="The edited picture.")] = Path(
        "edited.png"
    ),
    mask: Annotated[Path | None, typer.Option(help="The object's mask, white on black, of the same size.")] = None,
    box: Annotated[
        str | None, typer.Option(metavar="X,Y,W,H", help="A box around the object, from which a mask is made.")
    ] = None,
    more: Annotated[
        list[str] | None, typer.Option("--edit", help="Any edit written as in a recipe: `lighting(where=both)=-2`.")
    ] = None,
    network_fact: NetworkFacts = None,
    label: Annotated[str | None, typer.Option(help="The true class, for an adversarial background.")] = None,
    pool: Annotated[str, typer.Option(help="The source of random backgrounds and occluders.")] = "sample",
    replay: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Make the picture of this record again, with its settings.")
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Let `--replay` open a guide or source that runs code or uses the network.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Edit one photograph: change its background, or the object's size, direction, position and more.

    - `unswayed edit dog.jpg --mask dog-mask.png --background simple -o simple.png`
    - `unswayed edit dog.jpg --box 40,60,300,280 --size 0.05 --position 1,1 -o corner.png`
    - `unswayed edit dog.jpg --background random --direction 30 --seed 3 -o turned.png`
    - `unswayed edit dog.jpg --background checker --renderer paste -o checker.png`
    - `unswayed edit --replay corner.json -o again.png`

    Edits are applied in the order of the list below, followed by those of `--edit`. Without `--mask` or `--box` the
    object is assumed to be in the middle. The mask is written to OUT.mask.png and the record to OUT.json, from which
    `--replay` makes the same bytes.

    Exit codes: 0 done, 2 wrong command or the edit is not possible; the reason is printed.
    """
    import json

    from unswayed.benchmark.plan import parse_facts
    from unswayed.edits import all_edits
    from unswayed.errors import UserError
    from unswayed.labels import imagenet
    from unswayed.masks.segment import parse_box
    from unswayed.rendering.photograph import (
        Request,
        chain_of,
        check_output,
        edit_photograph,
        read_scene,
        write_edited,
    )
    from unswayed.rendering.photograph import replay as replay_record
    from unswayed.rendering.settings import RenderSettings

    check_output(output)
    if replay is not None:
        edited = replay_record(replay, image, trust=trust)
    elif image is None:
        raise UserError("no photograph is given", run="unswayed edit IMAGE --size 0.05 -o OUT.png")
    else:
        facts = parse_facts(network_fact or [])
        request = Request(
            chain=chain_of({name: context.meta[GIVEN][_parameter(name)] for name in all_edits()}, more or []),
            pool=pool,
            label=None if label is None else imagenet().index(label),
            **vars(chosen(context, RenderSettings, network_facts=facts)),
        )
        if mask is not None and box is not None:
            raise UserError(f"both the mask {mask} and a box are given", allowed="one of them")
        edited = edit_photograph(request, read_scene(image, mask if box is None else parse_box(box)), image)
    files = write_edited(edited, output)
    if as_json:
        print(json.dumps({**edited.record, "output": str(files[0])}, ensure_ascii=False))
        return
    for note in edited.notes:
        typer.echo(note if note.startswith("warning: ") else f"note: {note}", err=True)
    print(f"{files[0]}: the object covers {edited.record['pixel_rate']:.3f} of the picture; record: {files[2]}")
