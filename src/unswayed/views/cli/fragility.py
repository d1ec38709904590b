"""`unswayed fragility`: how small a change of each attribute of one photograph already changes a prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unswayed.choices import RendererName

from .options import Device


def fragility(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="The photograph.")],
    mask: Annotated[Path | None, typer.Option(help="The object's mask, white on black, of the same size.")] = None,
    box: Annotated[
        str | None, typer.Option(metavar="X,Y,W,H", help="A box around the object, from which a mask is made.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("-m", "--model", help="A model; may be repeated [default: lite:0].")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option(help="A change such as `object smaller`; may be repeated [default: all].")
    ] = None,
    renderer: Annotated[RendererName, typer.Option(help="How the pictures are made; `paste` is fast.")] = "paste",
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of diffusion.")] = None,
    seed: Annotated[int, typer.Option(help="The random seed.")] = 0,
    films: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the pictures of every search there as GIF files.")
    ] = None,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Find the smallest change of every attribute that changes a model's prediction for one photograph.

    - `unswayed fragility koala.jpg --mask koala-mask.png -m lite:0 -m lite:2`
    - `unswayed fragility koala.jpg --change "object smaller" --films films`

    Each search tries eight levels from no change to the end of the attribute's range, then bisects. The share says how
    far the change lies on that way: 0 % is the photograph, 100 % the end of the range. Levels that were not tried may
    change the prediction earlier.
    """
    import json

    from unswayed.errors import UserError
    from unswayed.evaluation.film import gif
    from unswayed.evaluation.fragility import fragility as search
    from unswayed.files.whole import make_folder, write_bytes
    from unswayed.masks.segment import parse_box
    from unswayed.sources.source import slug
    from unswayed.specs import slug_of

    from .progress import progress_line

    if mask is not None and box is not None:
        raise UserError(f"both the mask {mask} and a box are given", allowed="one of them")
    with progress_line("searching", "searches") as show:
        found = search(
            image, mask if box is None else parse_box(box), models=model or ["lite:0"], changes=change or None,
            renderer=renderer, steps=steps, seed=seed, device=device, progress=lambda done, all: show(done, all, ""),
        )  # fmt: skip
    if films is not None:
        make_folder(films)
        for one in found:
            write_bytes(films / f"{slug_of(one.model)}-{slug(one.direction.name)}.gif", gif(one.strip))
    if as_json:
        print(json.dumps([one.to_json() for one in found], indent=1, ensure_ascii=False))
        return
    for name in dict.fromkeys(one.model for one in found):
        own = sorted((one for one in found if one.model == name), key=lambda one: 2 if one.share is None else one.share)
        print(f"{name}: {own[0].strip.before.name}, {own[0].strip.before.kept:.0%}")
        for one in own:
            share = "–" if one.share is None else f"{one.share:.0%}"
            print(f"  {one.direction.name:<32}{share:>5}  {one.short}")
