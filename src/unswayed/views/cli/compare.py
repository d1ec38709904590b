"""`unswayed compare`: test whether two models differ, for each edit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from unswayed.choices import TableFormat


def compare(
    predictions: Annotated[Path, typer.Argument(help="The folder that `unswayed evaluate` wrote.")],
    models: Annotated[
        list[str] | None, typer.Argument(metavar="[A B …]", help="Two models, or more for all pairs [default: all].")
    ] = None,
    measure: Annotated[
        Literal["accuracy", "drop", "net"],
        typer.Option(help="What is compared: accuracy, its drop, or the drop net of each edit's control."),
    ] = "drop",
    other: Annotated[Path | None, typer.Option(help="The folder of B's predictions, if it is not the same.")] = None,
    same: Annotated[
        bool, typer.Option("--same-model", help="A and B are one model in two forms: did the conversion cost anything?")
    ] = False,
    margin: Annotated[
        float | None, typer.Option(help="With --same-model: points of difference that count as none [default: 1].")
    ] = None,
    common: Annotated[
        bool, typer.Option("--common", help="If the benchmarks differ, compare only the pictures they share.")
    ] = False,
    format: Annotated[TableFormat, typer.Option(help="The format of the table.")] = "table",
    resamples: Annotated[int, typer.Option(min=20, help="Number of bootstrap resamples.")] = 1000,
    seed: Annotated[int, typer.Option(help="Random seed of the resamples.")] = 0,
) -> None:
    """Test for each edit whether model A is better than model B.

    The models are compared on the same photographs with paired tests. With more than two models, or without any, every
    pair of models is compared. The p-values are corrected for the number of tests in the table (Holm). Models that
    were evaluated on different benchmarks are refused.

    With `--same-model`, B is a converted form of A, quantized for instance: each edit is also tested for equivalence
    within the margin, and the last line answers in one sentence whether the conversion cost robustness.

    Examples:

    `unswayed compare predictions/ lite:0 lite:2`

    `unswayed compare predictions/ lite:0 lite:2 --measure accuracy`

    `unswayed compare new/ lite:0 lite:0 --other old/`

    `unswayed compare predictions/ lite:0 onnx:lite0-int8.onnx --same-model`

    `unswayed compare predictions/`
    """
    from unswayed.analyses.drops.compare import compare as compare_models
    from unswayed.analyses.drops.compare import compare_all, same_model
    from unswayed.errors import UserError
    from unswayed.evaluation.facts import read_facts
    from unswayed.views.report.remarks import remark_lines
    from unswayed.views.report.verdict_tables import comparison_text, same_model_text

    names = models or []
    if other is not None and len(names) == 1:
        names = names * 2  # one name: the same model in both folders
    if margin is not None and not same:
        raise UserError(f"--margin {margin:g} needs --same-model", run="unswayed check … --margin for a gate")
    if same:
        if len(names) != 2 or measure != "drop":
            raise UserError("--same-model compares the drops of exactly two models", allowed="A B --same-model")
        found = same_model(
            predictions,
            *names,
            other=other,
            margin=1.0 if margin is None else margin,
            common=common,
            resamples=resamples,
            seed=seed,
        )
        typer.echo(same_model_text(found, names, format), nl=False)
        return
    if len(names) == 1 or (other is not None and len(names) != 2):
        raise UserError(
            f"{len(names)} model{'s' * (len(names) != 1)} to compare",
            allowed="two models" if other is not None else "two or more models, or none for all pairs",
        )
    settings: dict[str, Any] = {"common": common, "measure": measure, "resamples": resamples, "seed": seed}
    if len(names) == 2:
        facts = read_facts(predictions, models=names[:1], common=common)
        table = compare_models(predictions, names[0], names[1], other=other, facts=facts, **settings)
    else:
        table = compare_all(predictions, names or None, **settings)
    remarks = remark_lines(predictions, names, common, other)
    for line in remarks:
        typer.echo(line, err=True)
    typer.echo(comparison_text(table, names, format, measure, remarks), nl=False)
