"""The commands that answer questions from stored predictions: `unswayed analyze`, `compare`, `check` and `plan`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import unswayed
from unswayed.analyses.settings import AnalyzeSettings, CompareSettings, Condition, GateSettings, PlanSettings
from unswayed.choices import TableFormat, WideMeasure, option
from unswayed.errors import UserError
from unswayed.files.storage import address
from unswayed.files.whole import write_bytes

from .options import Format, Json, Predictions, gave_json
from .progress import say, warn


def analyze(
    predictions: Predictions,
    settings: AnalyzeSettings,
    wide: bool = option(False, "One row per model and one column per edit, as in the papers' tables."),
    measure: WideMeasure = option("drop", "For `--wide`: what the cells hold."),
    against: str | None = option(
        None,
        "With `--groups FILE`: drops along a column of numbers, such as a training budget; drawn if the "
        "output ends in .png, .svg or .pdf.",
        metavar="COLUMN",
    ),
    valid_only: bool = option(False, "Only pictures whose measured validity is 0.5 or more."),
    human_valid_only: bool = option(False, "Only pictures that most raters called valid (`unswayed review`)."),
    format: TableFormat | None = option(None, "The format of the table [default: table, or by the output's suffix]."),
    output: Path | None = option(None, "Write to this file (.csv, .json, .md, .tex, .txt).", flags=("--output", "-o")),
) -> None:
    """
    A drop is the accuracy on the originals minus the accuracy on the edited pictures of the same photographs, in
    points. A net drop is measured against the edit's control, which shows what the rendering alone costs.

    - `unswayed analyze predictions/`
    - `unswayed analyze predictions/ --by class --edit size-0.05 --format csv -o classes.csv`
    - `unswayed analyze predictions/ --groups models.csv --format latex`
    - `unswayed analyze predictions/ --wide --format latex`
    - `unswayed analyze predictions/ --groups models.csv --against budget -o budget.svg`
    - `unswayed analyze predictions/ --table fits`
    - `unswayed analyze predictions/ --table thresholds --at-accuracy 80 --at-drop 10`
    """
    from unswayed.evaluation.model_cards import read_cards
    from unswayed.views.report import drop_tables
    from unswayed.views.report.figures_drops import against_figure
    from unswayed.views.report.section import SUFFIXES, figure_bytes
    from unswayed.views.tables import format_of, format_table

    if valid_only and human_valid_only:
        raise UserError("--valid-only and --human-valid-only are two conditions", allowed="one of them")
    if wide and (settings.by or settings.table != "drops" or against):
        raise UserError("--wide is for the table of drops", allowed="--wide without --by, --table and --against")
    if against is not None and (settings.groups in (None, "all") or settings.table != "drops"):
        raise UserError("--against needs a file of groups with that column", run="unswayed analyze … --groups FILE")
    suffix = "" if output is None else output.suffix.lower()
    drawn = against is not None and suffix in SUFFIXES
    chosen = format or ("table" if drawn else format_of(output))
    warn(drop_tables.failure_lines(predictions))  # first, since a folder of failures alone is refused by what follows
    warn(drop_tables.moved_lines(predictions) if settings.benchmark is None else [])
    condition: Condition | None = "measured" if valid_only else "human" if human_valid_only else None
    rows = replace(settings, condition=condition, edits=None if against else settings.edits)
    frame = unswayed.analyze(predictions, rows)
    models = settings.models if settings.groups is None else None
    remarks, cards = drop_tables.remark_lines(predictions, models, settings.common), read_cards(predictions)
    if chosen != "table" or output is not None or not sys.stdout.isatty():  # a table repeats them
        say(*remarks)
    if against is not None:
        curve = drop_tables.along(frame, against, settings.edits)
        title = f"Dropped accuracy along {against}"
        text = "" if drawn else format_table(curve, chosen, digits={against: 4}, title=title)
        content = figure_bytes(against_figure(curve, against), suffix[1:]) if drawn else text.encode()
    elif wide:
        content = drop_tables.wide_text(frame, measure, chosen, remarks, cards).encode()
    else:
        levels = drop_tables.swept(predictions, settings.benchmark) if frame.is_empty() else ""
        # A terminal gets colors; typer removes them where the output goes into a file or another program.
        color = output is None and "NO_COLOR" not in os.environ
        content = drop_tables.analysis_text(
            frame, settings.table, chosen, settings.by, settings.level, remarks, levels, color, cards
        ).encode()
    if output is not None:
        write_bytes(output, content)
        return
    typer.echo(content.decode(), nl=False)
    if chosen == "table":
        _suggest_report(predictions)


def _suggest_report(predictions: Path) -> None:
    from unswayed.views.demo import refuse_programs

    try:
        refuse_programs(predictions)
        say(f"next: unswayed report {address(predictions)} -o report.html")
    except UserError:
        say(f"next: unswayed report {address(predictions)} -o report.html --heat-maps 0")
        say("(--trust instead of --heat-maps 0 runs the code of the models, for heat maps)")


def compare(
    predictions: Predictions,
    settings: CompareSettings,
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL", help="Two models, or more for all pairs [default: all].")
    ] = None,
    same: bool = option(
        False, "A and B are one model in two forms: did the conversion cost anything?", flags=("--same-model",)
    ),
    margin: float | None = option(None, "With --same-model: points of difference that count as none [default: 1]."),
    format: Format = "table",
) -> None:
    """
    The models are compared on the same photographs with paired tests. With more than two models, or without any, every
    pair of models is compared. The p-values are corrected for the number of tests in the table (Holm). Models that
    were evaluated on different benchmarks are refused.

    With `--same-model`, B is a converted form of A, quantized for instance: each edit is also tested for equivalence
    within the margin, and the last line answers in one sentence whether the conversion cost robustness.

    - `unswayed compare predictions/ lite:0 lite:2`
    - `unswayed compare predictions/ lite:0 lite:2 --measure accuracy`
    - `unswayed compare new/ lite:0 lite:0 --other old/`
    - `unswayed compare predictions/ lite:0 onnx:lite0-int8.onnx --same-model`
    - `unswayed compare predictions/`
    """
    from unswayed.analyses.drops.compare import compare_all
    from unswayed.evaluation.facts import read_facts
    from unswayed.views.report.drop_tables import remark_lines
    from unswayed.views.report.verdict_tables import comparison_text, same_model_text

    names, other = models or [], settings.other if isinstance(settings.other, Path) else None
    if other is not None and len(names) == 1:
        names = names * 2  # one name: the same model in both folders
    if margin is not None and not same:
        raise UserError(f"--margin {margin:g} needs --same-model", run="unswayed check … --margin for a gate")
    if same:
        if len(names) != 2 or settings.measure != "drop":
            raise UserError("--same-model compares the drops of exactly two models", allowed="A B --same-model")
        answer = unswayed.same_model(
            predictions, names[0], names[1], other=other, margin=1.0 if margin is None else margin,
            common=settings.common, resamples=settings.resamples, seed=settings.seed,
        )  # fmt: skip
        typer.echo(same_model_text(answer, names, format), nl=False)
        return
    if len(names) == 1 or (other is not None and len(names) != 2):
        raise UserError(
            f"{len(names)} model{'s' * (len(names) != 1)} to compare",
            allowed="two models" if other is not None else "two or more models, or none for all pairs",
        )
    if len(names) == 2:
        facts = read_facts(predictions, models=names[:1], common=settings.common)
        table = unswayed.compare(predictions, names[0], names[1], settings, facts=facts)
    else:
        table = compare_all(predictions, names or None, settings)
    remarks = remark_lines(predictions, names, settings.common, other)
    say(*remarks)
    typer.echo(comparison_text(table, names, format, settings.measure, remarks), nl=False)


def check(
    predictions: Predictions,
    settings: GateSettings,
    as_json: Json = None,
    junit: Path | None = option(None, "Also write the checks to this JUnit XML file."),
    markdown: Path | None = option(None, "Also write verdict, checks and worst flips to this Markdown file."),
    format: Format = "table",
) -> None:
    """
    A check passes or fails only if its whole confidence interval lies on one side of the limit. If the interval
    contains the limit, the check is undecided and more photographs are needed. Predictions on another benchmark than
    the baseline's are refused. A model whose labels or transform look wrong never passes.

    Exit codes: 0 every check passes, 1 a check fails, 2 wrong command, 3 a check is undecided or was not measured.

    - `unswayed check predictions/ --max-drop size-0.05=20 --max-drop "size-0.*=25" --min-accuracy 75`
    - `unswayed check predictions/ --min-threshold size=0.04@80`
    - `unswayed check new/ --baseline old/ --margin 1 --junit check.xml`
    - `unswayed check predictions/ --config gate.toml --json check.json`
    """
    from unswayed.analyses.drops.gate import EXITS, junit_xml
    from unswayed.views.report.verdict_tables import check_markdown, checks_text

    checked = unswayed.check(predictions, settings)
    if junit is not None:
        write_bytes(junit, junit_xml(checked.checks, checked.remarks))
    if markdown is not None:
        write_bytes(markdown, check_markdown(checked, predictions).encode())
    if not gave_json(as_json, checked.to_json()):
        typer.echo(checks_text(checked.checks, checked.verdict, format, checked.remarks), nl=False)
    raise typer.Exit(EXITS[checked.verdict])


def plan(
    settings: PlanSettings,
    pilot: Annotated[
        Path | None,
        typer.Argument(metavar="PREDICTIONS", help="A pilot experiment: a folder that `unswayed evaluate` wrote."),
    ] = None,
    format: Format = "table",
) -> None:
    """
    Each row is for one edit and one model, compared on the same photographs with McNemar's exact test for one run and
    the sign-flip test over photographs for several runs. Without a pilot the assumptions are --accuracy, --gains and
    --correlation.

    - `unswayed plan -n 200 -n 1000`
    - `unswayed plan --drop 2 --drop 5 --gains 4`
    - `unswayed plan predictions/ --edit size-0.05 --max-drop 20`
    - `unswayed plan predictions/ --runs 5 --tests 11`
    """
    from unswayed.views.tables import format_table

    made = unswayed.plan(pilot, settings)
    table = made.table
    if format not in ("csv", "json"):
        table = table[[column.name for column in table if column.null_count() < len(table)]]
    notes = (
        f"{made.assumptions} Drops are in points, discordance (predictions that change) in %; `power` is computed, "
        "`simulated` is the share of simulated experiments."
    )
    title = f"Photographs for a power of {100 * settings.power:g} % at level {settings.level:g}"
    title += f" shared by {settings.tests} tests" if settings.tests > 1 else ""
    headings, digits = {"max_drop": "allowed drop"}, {"power": 3, "simulated": 3}
    typer.echo(format_table(table, format, digits=digits, headings=headings, title=title, notes=notes), nl=False)
