"""The commands for benchmarks: `unswayed build`, `import`, `export`, `verify` and `licenses`."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import unswayed
from unswayed.benchmark.exporting import EXPORTERS
from unswayed.benchmark.settings import BuildSettings, ExportSettings, ImportSettings
from unswayed.choices import Option, option
from unswayed.errors import UserError, printable, some
from unswayed.files.storage import address
from unswayed.labels import imagenet
from unswayed.sources import list_sources
from unswayed.views.text import plural

from . import EXIT_CANNOT_TELL, EXIT_FAILED, EXIT_WITH_FAILURES
from .options import OUTPUT, Json, gave_json, listed, print_rows
from .progress import exit_with_failures, progress_line, progress_view, say, warn

if TYPE_CHECKING:
    from unswayed.benchmark.building import BuildResult
    from unswayed.sources.source import Source

Output = Annotated[Path, Option("The benchmark's folder.", "BENCH", OUTPUT)]


def build(
    source: Annotated[str, typer.Argument(help=f"Photographs with masks: {listed(list_sources())}.")],
    output: Output,
    settings: BuildSettings,
    as_json: Json = None,
) -> None:
    """
    - `unswayed build sample -o bench`
    - `unswayed build sample -o quick --renderer paste --workers 2`
    - `unswayed build imagenet-s:/data/ImageNetS919 -o bench --classes imagenet-e --limit 500 --guide lite:2`
    - `unswayed build folder:photos -o sizes --recipe size=0.02:0.5:12 --runs 5 --seed 7`
    - `unswayed build imagenet-s:/data/ImageNetS919 -o /shared/bench --shard 3/16`

    Running the same command again resumes the build; the pictures are the same bytes as without the interruption. A
    folder that holds another benchmark is refused. Bad pictures do not end the run: their rows record the reason.

    Exit codes: 0 done, 2 wrong command or full disk, 4 done but some rows failed, 130 interrupted.
    """
    scenes = unswayed.open_source(source)
    scenes.check_usable()  # before more is loaded
    with progress_view() as show:
        built = unswayed.build(scenes, output, settings, show=show, say=say)
    if not gave_json(as_json, {**asdict(built), "root": address(built.root)}):
        _print_built(built, scenes)
    if built.failures:
        raise typer.Exit(EXIT_WITH_FAILURES)


def _print_built(built: BuildResult, scenes: Source) -> None:
    where = address(built.root)
    rows = ", ".join(f"{number} {status}" for status, number in built.counts.items())
    made = f"{plural(built.made, 'scene')} made now" if built.made else "all made before"
    print(f"{where}: {plural(built.sources, 'scene')}, {rows} pictures ({made}, {built.seconds:.1f} s)")
    if built.unfinished:
        print(f"{built.unfinished} scenes are left to other shards; the run that finishes last writes the manifest")
    classes = some((f"{name} {number}" for name, number in built.classes.items()), 20)
    count = f"{len(built.classes)} class{'es' * (len(built.classes) != 1)}"
    print(printable(f"{count}: {classes}") if built.classes else "no scene has a label")
    for why, edits in _skipped(built).items():
        print(printable(f"skipped: {', '.join(edits)}: {why}"))
    warn(built.warnings)
    if built.invalid or built.left_out:
        print(
            f"validity: {plural(built.invalid, 'picture')} doubtful and kept, {built.left_out} left out; the manifest "
            "has the reasons, `unswayed review` shows the pictures, `analyze --valid-only` counts the others alone"
        )
    scenes_by_reason = defaultdict(list)
    for source_id, reason in built.failures.items():
        image = scenes.entry(source_id).image
        scenes_by_reason[reason.removeprefix(f"{source_id}: ").removeprefix(f"{image}: ")].append(source_id)
    for reason, ids in list(scenes_by_reason.items())[:20]:
        who = ids[0] if len(ids) == 1 else f"{len(ids)} scenes, such as {ids[0]}"
        say(f"failed: {who}: {reason}")
    if len(scenes_by_reason) > 20:
        say(f"and {len(scenes_by_reason) - 20} more reasons", f"run: unswayed verify {where}")
    if built.counts.get("ok") and not built.unfinished:
        known = set(built.classes) <= set(imagenet().classes)
        models = "-m lite:0 -m lite:2" if known else "-m YOUR_MODEL"
        say(f"next: unswayed evaluate {where} {models} -o {where}-predictions")


def _skipped(built: BuildResult) -> dict[str, list[str]]:
    """Why pictures were skipped, with the edits and how many of each."""
    from unswayed.benchmark import Benchmark

    counts: dict[str, list[str]] = defaultdict(list)
    if built.counts.get("skipped") and not built.unfinished:
        skipped = Benchmark(built.root).to_polars().filter(status="skipped")
        for edit, reasons in skipped.group_by("edit", maintain_order=True).agg("reason").iter_rows():
            network = reasons[0].startswith("needs a diffusion network: ")
            why = "needs a diffusion network (--renderer diffusion)" if network else reasons[0]
            counts[why if network or len({*reasons}) == 1 else f"such as {why}"].append(f"{edit} {len(reasons)}")
    return counts


def import_(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH|hf:REPO",
            help="An archive (.zip, .tar, .tar.gz), a folder with the edits at any depth or of tar shards, an exported "
            "folder, or a repository on the Hub.",
        ),
    ],
    output: Output,
    settings: ImportSettings,
    as_json: Json = None,
) -> None:
    """
    - `unswayed import ImageNet-E.zip -o bench`
    - `unswayed import ImageNet-E -o bench`
    - `unswayed import hf:OWNER/NAME -o bench`
    - `unswayed import shards/ -o bench`
    - `unswayed import myset -o bench --original clean --labels labels.csv --copy`

    The folders of the release get the names that `unswayed build` uses (`ori` becomes `original`, `20_smooth`
    `background-simple`, `005` `size-0.05`, `rd` `direction`); other folders keep their names. A label is an index, a
    WNID or a class name. What `unswayed export --to datasets` wrote, in a folder or on the Hugging Face Hub
    (`hf:OWNER/NAME`, `hf:OWNER/NAME@REVISION`), becomes the same benchmark again and needs no options.

    Exit codes: 0 done, 2 wrong command, 4 done but some pictures have no label or cannot be read.
    """
    with progress_line("import", "pictures") as show:
        imported = unswayed.import_benchmark(path, output, settings, progress=show)
    if gave_json(as_json, {**asdict(imported), "root": str(imported.root)}):
        raise typer.Exit(EXIT_WITH_FAILURES if imported.failures else 0)
    rows = ", ".join(f"{number} {status}" for status, number in imported.counts.items())
    print(f"{imported.root}: {imported.sources} photographs, {len(imported.edits)} edits, {rows}")
    exit_with_failures(imported.failures)


def export(
    benchmark: Annotated[Path, typer.Argument(metavar="BENCH", help="The benchmark's folder.")],
    to: Annotated[str, Option("The format.", "|".join(EXPORTERS))],
    output: Annotated[str, Option("A new folder, or the FiftyOne dataset's name.", "FOLDER|NAME", OUTPUT)],
    settings: ExportSettings,
    push: str | None = option(None, "Also upload it to the Hugging Face Hub (`datasets` only).", "OWNER/NAME"),
    public: bool = option(False, "Create the repository as a public one."),
    as_json: Json = None,
) -> None:
    """
    - `unswayed export bench --to datasets -o published --push me/birds-e`
    - `unswayed export bench --to imagefolder -o folders`
    - `unswayed export bench --to fiftyone -o birds -p predictions`

    `datasets`: a folder with a dataset card that `datasets.load_dataset` opens; `unswayed import` reads it back with
    the same pictures, hashes and credits. `imagefolder`: FOLDER/edit/class/picture for torchvision and timm.
    `fiftyone`: one group per photograph, with masks, predictions and the flips as a saved view.
    """
    from unswayed.benchmark.datasets_folder import push as upload

    if push is not None and not EXPORTERS.part(to).facts.get("hub"):
        raise UserError(f"--push does not apply to --to {to}", allowed="--to datasets")
    with progress_line("export", "pictures") as show:
        exported = unswayed.export(benchmark, to, output, settings, progress=show)
    uploaded = None if push is None else upload(exported.place, push, public)
    if gave_json(as_json, {**asdict(exported), "address": uploaded}):
        return
    unlabeled = f", {exported.unlabeled} without a label" if exported.unlabeled else ""
    print(f"{exported.place}: {exported.pictures} pictures{unlabeled}")
    if uploaded is not None:
        print(uploaded)


def verify(
    benchmark: Annotated[Path, typer.Argument(metavar="BENCH", help="A built or imported benchmark.")],
    workers: int = option(2, "Number of threads that read and hash files."),
    as_json: Json = None,
) -> None:
    """
    - `unswayed verify bench`
    - `unswayed verify bench --json | jq '.problems[].where'`

    The pixel rate is measured on the written mask and must be within 0.002 of the requested one. Skipped rows are
    expected; failed rows are problems.

    Exit codes: 0 no problems, 1 there are problems (one per line), 2 BENCH is not a benchmark.
    """
    with progress_line("verify", "rows") as show:
        verdict = unswayed.verify(benchmark, workers, report=show)
    if not gave_json(as_json, verdict.to_json()):
        for problem in verdict.problems:
            print(printable(str(problem)))
        problems = f"{len(verdict.problems)} problems" if verdict.problems else "no problems"
        print(f"{address(benchmark)}: {verdict.rows} rows, {verdict.files} files: {problems}")
    if not verdict.passed:
        raise typer.Exit(EXIT_FAILED)


def licenses(
    benchmark: Annotated[Path, typer.Argument(metavar="BENCH", help="A built or imported benchmark.")],
    as_json: Json = None,
) -> None:
    """
    - `unswayed licenses bench`
    - `unswayed licenses bench --json | jq .redistributable`

    The photographs decide, by CREDITS.csv in BENCH (columns `photograph` and `license`) or by what their publisher
    states. The licenses of networks and models are for their weights, which a benchmark does not contain. This is a
    reading of license names, and no legal advice.

    Exit codes: 0 it may be passed on, on the printed conditions, 1 it may not, 2 BENCH is not a benchmark, 3 not known.
    """
    result = unswayed.licenses(benchmark)
    answer = {"redistributable": result.redistributable, "verdict": result.verdict}
    if not gave_json(as_json, answer | {"licenses": [asdict(row) for row in result.rows]}):
        rows = [(row.part, row.name, row.license, row.count) for row in result.rows]
        print_rows(("part", "name", "license", "n"), rows)
        print(f"may it be passed on? {result.verdict}")
    if not result.redistributable:
        raise typer.Exit(EXIT_CANNOT_TELL if result.redistributable is None else EXIT_FAILED)
