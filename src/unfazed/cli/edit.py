"""`unfazed edit`: apply one or several edits to one photograph."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from unfazed.choices import Frame, GuidanceName, RendererName, SamplerName

from .devices import Device

# The key of the context's `meta` under which the values of the edits' own options are kept.
GIVEN = "unfazed.edits"


class EditCommand(TyperCommand):
    """The command with one option for each edit that is installed, read only when the command is called."""

    def get_params(self, ctx: Any) -> list[Any]:
        names = {parameter.name for parameter in self.params}
        return [*super().get_params(ctx), *(one for one in edit_options() if one.name not in names)]

    def invoke(self, ctx: Any) -> Any:
        own = {parameter.name for parameter in self.params}
        given = {name: ctx.params.pop(name) for name in list(ctx.params) if name not in own}
        names = {option.name: option.opts[0].removeprefix("--") for option in edit_options()}
        ctx.meta[GIVEN] = {names[name]: value for name, value in given.items()}
        return super().invoke(ctx)


COMMAND = EditCommand


@functools.cache
def edit_options() -> tuple[Any, ...]:
    """One option for each edit, its help made from what the edit declares."""
    from unfazed.edits import all_edits

    def collect(**given: str | None) -> None:
        """Hold the options, which typer reads from the signature."""

    options = {
        name.replace("-", "_"): Annotated[
            str | None,
            typer.Option(
                f"--{name}",
                rich_help_panel="Edits",
                help=f"{kind.description[:1].upper()}{kind.description[1:]}: {kind.usage()}.",
            ),
        ]
        for name, kind in all_edits().items()
    }
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(n, keyword, default=None, annotation=kind) for n, kind in options.items()]
    collect.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    collect.__annotations__ = dict(options)
    holder = typer.Typer(add_completion=False)
    holder.command()(collect)
    return tuple(one for one in typer.main.get_command(holder).params if one.name in options)


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
    renderer: Annotated[
        RendererName, typer.Option(help="`paste` uses no diffusion network and refuses edits that need one.")
    ] = "diffusion",
    network: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="The diffusion network [default: the embedded one].")
    ] = None,
    network_fact: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A setting that the network's file does not contain, such as `num_head_channels=32`.",
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Sampling steps over the whole noise schedule.")] = None,
    sampler: Annotated[SamplerName | None, typer.Option(help="The diffusion sampler [default: auto].")] = None,
    guidance: Annotated[
        GuidanceName | None,
        typer.Option(
            help="How backgrounds are guided: as in the `paper`, as in its `released` code, or `calibrated` [default: "
            "`released` for guided-diffusion's files, otherwise `calibrated`]."
        ),
    ] = None,
    guide: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The classifier that a background attacks.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="The true class, for an adversarial background.")] = None,
    device: Device = None,
    feather: Annotated[float | None, typer.Option(help="Pixels over which `paste` blends the edge.")] = None,
    removal: Annotated[
        str, typer.Option(help="How objects are removed: `patches`, or another method that `unfazed edits` lists.")
    ] = "patches",
    frame: Annotated[Frame, typer.Option(help="How the photograph is cropped or squeezed to a square.")] = "object",
    pixels: Annotated[int, typer.Option(help="Width and height of the picture.")] = 256,
    pool: Annotated[str, typer.Option(help="The source of random backgrounds and occluders.")] = "sample",
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    replay: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Make the picture of this record again, with its settings.")
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Let `--replay` open a guide or source that runs code or uses the network.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Edit one photograph: change its background, or the object's size, direction, position and more.

    - `unfazed edit dog.jpg --mask dog-mask.png --background simple -o simple.png`
    - `unfazed edit dog.jpg --box 40,60,300,280 --size 0.05 --position 1,1 -o corner.png`
    - `unfazed edit dog.jpg --background random --direction 30 --seed 3 -o turned.png`
    - `unfazed edit dog.jpg --background checker --renderer paste -o checker.png`
    - `unfazed edit --replay corner.json -o again.png`

    Edits are applied in the order of the list below, followed by those of `--edit`. Without `--mask` or `--box` the
    object is assumed to be in the middle. The mask is written to OUT.mask.png and the record to OUT.json, from which
    `--replay` makes the same bytes.

    Exit codes: 0 done, 2 wrong command or the edit is not possible; the reason is printed.
    """
    import json

    from unfazed.benchmark.photograph import Request, chain_of, check_output, edit_photograph, read_scene, write_edited
    from unfazed.benchmark.photograph import replay as replay_record
    from unfazed.benchmark.plan import parse_facts
    from unfazed.errors import UserError
    from unfazed.labels import imagenet
    from unfazed.sources.segment import parse_box

    check_output(output)
    if replay is not None:
        edited = replay_record(replay, image, trust=trust)
    elif image is None:
        raise UserError("no photograph is given", run="unfazed edit IMAGE --size 0.05 -o OUT.png")
    else:
        request = Request(
            chain=chain_of(context.meta[GIVEN], more or []),
            renderer=renderer,
            network=network,
            network_facts=parse_facts(network_fact or []),
            steps=steps,
            sampler=sampler,
            guidance=guidance,
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
