"""`unfazed build`: build a benchmark from a source and a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unfazed.choices import EngineName, Frame, GuidanceName, Precision, Quality, RendererName, SamplerName

from .devices import Device


def build(
    source: Annotated[
        str, typer.Argument(help="`sample`, `folder:PATH`, `imagenet-s:PATH`, `cutouts:PATH`, `coco:FILE`.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="BENCH", help="The benchmark's folder.")],
    recipe: Annotated[
        str, typer.Option(help="A name, edits (`original,size-0.05`), a sweep (`size=0.02:0.5:12`) or a TOML file.")
    ] = "imagenet-e",
    renderer: Annotated[
        RendererName, typer.Option(help="`paste` uses no diffusion network and skips the edits that need one.")
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
    steps: Annotated[int | None, typer.Option(help="Steps over the whole noise schedule (100 in the paper).")] = None,
    sampler: Annotated[SamplerName | None, typer.Option(help="The diffusion sampler [default: auto].")] = None,
    guidance: Annotated[
        GuidanceName | None,
        typer.Option(
            help="How backgrounds are guided: as in the `paper`, as in its `released` code, or `calibrated` [default: "
            "`released` for guided-diffusion's files, otherwise `calibrated`]."
        ),
    ] = None,
    guide: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The classifier that adversarial backgrounds attack.")
    ] = None,
    precision: Annotated[
        Precision | None,
        typer.Option(help="Of the network [default: bf16 if the machine supports it, otherwise fp32]."),
    ] = None,
    device: Device = None,
    feather: Annotated[
        float | None, typer.Option(help="Width in pixels over which `paste` blends the object's edge [default: 1].")
    ] = None,
    removal: Annotated[
        str, typer.Option(help="How objects are removed: `patches`, or another method that `unfazed edits` lists.")
    ] = "patches",
    frame: Annotated[Frame, typer.Option(help="How photographs are cropped or squeezed to a square.")] = "object",
    pixels: Annotated[int, typer.Option(help="Width and height of the pictures.")] = 256,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    runs: Annotated[int, typer.Option(help="How many times each edit with a random choice is repeated.")] = 1,
    whole_objects: Annotated[
        bool,
        typer.Option("--whole-objects", help="Leave out scenes whose object is cut off by the photograph's border."),
    ] = False,
    limit: Annotated[int | None, typer.Option(help="Only the first N scenes.")] = None,
    sample: Annotated[int | None, typer.Option(metavar="N", help="N random scenes, evenly over the classes.")] = None,
    per_class: Annotated[int | None, typer.Option(metavar="N", help="N random scenes of each class.")] = None,
    classes: Annotated[
        str | None,
        typer.Option(help="Only these classes: `imagenet-e`, or names, WNIDs or indices separated by commas."),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Pictures rendered at once; no effect on them.")] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes; no effect on the pictures.")] = None,
    engine: Annotated[EngineName, typer.Option(help="Where the work runs.")] = "local",
    quality: Annotated[
        Quality,
        typer.Option(help="`report` measures every picture's validity, `strict` also makes invalid ones again."),
    ] = "report",
    tries: Annotated[
        int, typer.Option(help="With `--quality strict`: how many new seeds to try before leaving a picture out.")
    ] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Build a benchmark: apply every edit of a recipe to every scene of a source.

    - `unfazed build sample -o bench`
    - `unfazed build sample -o quick --renderer paste --workers 2`
    - `unfazed build imagenet-s:/data/ImageNetS919 -o bench --classes imagenet-e --limit 500 --guide lite:2`
    - `unfazed build folder:photos -o sizes --recipe size=0.02:0.5:12 --runs 5 --seed 7`

    Running the same command again resumes the build; the pictures are the same bytes as without the interruption. A
    folder that holds another benchmark is refused. Bad pictures do not end the run: their rows record the reason.

    Exit codes: 0 done, 2 wrong command or full disk, 4 done but some rows failed, 130 interrupted.
    """
    import json
    from dataclasses import asdict

    from unfazed.benchmark import BuildSettings
    from unfazed.benchmark import build as build_benchmark
    from unfazed.benchmark.plan import parse_facts
    from unfazed.cli import EXIT_WITH_FAILURES

    from .progress import progress_line, stoppable

    settings = BuildSettings(
        recipe=recipe,
        renderer=renderer,
        network=network,
        network_facts=parse_facts(network_fact or []),
        steps=steps,
        sampler=sampler,
        guidance=guidance,
        guide=guide,
        precision=precision,
        device=device,
        feather=feather,
        removal=removal,
        frame=frame,
        size=pixels,
        seed=seed,
        runs=runs,
        whole_objects=whole_objects,
        limit=limit,
        sample=sample,
        per_class=per_class,
        classes=classes,
        batch_size=batch_size,
        workers=workers,
        engine=engine,
        quality=quality,
        tries=tries,
    )
    with progress_line("build", "scenes") as show, stoppable(f"unfazed status {output}"):
        built = build_benchmark(
            source,
            output,
            settings,
            progress=lambda now: show(now.done, now.total, " ".join(f"{n} {s}" for s, n in now.counts.items() if n)),
        )
    if as_json:
        print(json.dumps({**asdict(built), "root": str(built.root)}, ensure_ascii=False))
    else:
        rows = ", ".join(f"{number} {status}" for status, number in built.counts.items())
        print(f"{built.root}: {built.sources} scenes, {rows} ({built.made} made now, {built.seconds:.1f} s)")
        print(_classes(built.classes))
        for line in built.warnings:
            typer.echo(f"warning: {line}", err=True)
        if built.invalid or built.left_out:
            print(f"validity: {built.invalid} pictures are invalid, {built.left_out} were left out as invalid")
        for source_id, reason in list(built.failures.items())[:20]:
            typer.echo(f"failed: {source_id}: {reason}", err=True)
        if len(built.failures) > 20:
            typer.echo(f"and {len(built.failures) - 20} more\nrun: unfazed verify {built.root}", err=True)
    if built.failures:
        raise typer.Exit(EXIT_WITH_FAILURES)


def _classes(counts: dict[str, int]) -> str:
    """The classes with how many scenes each has, the first twenty of them."""
    if not counts:
        return "no scene has a label"
    shown = ", ".join(f"{name} {number}" for name, number in list(counts.items())[:20])
    return f"{len(counts)} class{'es' * (len(counts) != 1)}: {shown}" + (" …" if len(counts) > 20 else "")
