"""A pytest plugin: the fixture `unswayed_results`, for tests of what a model loses on edited photographs.

    def test_backgrounds(unswayed_results):
        assert unswayed_results.drop("background-random") < 10

A comparison passes or fails only if the whole confidence interval lies on one side of the limit. Otherwise the test is
skipped as undecided, or fails with `--unswayed-undecided fail`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import polars

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

    def __init__(self, predictions: str | Path, undecided: Callable[[str], Any]) -> None:
        self.predictions, self._undecided = Path(predictions), undecided

    def __repr__(self) -> str:
        return f"Results('{self.predictions}')"

    @functools.cached_property
    def table(self) -> polars.DataFrame:
        """The table of `unswayed analyze`: one row per model and edit."""
        from unswayed.analyses.drops.drop import dropped_accuracy

        return dropped_accuracy(self.predictions)

    def drop(self, edit: str = "average", model: str | None = None) -> Measured:
        """Accuracy on the originals minus that on the edit, in points. model: needed if there are several."""
        row = self._row(edit, model)
        return self._measured("drop", "points", row, (row["drop"], row["low"], row["high"]))

    def net_drop(self, edit: str, model: str | None = None) -> Measured:
        """Accuracy on the edit's control minus that on the edit, in points."""
        row = self._row(edit, model)
        return self._measured("net drop", "points", row, (row["net_drop"], row["net_low"], row["net_high"]))

    def accuracy(self, edit: str = "original", model: str | None = None) -> Measured:
        """The accuracy on an edit, in percent."""
        row = self._row(edit, model)
        shares = [row[name] for name in ("accuracy", "accuracy_low", "accuracy_high")]
        return self._measured("accuracy", "%", row, tuple(None if share is None else 100 * share for share in shares))

    def _row(self, edit: str, model: str | None) -> dict[str, Any]:
        from unswayed.errors import UserError, unknown

        models = list(dict.fromkeys(self.table["model"]))
        if model is None and len(models) > 1:
            raise UserError(f"{self.predictions} holds {len(models)} models", allowed=f"model= {', '.join(models)}")
        if model is not None and model not in models:
            raise unknown("model", model, models)
        rows = self.table.filter(model=model or models[0])
        matching = rows.filter(edit=edit)
        if not matching.height:
            raise unknown("edit", edit, rows["edit"].to_list())
        return matching.row(0, named=True)

    def _measured(self, name: str, unit: str, row: dict[str, Any], estimate: tuple[float | None, ...]) -> Measured:
        from unswayed.errors import UserError

        value, low, high = estimate
        if value is None or low is None or high is None:
            raise UserError(f"{name} of {row['edit']} was not measured for {row['model']}")
        flips = functools.partial(_flips, self.predictions, row["model"], row["edit"])
        title = f"{name} of {row['model']} on {row['edit']}"
        return Measured(title, value, low, high, int(row["n"]), unit, flips, self._undecided)


@dataclass(frozen=True, eq=False)
class Measured:
    """A value with its 95 % interval, which is compared with a limit: `<`, `<=`, `>`, `>=`.

    flips: where the flips are, found only if a comparison fails and the value is shown.
    """

    title: str
    value: float
    low: float
    high: float
    n: int
    unit: str
    flips: Callable[[], str]
    undecided: Callable[[str], Any]

    def __repr__(self) -> str:
        interval = f"95 % interval {self.low:.1f} to {self.high:.1f}, n = {self.n:,}"
        return f"<{self.title}: {self.value:.1f} {self.unit} ({interval}){self.flips()}>"

    def __float__(self) -> float:
        return self.value

    def __lt__(self, limit: float) -> bool:
        return self._decided(self.high < limit, self.low >= limit, f"< {limit:g}")

    def __le__(self, limit: float) -> bool:
        return self._decided(self.high <= limit, self.low > limit, f"<= {limit:g}")

    def __gt__(self, limit: float) -> bool:
        return self._decided(self.low > limit, self.high <= limit, f"> {limit:g}")

    def __ge__(self, limit: float) -> bool:
        return self._decided(self.low >= limit, self.high < limit, f">= {limit:g}")

    def _decided(self, holds: bool, fails: bool, words: str) -> bool:
        if not holds and not fails:
            self.undecided(f"cannot tell whether {self!r} {words}: more photographs are needed")
        return holds


def _flips(predictions: Path, model: str, edit: str) -> str:
    """Where the flips of one edit lie: how many, their most frequent classes, and the worst photographs."""
    import polars as pl

    from unswayed.analyses.flips import FLIP_COLUMNS, find_flips, worst_flips
    from unswayed.evaluation.facts import read_facts
    from unswayed.evaluation.predictions import columns_of

    if any(name not in columns_of(predictions) for name in FLIP_COLUMNS[:-2]):
        return ""
    counts = find_flips(predictions, limit=0).counts.filter(pl.col("model") == model, pl.col("edit") == edit)
    number = int(counts["flips"].sum())
    if not number:
        return ""
    facts = read_facts(predictions)
    worst = worst_flips(predictions, [model], [edit], limit=3)
    shown = (
        f"{flip.source_id} ({facts.class_name(flip.label)} became {facts.class_name(flip.after)}, "
        f"{flip.after_probability:.0%})"
        for flip in worst
    )
    return f"; {number} flip{'s' * (number != 1)}, the worst: {', '.join(shown)}"
