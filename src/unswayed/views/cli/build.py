"""`unswayed build`: build a benchmark from a source and a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import NetworkFacts, chosen, command_with

COMMAND = command_with("unswayed.benchmark.plan:BuildSettings")


def build(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(help="`sample`, `folder:PATH`, `imagenet-s:PATH`, `cutouts:PATH`, `coco:FILE`.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="BENCH", help="The benchmark's folder.")],
    network_fact: NetworkFacts = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Build a benchmark: apply every edit of a recipe to every scene of a source.

    - `unswayed build sample -o bench`
    - `unswayed build sample -o quick --renderer paste --workers 2`
    - `unswayed build imagenet-s:/data/ImageNetS919 -o bench --classes imagenet-e --limit 500 --guide lite:2`
    - `unswayed build folder:photos -o sizes --recipe size=0.02:0.5:12 --runs 5 --seed 7`
    - `unswayed build imagenet-s:/data/ImageNetS919 -o /shared/bench --shard 3/16`

    Running the same command again resumes the build; the pictures are the same bytes as without the interruption. A
    folder that holds another benchmark is refused. Bad pictures do not end the run: their rows record the reason.

    Exit codes: 0 done, 2 wrong command or full disk, 4 done but some rows failed, 130 interrupted.
    """
    import json
    from collections import defaultdict
    from dataclasses import asdict

    from unswayed.sources import open_source

    scenes = open_source(source)
    scenes.check_usable()  # before more is loaded
    from unswayed.benchmark import BuildSettings
    from unswayed.benchmark import build as build_benchmark
    from unswayed.benchmark.plan import parse_facts
    from unswayed.files.storage import address
    from unswayed.labels import imagenet

    from . import EXIT_WITH_FAILURES
    from .progress import next_command, progress_view, stoppable

    settings = chosen(context, BuildSettings, network_facts=parse_facts(network_fact or []))
    with progress_view() as show, stoppable(f"unswayed status {address(output)}"):
        built = build_benchmark(scenes, output, settings, show=show)
    where = address(built.root)
    if as_json:
        print(json.dumps({**asdict(built), "root": where}, ensure_ascii=False))
    else:
        rows = ", ".join(f"{number} {status}" for status, number in built.counts.items())
        print(f"{where}: {built.sources} scenes, {rows} ({built.made} made now, {built.seconds:.1f} s)")
        if built.unfinished:
            print(f"{built.unfinished} scenes are left to other shards; the run that finishes last writes the manifest")
        print(_classes(built.classes))
        for line in built.warnings:
            typer.echo(f"warning: {line}", err=True)
        if built.invalid or built.left_out:
            print(
                f"validity: {built.invalid} pictures are doubtful and kept, {built.left_out} left out; the manifest "
                "has the reasons, `unswayed review` shows the pictures, `analyze --valid-only` counts the others alone"
            )
        failed = defaultdict(list)
        for source_id, reason in built.failures.items():
            image = scenes.entry(source_id).image
            failed[reason.removeprefix(f"{source_id}: ").removeprefix(f"{image}: ")].append(source_id)
        for reason, ids in list(failed.items())[:20]:
            who = ids[0] if len(ids) == 1 else f"{len(ids)} scenes, such as {ids[0]}"
            typer.echo(f"failed: {who}: {reason}", err=True)
        if len(failed) > 20:
            typer.echo(f"and {len(failed) - 20} more reasons\nrun: unswayed verify {where}", err=True)
        if built.counts.get("ok") and not built.unfinished:
            known = set(built.classes) <= set(imagenet().classes)
            models = "-m lite:0 -m lite:2" if known else "-m YOUR_MODEL"
            next_command(f"unswayed evaluate {where} {models} -o {where}-predictions")
    if built.failures:
        raise typer.Exit(EXIT_WITH_FAILURES)


def _classes(counts: dict[str, int]) -> str:
    """The classes with how many scenes each has, the first twenty of them."""
    if not counts:
        return "no scene has a label"
    shown = ", ".join(f"{name} {number}" for name, number in list(counts.items())[:20])
    return f"{len(counts)} class{'es' * (len(counts) != 1)}: {shown}" + (" …" if len(counts) > 20 else "")
