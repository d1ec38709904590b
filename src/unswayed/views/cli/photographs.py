"""The commands for photographs: `unswayed masks`, `edits`, `edit` and `fragility`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

import unswayed
from unswayed.choices import DEVICE, Option, option
from unswayed.errors import UserError, printable
from unswayed.files.whole import make_folder, write_bytes
from unswayed.labels import imagenet
from unswayed.masks import BOX, MaskSettings, parse_box
from unswayed.registry import Registry
from unswayed.rendering.settings import RENDERER, RenderSettings
from unswayed.scene import LOOK_BELOW
from unswayed.specs import slug_of
from unswayed.views.text import percent

from . import EXIT_WITH_FAILURES
from .options import MODEL, OUTPUT, Json, gave_json, print_rows
from .progress import progress_line, progress_view, say, wrapped

Photograph = typer.Argument(metavar="IMAGE", help="The photograph.")
Mask = Annotated[Path | None, Option("The object's mask, white on black, of the same size.")]
Box = Annotated[str | None, BOX]


def masks(
    pictures: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of photographs, or one photograph.")],
    output: Annotated[Path, Option("The folder for the masks (NAME.png).", flags=OUTPUT)],
    settings: MaskSettings,
    as_json: Json = None,
) -> None:
    """
    A mask is white where the object is. `auto` uses SAM 2, prompted by a salient-object network, where their weights
    are here (`unswayed weights fetch masks`), else GrabCut, which needs nothing and takes the object to be in the
    middle. Masks that are already there are kept, so a run that was stopped resumes. A bad picture is reported and the
    others are done; then the exit code is 4.

    - `unswayed masks photos -o photos/masks`
    - `unswayed masks dog.jpg -o masks --box 40,60,300,280`
    - `unswayed masks photos -o masks -m lite:0`
    - `unswayed masks photos -o masks --segmenter onnx:u2net.onnx`

    `-m` takes, of several candidate masks, the one whose removal hurts the true class most; then there is one process
    for each GPU instead of --workers, or --per-gpu of them, if there are GPUs. The files confidence.csv
    and worst.jpg in the output folder say which masks a person should look at. Then:
    unswayed build "folder:photos?masks=masks" -o BENCH
    """
    from unswayed.masks.confidence import SHEET
    from unswayed.masks.segment import default_segmenter

    if settings.segmenter == "auto" and (better := default_segmenter()[1]) is not None:
        say(f"GrabCut is used; for better masks: {better}")
    with progress_view() as show:
        done = unswayed.masks(pictures, output, settings, show=show)
    printed = gave_json(as_json, [asdict(mask) for mask in done])
    for mask in done:
        if mask.status == "failed" and not printed:
            typer.secho(printable(mask.reason or ""), fg="red", err=True)
    confidences = [mask.confidence for mask in done if mask.confidence is not None]
    counts = {status: sum(mask.status == status for mask in done) for status in ("made", "kept", "failed")}
    if not printed:
        print(", ".join(f"{count} {status}" for status, count in counts.items()) + f": {output}")
        doubtful = sum(confidence < LOOK_BELOW for confidence in confidences)
        if doubtful:
            worst = f", the worst in {output / SHEET}" if settings.sheet else ""
            where = f"(confidence below {LOOK_BELOW:g}){worst}"
            print("\n".join(wrapped(f"{doubtful} of {len(confidences)} masks should be looked at {where}")))
    if counts["failed"]:
        raise typer.Exit(EXIT_WITH_FAILURES)


def edits(
    as_json: Json = None,
    as_markdown: bool = option(False, "Print the tables of docs/edits.md instead.", flags=("--markdown",)),
) -> None:
    """
    A recipe is a name, a sweep, a grid, a list of edits or a TOML file:

    - `unswayed edits`
    - `unswayed edits --json`
    - `unswayed build sample --recipe imagenet-e -o BENCH`
    - `unswayed build sample --recipe size=0.02:0.5:12 -o BENCH`
    - `unswayed build sample --recipe "size=0.05,0.1 x direction=0,20,40" -o BENCH`
    - `unswayed build sample --recipe original,size-0.05,direction -o BENCH`
    """
    from unswayed.edits import catalog, edits_table
    from unswayed.rendering.removal import REMOVALS
    from unswayed.rendering.settings import RENDERERS

    if as_markdown:
        print(edits_table(), end="")
        return
    content = catalog()
    registries: dict[str, Registry[Any]] = {"renderers": RENDERERS, "removals": REMOVALS}
    for kind, registry in registries.items():
        parts = {name: registry.part(name) for name in registry}
        content[kind] = {name: {"explains": part.help, "usage": part.usage or name} for name, part in parts.items()}
    if gave_json(as_json, content):
        return
    edits, recipes = (list(content[kind].items()) for kind in ("edits", "recipes"))
    print_rows(
        ("edit", "what changes", "control", "random", "needs"),
        [
            (name, edit["explains"], edit["control"], edit["random"], ", ".join(edit["needs"]) or None)
            for name, edit in edits
        ],
    )
    print_rows(
        ("edit", "parameter", "default", "meaning"),
        [
            (name, parameter, part["default"] and str(part["default"]), f"{part['explains']} ({part['allowed']})")
            for name, edit in edits
            for parameter, part in edit["parameters"].items()
        ],
    )
    named = [(name, f"{part['explains']}: {' '.join(part['edits'])}") for name, part in recipes]
    print_rows(("recipe", "edits"), named)
    print("sweeps: size=0.02:0.5:12   lists: lighting(where=both)=-2,0,2")
    print("grids: size=0.05,0.1 x direction=0,20,40\n")
    for kind in ("renderer", "removal"):
        rows = [(part["usage"], part["explains"]) for part in content[f"{kind}s"].values()]
        print_rows((kind, "what it does"), rows)


def _edit_options() -> type:
    """Settings with one option for each edit that is installed, its help made from what the edit declares."""
    from unswayed.edits import all_edits

    options = []
    for name, kind in all_edits().items():
        text = f"{kind.description[:1].upper()}{kind.description[1:]}: {kind.usage()}."
        declared = option(None, text, flags=(f"--{name}",), panel="Edits")
        options.append((name.replace("-", "_"), str | None, declared))
    return make_dataclass("EditOptions", options)


def edit(
    edits: Annotated[Any, _edit_options],
    settings: RenderSettings,
    image: Annotated[Path | None, Photograph] = None,
    output: Path = option(Path("edited.png"), "The edited picture.", "OUT.png", OUTPUT),
    mask: Mask = None,
    box: Box = None,
    more: list[str] | None = option(
        None, "Any edit written as in a recipe: `lighting(where=both)=-2`.", flags=("--edit",)
    ),
    label: str | None = option(None, "The true class, for an adversarial background and for {class} in words."),
    pool: str = option("sample", "The source of random backgrounds and occluders."),
    replay: Path | None = option(None, "Make the picture of this record again, with its settings.", "FILE.json"),
    trust: bool = option(False, "Let `--replay` open a guide or source that runs code or uses the network."),
    as_json: Json = None,
) -> None:
    """
    - `unswayed edit dog.jpg --mask dog-mask.png --background simple -o simple.png`
    - `unswayed edit dog.jpg --box 40,60,300,280 --size 0.05 --position 1,1 -o corner.png`
    - `unswayed edit dog.jpg --background random --direction 30 --seed 3 -o turned.png`
    - `unswayed edit dog.jpg --background checker --renderer paste -o checker.png`
    - `unswayed edit dog.jpg --background "a beach at sunset" --renderer diffusers:FOLDER -o beach.png`
    - `unswayed edit --replay corner.json -o again.png`

    Edits are applied in the order of the list below, followed by those of `--edit`. Without `--mask` or `--box` the
    object is assumed to be in the middle. The mask is written to OUT.mask.png and the record to OUT.json, from which
    `--replay` makes the same bytes.

    Exit codes: 0 done, 2 wrong command or the edit is not possible; the reason is printed.
    """
    from unswayed.edits import all_edits
    from unswayed.rendering import photograph
    from unswayed.rendering.layers import forecast

    photograph.check_output(output)
    if replay is not None:
        edited = photograph.replay(replay, image, trust=trust)
    elif image is None:
        raise UserError("no photograph is given", run="unswayed edit IMAGE --size 0.05 -o OUT.png")
    else:
        chosen = vars(edits)
        request = photograph.Request(
            chain=photograph.chain_of({name: chosen[name.replace("-", "_")] for name in all_edits()}, more or []),
            pool=pool,
            label=None if label is None else imagenet().index(label),
            **vars(settings),
        )
        scene = photograph.read_scene(image, _mask_or_box(mask, box))
        renderer = request.open_renderer()
        if text := forecast(renderer, request.passes(renderer)):
            say(text)
        edited = photograph.edit_photograph(request, scene, image, renderer)
    files = edited.save(output)
    if gave_json(as_json, {**edited.record, "output": str(files[0])}):
        return
    changed = ["the label may change with the object"] if edited.values.get("label_may_change") else []
    say(*(note if note.startswith("warning: ") else f"note: {note}" for note in [*edited.notes, *changed]))
    print(f"{files[0]}: the object covers {edited.record['pixel_rate']:.3f} of the picture; record: {files[2]}")


@dataclass(frozen=True)
class FragilityRun:
    """The keywords of `unswayed.fragility`."""

    models: Sequence[str] = option(("lite:0",), "A model; may be repeated [default: lite:0].", flags=MODEL)
    changes: Sequence[str] | None = option(
        None, "A change such as `object smaller`; may be repeated [default: all].", flags=("--change",)
    )
    renderer: str = option("paste", replace(RENDERER, help="How the pictures are made: {values}; `paste` is fast."))
    steps: int | None = option(None, "Steps of diffusion.", least=1)
    seed: int = option(0, "The random seed.")
    device: str | None = option(None, DEVICE)


def fragility(
    image: Annotated[Path, Photograph],
    run: FragilityRun,
    mask: Mask = None,
    box: Box = None,
    films: Path | None = option(None, "Write the pictures of every search there as GIF files.", "FOLDER"),
    as_json: Json = None,
) -> None:
    """
    - `unswayed fragility koala.jpg --mask koala-mask.png -m lite:0 -m lite:2`
    - `unswayed fragility koala.jpg --change "object smaller" --films films`

    Each search tries eight levels from no change to the end of the attribute's range, then bisects. The share says how
    far the change lies on that way: 0 % is the photograph, 100 % the end of the range. Levels that were not tried may
    change the prediction earlier.
    """
    from unswayed.evaluation.fragility import gif
    from unswayed.sources.source import slug

    with progress_line("searching", "searches") as show:
        results = unswayed.fragility(image, _mask_or_box(mask, box), **vars(run), progress=show)
    if films is not None:
        make_folder(films)
        for result in results:
            write_bytes(films / f"{slug_of(result.model)}-{slug(result.direction.name)}.gif", gif(result.strip))
    if gave_json(as_json, [result.to_json() for result in results]):
        return
    for name in dict.fromkeys(result.model for result in results):
        own = [result for result in results if result.model == name]
        own.sort(key=lambda result: 2 if result.share is None else result.share)
        before, rows = own[0].strip.before, [(part.direction.name, percent(part.share, 0), part.short) for part in own]
        print_rows(("change", "share", "prediction"), rows, f"{name}: {before.name}, {percent(before.kept, 0)}")


def _mask_or_box(mask: Path | None, box: str | None) -> Path | tuple[int, int, int, int] | None:
    if mask is not None and box is not None:
        raise UserError(f"both the mask {mask} and a box are given", allowed="one of them")
    return mask if box is None else parse_box(box)
