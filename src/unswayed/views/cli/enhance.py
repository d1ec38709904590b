"""`unswayed enhance`: what helps one model on a benchmark without training it again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unswayed.choices import TableFormat

from .options import Device


def enhance(
    benchmark: Annotated[Path, typer.Argument(metavar="BENCH", help="A benchmark of `unswayed build`.")],
    model: Annotated[str, typer.Option("-m", "--model", help="`lite:0`, `timm:NAME`, `repaired:DIR` …")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="The predictions' folder [default: enhance/MODEL]."),
    ] = None,
    other: Annotated[
        list[str] | None, typer.Option("--with", metavar="MODEL", help="Also compare with this model; repeatable.")
    ] = None,
    by_edit: Annotated[
        bool, typer.Option("--by-edit", help="Print every measure of every edit, not only originals and average.")
    ] = False,
    device: Device = None,
    batch_size: Annotated[int | None, typer.Option(help="Pictures at once [default: what fits].")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that decode.")] = None,
    format: Annotated[TableFormat, typer.Option(help="How the table is printed.")] = "table",
) -> None:
    """Measure a model as it is, averaged over views, and adapted: the enhancement study of ImageNet-E.

        unswayed enhance bench -m lite:0

        unswayed enhance bench -m timm:resnet50.a1_in1k --with repaired:hybrid --by-edit --format markdown

    Ways: `tencrop` (mean logits over ten crops), `tencrop-probability` (mean probability over them), `flip` (mean over
    the picture and its mirror image), `object-crop` (mean over the picture and a crop around the object that the model
    sees), `bn-adapt` (batch-norm statistics estimated from the pictures). The paper's hybrid is
    `timm:hybrid_resnet50_vits?weights=none`; train it with `unswayed repair` and name the result after `--with`. Every
    difference is against the plain model on the same photographs, with a paired 95 % interval.

    DIR then holds the predictions of every way, and `DIR/enhance/enhance.json` the rows of both tables.
    """
    import polars

    from unswayed.repair.enhancing import enhance as run_enhance
    from unswayed.specs import slug_of
    from unswayed.views.tables import format_table

    from .progress import progress_line

    folder = output or Path("enhance") / slug_of(model)
    with progress_line("enhance", "answers") as show:
        found = run_enhance(
            benchmark,
            model,
            folder,
            others=other or (),
            device=device,
            batch_size=batch_size,
            workers=workers,
            progress=lambda now, total: show(now, total, ""),
        )
    for way, reason in found.skipped.items():
        typer.echo(f"skipped: {way}: {reason}", err=True)
    frame = polars.DataFrame(found.by_edit if by_edit else found.rows, infer_schema_length=None)
    headings = {
        "accuracy_difference": "change",
        "accuracy_low": "low",
        "accuracy_high": "high",
        "average_drop": "average drop",
        "drop_difference": "change of drop",
        "drop_low": "low ",
        "drop_high": "high ",
        "difference": "change",
    }
    title = f"{model} on {benchmark}: points; changes against the plain model, with paired 95 % intervals"
    print(format_table(frame, format, digits=1, headings=headings, title=title), end="")
