"""The commands that make a model more robust: `unswayed repair` trains it, `enhance` measures what helps untrained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

import unswayed
from unswayed.choices import DEVICE, Option, option
from unswayed.errors import UserError
from unswayed.files.records import read_object
from unswayed.rendering.settings import RENDERER
from unswayed.repair.settings import EnhanceSettings, RepairSettings
from unswayed.specs import slug_of

from .options import MODEL, OUTPUT, Format, Json, gave_json
from .progress import progress_line, progress_view, say, warn

Model = Annotated[str, Option("`lite:0`, `timm:NAME`, `repaired:DIR` …", flags=MODEL)]


@dataclass(frozen=True)
class RepairRun:
    """The keywords of `unswayed.repair` beside its settings."""

    new_head: bool = option(False, "Train a new classification layer for the source's classes.", flags=("--new-head",))
    also: str | None = option(None, "Labeled photographs without masks, trained on as well.", metavar="images:PATH")
    tests: Sequence[str] = option(
        (), "Also measure on this labeled folder; repeatable.", metavar="images:PATH", flags=("--test",)
    )
    benchmark: Path | None = option(None, "Measure on this benchmark instead of photographs held out.", metavar="BENCH")
    recipe: str = option(
        "original,background-random,size-0.05,position,direction", "The edits to measure on photographs held out."
    )
    renderer: str = option("paste", replace(RENDERER, help="How those edits are rendered: {values}."))
    device: str | None = option(None, DEVICE)
    workers: int | None = option(None, "Processes that prepare pictures.")
    onnx: bool = option(False, "Also write the repaired model as DIR/model.onnx.", flags=("--onnx",))


def repair(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Labeled photographs with masks: `folder:PATH` …")],
    model: Model,
    output: Annotated[Path, Option("The folder of the repaired model.", "DIR", OUTPUT)],
    settings: RepairSettings,
    run: RepairRun,
    predictions: Path | None = option(
        None, "Draw more of the edits that cost this model the most.", "PREDICTIONS", flags=("--from",)
    ),
    mixture: Path | None = option(None, "Weights and ranges of the edits, as of `EditMixture.to_json`.", "FILE.json"),
    probability: float | None = option(
        None, "Share of the pictures that are edited [default: that of --mixture, or 0.7]."
    ),
    as_json: Json = None,
) -> None:
    """
    - `unswayed repair folder:photos -m timm:resnet50.a1_in1k -o repaired`
    - `unswayed repair folder:pets -m lite:0 -o pets-model --new-head --from predictions`
    - `unswayed repair imagenet-s:/data/S919 -m timm:resnet50 -o better --also images:train --test images:v2`

    A plain fine-tune with the same photographs, crops and number of steps is always made as control. The folder then
    holds the repaired model (`evaluate -m repaired:DIR`), the control (`repaired:DIR/control`), the benchmark and the
    predictions it was measured by, and `repair.json`; `unswayed report DIR/predictions` shows all of it. Stopped or
    killed, the same command resumes.

    Exit codes: 0 the average drop certainly falls against the control, and the model is not worse than before; 1 the
    average drop certainly rises against either, or the originals certainly lose more than two points; 2 the command
    cannot be run or the disk is full; 3 neither can be told; 130 interrupted.
    """
    from unswayed.repair.measuring import EXITS
    from unswayed.repair.run import RESULT, read_result
    from unswayed.repair.settings import mixture_from, read_mixture
    from unswayed.views.report.extras import repair_table
    from unswayed.views.tables import format_table

    edits = read_mixture(mixture, **({} if probability is None else {"probability": probability}))
    if predictions is not None:
        if mixture is not None and "weights" in read_object(mixture):
            raise UserError(
                f"both --from and {mixture} give weights of the edits", allowed="one of them; --from keeps the ranges"
            )
        edits = mixture_from(predictions, model, edits)
    with progress_view() as show:
        trained = replace(settings, mixture=edits)
        done = unswayed.repair(source, model, output, trained, **vars(run), show=show, note=say)
    warn(done.warnings)
    result = read_result(output)
    if not gave_json(as_json, result):
        title, notes = f"{done.verdict}: {done.reason}", f"All numbers: {output / RESULT}."
        print(format_table(repair_table(result), title=title, digits=1, notes=notes), end="")
        print(
            f"{done.counts['train']} photographs trained on, {done.counts['train_without_mask']} of them without a "
            f"mask and so never edited; {done.counts['validation']} to choose the epoch, {done.counts['held_out']} "
            f"held out, {done.counts['unusable']} unusable"
        )
    raise typer.Exit(EXITS[done.verdict])


def enhance(
    benchmark: Annotated[Path, typer.Argument(metavar="BENCH", help="A benchmark of `unswayed build`.")],
    model: Model,
    settings: EnhanceSettings,
    output: Path | None = option(None, "The predictions' folder [default: enhance/MODEL].", "DIR", OUTPUT),
    by_edit: bool = option(False, "Print every measure of every edit, not only originals and average."),
    format: Format = "table",
) -> None:
    """
    - `unswayed enhance bench -m lite:0`
    - `unswayed enhance bench -m timm:resnet50.a1_in1k --with repaired:hybrid --by-edit --format markdown`

    Ways: `tencrop` (mean logits over ten crops), `tencrop-probability` (mean probability over them), `flip` (mean over
    the picture and its mirror image), `object-crop` (mean over the picture and a crop around the object that the model
    sees), `bn-adapt` (batch-norm statistics estimated from the pictures). The paper's hybrid is
    `timm:hybrid_resnet50_vits?weights=none`; train it with `unswayed repair` and name the result after `--with`. Every
    difference is against the plain model on the same photographs, with a paired 95 % interval.

    DIR then holds the predictions of every way, and `DIR/enhance/enhance.json` the rows of both tables.
    """
    import polars

    from unswayed.views.tables import format_table

    folder = output or Path("enhance") / slug_of(model)
    with progress_line("enhance", "answers") as show:
        enhanced = unswayed.enhance(benchmark, model, folder, settings, progress=show)
    say(*(f"skipped: {way}: {reason}" for way, reason in enhanced.skipped.items()))
    frame = polars.DataFrame(enhanced.by_edit if by_edit else enhanced.rows, infer_schema_length=None)
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
