"""`ReportSettings`: what a report shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from unswayed.choices import LEAVE_OUT, Draw, LeftOut, Option, check_choice
from unswayed.errors import UserError


def _names(texts: Sequence[str]) -> dict[str, str]:
    """Model -> shorter name of `MODEL=NAME`; a model may itself contain `=`."""
    names = {}
    for text in texts:
        model, _, name = text.rpartition("=")
        if not model or not name:
            raise UserError(f"--name {text}", allowed="MODEL=NAME, such as timm:resnet50.a1_in1k=resnet50")
        names[model] = name
    return names


@dataclass(frozen=True, kw_only=True)
class ReportSettings:
    """What a report shows besides the predictions.

    factors, sensitivity, distribution and repair are also found next to the predictions under these names. names:
    shorter names of models. heat_maps: 0 loads no model. trust: also open models that can run code or use the network.
    """

    benchmark: Annotated[
        Path | str | None, Option("The benchmark, if it has been moved since the evaluation.", metavar="BENCH")
    ] = None
    leave_out: Annotated[LeftOut | None, LEAVE_OUT] = None
    assets: Annotated[
        Path | str | None,
        Option("Also write every figure as PNG, SVG and PDF and every table as CSV.", metavar="DIR"),
    ] = None
    factors: Annotated[
        Path | str | None, Option("Predictions on ImageNet's validation images.", metavar="PREDICTIONS")
    ] = None
    sensitivity: Annotated[Path | str | None, Option("Results of `unswayed sensitivity`.", metavar="DIR")] = None
    distribution: Annotated[Path | str | None, Option("CSV tables of distribution checks.", metavar="DIR")] = None
    repair: Annotated[Path | str | None, Option("Results of `unswayed repair`.", metavar="DIR")] = None
    title: Annotated[str, Option("The report's heading.")] = "How much accuracy do the edits cost?"
    names: Annotated[
        Mapping[str, str] | None,
        Option(
            "A shorter name for a model in the report; may be repeated.",
            metavar="MODEL=NAME",
            flags=("--name",),
            read=_names,
        ),
    ] = None
    flips: Annotated[int, Option("Number of right-to-wrong flips to show.")] = 36
    draw: Annotated[
        Draw, Option("Which flips: those that lost most probability, or an even sample of models and edits.")
    ] = "even"
    heat_maps: Annotated[int, Option("Number of flips with heat maps; 0 loads no model.")] = 36
    trust: Annotated[
        bool,
        Option("For heat maps: open models named in PREDICTIONS that run code or use the network.", flags=("--trust",)),
    ] = False
    resamples: Annotated[int, Option("Number of bootstrap resamples.", least=20)] = 1000
    seed: Annotated[int, Option("Random seed of the resamples and of the choice of flips.")] = 0

    def __post_init__(self) -> None:
        check_choice("draw", self.draw, Draw)
        if self.flips < 0 or self.heat_maps < 0:
            raise UserError(f"flips is {self.flips}, heat_maps {self.heat_maps}", allowed="0 or more")
