"""A pytest plugin: the fixture `unswayed_results`, for tests of what a model loses on edited photographs.

    def test_backgrounds(unswayed_results):
        assert unswayed_results.drop("background-random") < 10

A comparison is judged as `unswayed check` judges the same limit: it passes or fails only if the whole confidence
interval lies on one side of the limit. Otherwise the test is skipped as undecided, or fails with `--unswayed-undecided
fail`. What `check` calls not measured, such as any number of a suspicious model, fails the test with its reason.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import polars

    from unswayed.evaluation.facts import Facts
    from unswayed.views.tables import Row

VARIABLE = "UNSWAYED_PREDICTIONS"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("unswayed", "robustness to edits of photographs")
    words = "the folder that `unswayed evaluate` wrote"
    group.addoption("--unswayed-predictions", metavar="FOLDER", help=f"{words} [default: ${VARIABLE} or the ini file]")
    group.addoption(
        "--unswayed-undecided",
        choices=("skip", "fail"),
        default="skip",
        help="what a test does if its interval contains the limit [default: skip]",
    )
    parser.addini("unswayed_predictions", f"{words}, relative to the ini file", default="")


@pytest.fixture(scope="session")
def unswayed_results(request: pytest.FixtureRequest) -> Results:
    """The accuracies and drops in a folder of predictions; without a folder the test is skipped."""
    config = request.config
    chosen = config.getoption("--unswayed-predictions") or os.environ.get(VARIABLE)
    inifile = config.getini("unswayed_predictions")
    folder = Path(chosen) if chosen else config.rootpath / inifile if inifile else None
    if folder is None:
        pytest.skip("no predictions: unswayed evaluate BENCH -m MODEL -o P, then pytest --unswayed-predictions P")
    # Looked up when it is called: `pytest.skip` and `pytest.fail` end the test with their reason.
    undecided = pytest.fail if config.getoption("--unswayed-undecided") == "fail" else pytest.skip
    return Results(folder, undecided)


class Results:
    """The results of a folder of predictions."""

    def __init__(self, predictions: str | Path, undecided: Callable[[str], object]) -> None:
        self.predictions, self._undecided = Path(predictions), undecided

    def __repr__(self) -> str:
        return f"Results('{self.predictions}')"

    @functools.cached_property
    def facts(self) -> Facts:
        """What is known about the edits and the models besides the predictions."""
        from unswayed.evaluation.facts import read_facts

        return read_facts(self.predictions)

    @functools.cached_property
    def table(self) -> polars.DataFrame:
        """The table of `unswayed analyze`: one row per model and edit."""
        from unswayed.analyses.drops.drop import dropped_accuracy

        return dropped_accuracy(self.predictions, facts=self.facts)

    def drop(self, edit: str = "average", model: str | None = None) -> Measurement:
        """Accuracy on the originals minus that on the edit, in points. model: needed if there are several."""
        return self._measured("drop", edit, model)

    def net_drop(self, edit: str, model: str | None = None) -> Measurement:
        """Accuracy on the edit's control minus that on the edit, in points."""
        return self._measured("net drop", edit, model)

    def accuracy(self, edit: str = "original", model: str | None = None) -> Measurement:
        """The accuracy on an edit, in percent."""
        return self._measured("accuracy", edit, model)

    def _measured(self, measure: str, edit: str, model: str | None) -> Measurement:
        from unswayed.analyses.drops.limits import judge, why_missing
        from unswayed.errors import UserError, unknown

        models = list(dict.fromkeys(self.table["model"]))
        if model is None and len(models) > 1:
            raise UserError(f"{self.predictions} holds {len(models)} models", allowed=f"model= {', '.join(models)}")
        if model is not None and model not in models:
            raise unknown("model", model, models)
        rows = self.table.filter(model=model or models[0])
        matching = rows.filter(edit=edit)
        if not matching.height:
            if edit in self.facts.order:
                raise UserError(f"{measure} of {edit} was not measured: {why_missing(edit, self.facts)}")
            raise unknown("edit", edit, rows["edit"].to_list())
        row = matching.row(0, named=True)
        flips = functools.partial(_flips, self.predictions, row["model"], edit, self.facts)
        verdict = functools.partial(judge, row, measure, facts=self.facts, level=0.95)
        return Measurement(f"{measure} of {row['model']} on {edit}", verdict, flips, self._undecided)


@dataclass(frozen=True, eq=False)
class Measurement:
    """A value with its 95 % interval, which is compared with a limit: `<`, `<=`, `>`, `>=`.

    judge: the check of `unswayed check` for a limit; flips: where the flips are, found only if a comparison fails and
    the value is shown.
    """

    title: str
    judge: Callable[..., Row]
    flips: Callable[[], str]
    undecided: Callable[[str], object]

    def __repr__(self) -> str:
        row = self.judge(limit=100.0, must="at least")
        if "value" not in row:
            return f"<{self.title}: {row['reason']}>"
        unit = "%" if row["measure"] == "accuracy" else "points"
        interval = f"95 % interval {row['low']:.1f} to {row['high']:.1f}, n = {row['n']:,}"
        return f"<{self.title}: {row['value'] + 0.0:.1f} {unit} ({interval}){self.flips()}>"

    def __float__(self) -> float:
        row = self.judge(limit=100.0, must="at least")
        return float(row["value"]) if "value" in row else float("nan")

    def __lt__(self, limit: float) -> bool:
        return self._holds(limit, "at most", "<", lambda row: row["high"] < limit)

    def __le__(self, limit: float) -> bool:
        return self._holds(limit, "at most", "<=", lambda row: True)

    def __gt__(self, limit: float) -> bool:
        return self._holds(limit, "at least", ">", lambda row: row["low"] > limit)

    def __ge__(self, limit: float) -> bool:
        return self._holds(limit, "at least", ">=", lambda row: True)

    def _holds(self, limit: float, must: str, sign: str, strictly: Callable[[Row], bool]) -> bool:
        row = self.judge(limit=limit, must=must)
        if row["verdict"] == "not measured":
            pytest.fail(f"{self.title} {sign} {limit:g} is {row['reason']}")
        if row["verdict"] == "cannot tell":
            self.undecided(f"cannot tell whether {self!r} {sign} {limit:g}: {row['reason']}")
        return row["verdict"] == "pass" and strictly(row)


def _flips(predictions: Path, model: str, edit: str, facts: Facts) -> str:
    """Where the flips of one edit lie: how many, their most frequent classes, and the worst photographs."""
    import polars as pl

    from unswayed.analyses.flips import FLIP_COLUMNS, find_flips, worst_flips
    from unswayed.evaluation.predictions import columns_of

    if any(name not in columns_of(predictions) for name in FLIP_COLUMNS[:-2]):
        return ""
    counts = find_flips(predictions, limit=0).counts.filter(pl.col("model") == model, pl.col("edit") == edit)
    number = int(counts["flips"].sum())
    if not number:
        return ""
    worst = worst_flips(predictions, [model], [edit], limit=3)
    shown = (
        f"{flip.source_id} ({facts.class_name(flip.label)} became {facts.class_name(flip.after)}, "
        f"{flip.after_probability:.0%})"
        for flip in worst
    )
    return f"; {number} flip{'s' * (number != 1)}, the worst: {', '.join(shown)}"
