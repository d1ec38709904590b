"""Tables in, tables out: what the stored predictions say. Nothing here opens a picture or a network.

`ANALYSES` declares the tables of `unswayed analyze --table NAME`. Another installed package adds one as an entry point
of the group `unswayed.analyses`: a function from a polars frame of predictions to a polars frame, decorated with
`unswayed.registry.declare(help=…, facts={"title": …})`; it is then also a section of the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from unswayed.errors import UserError
from unswayed.registry import Part, Registry

if TYPE_CHECKING:
    import polars as pl

Row = dict[str, Any]  # of a table, by column
_FINE = dict.fromkeys(("level", "halfway", "half_lost", "low", "half_low", "threshold", "fitted"), 4)
_RESAMPLED = ("facts", "resamples", "level", "seed")
_SWEEPS = "There is no sweep of at least three levels in these predictions"


@dataclass(frozen=True)
class TableFacts:
    """How a table is made and displayed.

    options: the keywords of `unswayed.analyses.tables.analyze` that its function takes. columns: the names of those
    that are displayed, with spaces between them, `low..high` for an interval; all if empty. notes: what a reader must
    know; empty: what is said instead where there are no rows. percent: the columns with shares in [0, 1] that are
    displayed in percent.
    """

    title: str
    columns: str = ""
    notes: str = ""
    empty: str = "The table has no rows"
    options: tuple[str, ...] = ()
    digits: Mapping[str, int] = field(default_factory=lambda: {"p_holm": 4, "level": 4})
    percent: tuple[str, ...] = ()


def _part(function: str, about: str, **facts: object) -> Part:
    return Part(f"unswayed.analyses.{function}", about, facts=facts)


ANALYSES: Registry[Callable[..., pl.DataFrame]] = Registry(
    "table",
    {
        "drops": _part(
            "tables:drop_table",
            "the accuracy that each edit costs",
            title="Dropped accuracy",
            options=(*_RESAMPLED, "by", "groups", "models", "edits", "interval", "condition"),
        ),
        "attributes": _part(
            "drops.drop:attribute_averages",
            "the mean drop over the edits of each attribute, such as background or size",
            title="Dropped accuracy by attribute",
            columns="model attribute edits n drop low..high net_drop net_low..net_high p_holm accuracy",
            notes="Drops in points, means over the edits of the attribute that enter the average; net: relative to "
            "each edit's control; accuracy in %. p_holm: of the drop, corrected over the table.",
            options=(*_RESAMPLED, "models"),
            percent=("accuracy",),
        ),
        "curves": _part(
            "drops.curves:accuracy_curves",
            "accuracy along each attribute of a sweep",
            title="Accuracy along each attribute",
            columns="model attribute side level n accuracy low..high true_probability",
            notes="Accuracies in % with intervals; true_probability: mean probability of the true class in %.",
            empty=_SWEEPS,
            options=("facts", "level"),
            digits={"level": 4},
            percent=("accuracy", "low", "high", "true_probability"),
        ),
        "fits": _part(
            "drops.curves:curve_fits",
            "the fitted curve of a sweep: its halfway level, and the level at which half of the accuracy is lost",
            title="Fitted curves: halfway between floor and ceiling, and where half of the accuracy is lost",
            columns="model attribute side halfway low..high half_lost half_low..half_high n floor ceiling levels scale",
            notes="In the attribute's own unit. halfway: the level at which accuracy is midway between floor and "
            "ceiling; a dash if it is outside the levels of the sweep, accuracy is flat, or the ceiling was not "
            "reached. half_lost: the level at which accuracy is half of that on the originals; a dash if that is "
            "outside the levels. Floor and ceiling in %.",
            empty="There is no sweep of at least five levels in these predictions, which the fit of a curve needs "
            "(`--table thresholds` needs three)",
            options=_RESAMPLED,
            digits={**_FINE, "floor": 2, "ceiling": 2},
            percent=("floor", "ceiling"),
        ),
        "thresholds": _part(
            "drops.curves:thresholds",
            "the hardest level of a sweep that still meets a target",
            title="The hardest level at which each target is still met",
            columns="model attribute side target met threshold low..high n fitted harder",
            notes="threshold: in the attribute's own unit, by isotonic regression, with its interval; fitted: by the "
            "fitted curve; harder: the side on which accuracy is lower.",
            empty=_SWEEPS,
            options=(*_RESAMPLED, "accuracy", "drop"),
            digits=_FINE,
        ),
        "flips": _part(
            "drops.curves:smallest_flips",
            "the smallest change of a sweep that flips each prediction",
            title="The smallest change that flips the prediction for each picture",
            columns="model attribute side source_id level returns",
            notes="level: a dash if no level flips it; returns: the prediction is right again at a harder level.",
            empty=_SWEEPS,
            options=("facts",),
        ),
        "fills": _part(
            "drops.drop:fill_spread",
            "how far the drops depend on what fills the object's old place",
            title="Drops over different fills of the object's old place",
            columns="model edit n runs drop lowest highest differing",
            notes="Points; lowest, highest: the drops over each fill (or run) alone; differing: the photographs, in %, "
            "that are classified right over one fill and wrong over another.",
            empty="Every picture was made once: build with --fills 2 (or --runs 2)",
            percent=("differing",),
        ),
        "corruptions": _part(
            "drops.curves:corruption_errors",
            "corruption errors on ImageNet-C",
            title="Corruption error on ImageNet-C",
            columns="model corruption n severities error alexnet ce",
            notes="error: top-1 error in %, mean over the severities; ce: in % of AlexNet's error; mean: over the "
            "fifteen corruptions of the benchmark, its ce is the mean corruption error (mCE).",
            empty=_SWEEPS,
            options=("facts",),
        ),
        "interactions": _part(
            "drops.sweeps:interactions",
            "what two attributes of a grid cost together beyond their sum",
            title="Interactions of two attributes",
            columns="model first second n interaction low..high p_holm drop first_drop second_drop",
            notes="Points; interaction = drop - first_drop - second_drop, positive if the pair is worse than the sum.",
            empty="There is no grid of two attributes in these predictions",
            options=_RESAMPLED,
        ),
        "objects": _part(
            "objects:object_measures",
            "mean IoU and average precision of detectors and segmenters",
            title="Mean IoU and average precision by edit",
            columns="model edit n accuracy iou iou_low..iou_high ap ap_low..ap_high",
            notes="In %, with bootstrap intervals over photographs. iou: mean IoU of the right class with the object, "
            "0 where it is not found; ap: average precision at IoU 0.5 over every object of the pictures, mean over "
            "their classes.",
            empty="No detector or segmenter is among these predictions",
            options=_RESAMPLED,
            percent=("accuracy", "iou", "iou_low", "iou_high", "ap", "ap_low", "ap_high"),
        ),
        "outcomes": _part(
            "flips:answer_outcomes",
            "what became of the questions to vision-language models",
            title="Answers of vision-language models",
            columns="model edit n answered unmatched refused truncated no_reply accuracy",
            notes="Numbers of questions. What is no answer counts as wrong: unmatched, a text that means no class, or "
            "more than one; refused; truncated, longer than max_tokens; no_reply, by the protocol and in time. "
            "accuracy: in % of all questions.",
            empty="No vision-language model is among these predictions",
            percent=("accuracy", "of_answered"),
        ),
    },
    group="unswayed.analyses",
    check=lambda _, thing: None if callable(thing) else "a function from a frame of predictions to a frame",
)


def table_facts(name: str) -> TableFacts:
    """How the table `name` is made and displayed."""
    return TableFacts(**{"title": name, **ANALYSES.part(name).facts})


def tables_help() -> str:
    """What each table shows, for the help of the option `--table`."""
    lines = []
    for name in ANALYSES:
        try:
            about = ANALYSES.part(name).help
        except UserError:  # it is refused with its reason where it is asked for
            about = ""
        lines.append(f"`{name}`: {about}" if about else f"`{name}`")
    return "; ".join(lines) + "."


# A column has the same type in every table; what is not listed is a measure.
_TEXTS = (
    "model edit kind interval control first second reference attribute side scale source_id target harder met question "
    "measure verdict reason set note factor norm region method class worst_model grouping example"
)
_COUNTS = (
    "n runs net_n edits models levels more photographs n_right n_wrong answered unmatched refused truncated no_reply"
)
_FLAGS = "white_box returns"


def schema(names: str) -> dict[str, Any]:
    """Return the types of a table's columns, named in their order and separated by spaces; a measure is Float64.

    >>> schema("model n drop")
    {'model': String, 'n': Int64, 'drop': Float64}
    """
    import polars as pl

    kinds: dict[object, str] = {pl.String: _TEXTS, pl.Int64: _COUNTS, pl.Boolean: _FLAGS}
    types = {name: kind for kind, listed in kinds.items() for name in listed.split()}
    return {name: types.get(name, pl.Float64) for name in names.split()}
