"""The commands for models: `unswayed models`, `fit-head` and `evaluate`, which stores their predictions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import unswayed
from unswayed.choices import Option
from unswayed.errors import printable
from unswayed.evaluation.settings import EvaluateSettings, HeadSettings
from unswayed.files.storage import address, shown
from unswayed.views.tracking import chosen_trackers

from . import EXIT_USAGE, EXIT_WITH_FAILURES
from .options import MODEL, OUTPUT, Json, gave_json, print_rows
from .progress import exit_with_failures, progress_line, progress_view, say, unfinished_shards, warn
from .reports import Track, record_results


def models(
    spec: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="A model, such as `lite:0`, whose card is printed.")
    ] = None,
    as_json: Json = None,
) -> None:
    """
    - `unswayed models`
    - `unswayed models lite:0`
    - `unswayed models "timm:resnet50?checkpoint=mine.pt+tencrop" --json`

    Wrappers follow the name: `+tencrop` (mean over ten crops), `+flip` (mean over the picture and its mirror image),
    `+object-crop` (mean over the picture and a crop around the object), `+bn-adapt` (batch-norm statistics recomputed
    from the pictures). Options follow a `?`: `checkpoint=FILE`, `labels=FILE`, `crop=224`, `mean=0.5`, `layer=NAME`.
    """
    from unswayed.models.opening import describe_model, describe_sources

    described = describe_model(spec) if spec else describe_sources()
    if gave_json(as_json, described):
        return
    values = {name: text if isinstance(text, dict) else {"": text} for name, text in described.items()}
    # The whole hash of the weights is in the JSON.
    rows = [
        (f"{name} {key}".strip(), re.sub(r"\b([0-9a-f]{16})[0-9a-f]{48}\b", r"\1…", str(value)))
        for name, part in values.items()
        for key, value in part.items()
    ]
    print_rows(("fact", "value") if spec else ("source", "models"), rows)


def fit_head(
    source: Annotated[
        str, typer.Argument(help="`rival10:PATH?split=train`, `folder:PATH`, …: photographs with masks.")
    ],
    model: Annotated[str, Option("The model whose features are used: `timm:NAME`, ….", flags=MODEL)],
    output: Annotated[Path, Option("The folder for the head.", "DIR", OUTPUT)],
    settings: HeadSettings,
) -> None:
    """
    The head is opened as `head:DIR`, like any other model. Its photographs are framed and resized as `unswayed
    sensitivity` does it, and DIR records the framing: commands that frame photographs in another way refuse the head.
    The epoch is chosen on a fifth of each class's photographs, which are not trained on.

    - `unswayed fit-head rival10:RIVAL10?split=train -m lite:0 -o heads/whole`
    - `unswayed fit-head rival10:RIVAL10?split=train -m lite:0 -o heads/object --preset released --ablate background`
    - `unswayed sensitivity rival10:RIVAL10 -m head:heads/whole -m head:heads/object -o results`

    Exit codes: 0 done, 2 wrong command, 4 done but some pictures could not be used.
    """
    with progress_line("fit-head", "pictures") as show:
        fitted = unswayed.fit_head(source, model, output, settings, progress=show)
    card = fitted.card
    typer.echo(
        f"{output}: {len(card['labels']['classes'])} classes, {card['pictures']['train']} pictures for training, "
        f"{card['pictures']['validation']} for validation; epoch {card['epoch']}, "
        f"validation accuracy {card['validation_accuracy']:.1%}"
    )
    exit_with_failures(fitted.failures)


def evaluate(
    benchmark: Annotated[str, typer.Argument(metavar="BENCH|images:FOLDER", help="A benchmark or a labeled folder.")],
    model: Annotated[
        list[str],
        Option("`lite:0`, `ALIAS=timm:NAME`, `python:FILE.py:function`, …; may be repeated.", flags=MODEL),
    ],
    output: Annotated[Path, Option("The predictions' folder.", "PREDICTIONS", OUTPUT)],
    settings: EvaluateSettings,
    track: Track = None,
    as_json: Json = None,
) -> None:
    """
    - `unswayed evaluate bench -m lite:0 -m lite:1 -m lite:2 -o predictions`
    - `unswayed evaluate bench -m timm:resnet50.a1_in1k -m timm:resnet50.a1_in1k+tencrop -o predictions`
    - `unswayed evaluate images:/data/imagenet/val -m torchvision:resnet50/IMAGENET1K_V2 -o predictions`
    - `unswayed evaluate bench -m python:mine.py:build -o predictions --transform paper`
    - `unswayed evaluate bench -m 'openai:http://localhost:8000/v1?model=NAME' -o predictions --budget requests=500`

    Pictures are decoded once for all models. Each model gets one Parquet file and one card (JSON). Running the same
    command again does only what is missing; a model whose weights have changed is evaluated again. If a model fails,
    the failure is recorded and the others continue. A benchmark whose files do not match its manifest is refused. See
    `unswayed models` for the names of models.

    Exit codes: 0 done, 2 wrong command or no model could be evaluated, 4 done but some models failed.
    """
    from unswayed.models.opening import check_head, import_early

    for spec in model:
        check_head(spec)
    trackers = chosen_trackers(track or (), say)  # a wrong name is refused before the work begins
    import_early(model, settings, "unswayed.evaluation.evaluator")
    from unswayed.evaluation import run_evaluation
    from unswayed.evaluation.model_cards import read_cards

    with progress_view() as show:
        done = run_evaluation(benchmark, model, output, settings, show=show, tell=say)
    unfinished_shards(done.unfinished, output)
    warn([*done.remarks, *(line for lines in done.warnings.values() for line in lines)])
    say(*(f"failed: {name}: {'; '.join(shown(reason).splitlines())}" for name, reason in done.failed.items()))
    evaluated = [*done.scored, *done.skipped]
    by_model = read_cards(done.folder) if evaluated else {}
    record = asdict(done)
    record = {"predictions": address(record.pop("folder")), **record}
    record["originals"] = {name: by_model[name].get("originals") for name in evaluated}
    if not gave_json(as_json, record) and evaluated:
        print(f"{address(done.folder)}: {done.pictures} pictures")
        called = {stored: name for name, stored in done.stored_as.items()}
        for name in evaluated:
            stored = f"{called[name]} (stored as {name})" if name in called else name
            again = " (already evaluated)" if name in done.skipped else ""
            print(printable(f"  {stored}: {_accuracy(by_model[name])}{again}"))
        say(f"next: unswayed analyze {address(done.folder)}")
    if evaluated:
        record_results(output, trackers, evaluated)
    if done.failed:
        raise typer.Exit(EXIT_WITH_FAILURES if evaluated or done.unfinished else EXIT_USAGE)


def _accuracy(card: Mapping[str, Any]) -> str:
    originals, subset = card["originals"], card.get("subset")
    right = "–" if originals["accuracy"] is None else f"{originals['accuracy']:.1%} of {originals['n']} originals"
    if subset and subset["accuracy"] is not None:
        right = f"{subset['accuracy']:.1%} over the {subset['classes']} classes of the folder, all classes: {right}"
    return right
