"""`unfazed edit`: one photograph under one or several edits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unfazed.choices import Frame, RendererName, SamplerName

from .devices import Device


def edit(
    image: Annotated[Path | None, typer.Argument(metavar="IMAGE", help="The photograph.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="OUT.png", help="The edited picture.")] = Path(
        "edited.png"
    ),
    mask: Annotated[Path | None, typer.Option(help="The object's mask, white on black, of the same size.")] = None,
    box: Annotated[
        str | None, typer.Option(metavar="X,Y,W,H", help="A box around the object, from which a mask is made.")
    ] = None,
    background: Annotated[
        str | None,
        typer.Option(
            help="`inversion`, `simple`, `complex`, `adversarial`, `random`, a strength, a texture, or a picture file."
        ),
    ] = None,
    size: Annotated[str | None, typer.Option(help="Share of the picture that the object covers, or `full`.")] = None,
    direction: Annotated[str | None, typer.Option(help="Degrees, counter-clockwise, or `random`.")] = None,
    position: Annotated[
        str | None, typer.Option(metavar="X,Y|random", help="0,0 is the upper left, 1,1 the lower right.")
    ] = None,
    occlusion: Annotated[str | None, typer.Option(help="Share of the object that is hidden.")] = None,
    lighting: Annotated[str | None, typer.Option(help="Stops of light on the object.")] = None,
    blur: Annotated[str | None, typer.Option(help="Pixels by which the background is defocused.")] = None,
    colour: Annotated[str | None, typer.Option(help="Degrees by which the object's hue is turned.")] = None,
    more: Annotated[
        list[str] | None, typer.Option("--edit", help="Any edit written as in a recipe: `lighting(where=both)=-2`.")
    ] = None,
    renderer: Annotated[
        RendererName, typer.Option(help="`paste` uses no network and skips what needs one.")
    ] = "diffusion",
    network: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="The diffusion network [default: the embedded one].")
    ] = None,
    network_fact: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="What the network's file does not tell: `num_head_channels=32`."),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps over the whole noise schedule.")] = None,
    sampler: Annotated[SamplerName | None, typer.Option(help="The diffusion sampler [default: auto].")] = None,
    guide: Annotated[str | None, typer.Option(metavar="MODEL", help="For an adversarial background.")] = None,
    label: Annotated[str | None, typer.Option(help="The true class, for an adversarial background.")] = None,
    device: Device = None,
    feather: Annotated[float | None, typer.Option(help="Pixels over which `paste` fades the rim.")] = None,
    removal: Annotated[str, typer.Option(help="`opencv`, `diffusion`, `onnx:FILE`.")] = "opencv",
    frame: Annotated[Frame, typer.Option(help="How a photograph becomes a square.")] = "object",
    pixels: Annotated[int, typer.Option(help="The side of the picture.")] = 256,
    pool: Annotated[str, typer.Option(help="The source of random backgrounds and occluders.")] = "sample",
    seed: Annotated[int, typer.Option(help="Every draw follows from it.")] = 0,
    replay: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Make the picture of this record again.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Edit one photograph: change its background, or the object's size, direction, position and more.

    - `unfazed edit dog.jpg --mask dog-mask.png --background simple -o simple.png`
    - `unfazed edit dog.jpg --box 40,60,300,280 --size 0.05 --position 1,1 -o corner.png`
    - `unfazed edit dog.jpg --background random --direction 30 --seed 3 -o turned.png`
    - `unfazed edit dog.jpg --background checker --renderer paste -o checker.png`
    - `unfazed edit --replay corner.json -o again.png`

    Edits are chained: background, size, direction, position, then the others. Without `--mask` or `--box` the object
    is taken to be in the middle. Beside OUT.png come OUT.mask.png and OUT.json, which replays to the same bytes.

    Exit codes: 0 done, 2 it cannot be made, with the reason.
    """
    import json

    from unfazed.benchmark.photograph import Request, chain_of, check_output, edit_photograph, read_scene, write_edited
    from unfazed.benchmark.photograph import replay as made_again
    from unfazed.benchmark.plan import parse_facts
    from unfazed.errors import UserError
    from unfazed.labels import imagenet
    from unfazed.sources.segment import parse_box

    check_output(output)
    if replay is not None:
        edited = made_again(replay, image)
    elif image is None:
        raise UserError("no photograph is given", run="unfazed edit IMAGE --size 0.05 -o OUT.png")
    else:
        given = {
            "background": background,
            "size": size,
            "direction": direction,
            "position": position,
            "occlusion": occlusion,
            "lighting": lighting,
            "blur": blur,
            "colour": colour,
        }
        request = Request(
            chain=chain_of(given, more or []),
            renderer=renderer,
            network=network,
            network_facts=parse_facts(network_fact or []),
            steps=steps,
            sampler=sampler,
            guide=guide,
            device=device,
            feather=feather,
            removal=removal,
            frame=frame,
            size=pixels,
            seed=seed,
            pool=pool,
            label=None if label is None else imagenet().index(label),
        )
        if mask is not None and box is not None:
            raise UserError(f"both the mask {mask} and a box are given", allowed="one of them")
        edited = edit_photograph(request, read_scene(image, mask if box is None else parse_box(box)), image)
    files = write_edited(edited, output)
    if as_json:
        print(json.dumps({**edited.record, "output": str(files[0])}, ensure_ascii=False))
        return
    for note in edited.record["notes"]:
        typer.echo(f"note: {note}", err=True)
    print(f"{files[0]}: the object covers {edited.record['pixel_rate']:.3f} of the picture; record: {files[2]}")
