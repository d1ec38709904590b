"""`ReportSettings`: what a report shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unswayed.choices import LEAVE_OUT, Draw, LeftOut, option
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

    benchmark: Path | str | None = option(
        None, "The benchmark, if it has been moved since the evaluation.", metavar="BENCH"
    )
    leave_out: LeftOut | None = option(None, LEAVE_OUT)
    assets: Path | str | None = option(
        None, "Also write every figure as PNG, SVG and PDF and every table as CSV.", metavar="DIR"
    )
    factors: Path | str | None = option(None, "Predictions on ImageNet's validation images.", metavar="PREDICTIONS")
    sensitivity: Path | str | None = option(None, "Results of `unswayed sensitivity`.", metavar="DIR")
    distribution: Path | str | None = option(None, "CSV tables of distribution checks.", metavar="DIR")
    repair: Path | str | None = option(None, "Results of `unswayed repair`.", metavar="DIR")
    title: str = option("How much accuracy do the edits cost?", "The report's heading.")
    names: Mapping[str, str] | None = option(
        None,
        "A shorter name for a model in the report; may be repeated.",
        metavar="MODEL=NAME",
        flags=("--name",),
        read=_names,
    )
    flips: int = option(36, "Number of right-to-wrong flips to show.", least=0)
    draw: Draw = option("even", "Which flips: those that lost most probability, or an even sample of models and edits.")
    heat_maps: int = option(36, "Number of flips with heat maps; 0 loads no model.", least=0)
    trust: bool = option(
        False, "For heat maps: open models named in PREDICTIONS that run code or use the network.", flags=("--trust",)
    )
    resamples: int = option(1000, "Number of bootstrap resamples.", least=20)
    seed: int = option(0, "Random seed of the resamples and of the choice of flips.")
