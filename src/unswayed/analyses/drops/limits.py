"""The rules of a gate, and its checks of limits of drop, accuracy and threshold, each judged by its interval."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl

from unswayed.errors import UserError, unknown
from unswayed.evaluation.facts import ORIGINAL, SOURCE, Facts
from unswayed.evaluation.model_cards import chance_in
from unswayed.files.whole import read_toml

from .. import Row, schema
from ..settings import parse_threshold
from ..statistics.paired import IntervalSettings
from ..statistics.power import photographs_to_tell
from .curves import threshold_bounds
from .outcomes import Outcomes, need_original
from .sweeps import find_sweeps, levels_found

Verdict = Literal["pass", "fail", "cannot tell", "not measured"]
PASS: Verdict = "pass"
FAIL: Verdict = "fail"
CANNOT_TELL: Verdict = "cannot tell"
NOT_MEASURED: Verdict = "not measured"
Must = Literal["at most", "at least"]
MEASURES = ("accuracy", "drop")
SCHEMA = schema("model edit measure n value low high threshold verdict more reason")
_KINDS = (
    "--max-drop EDIT=POINTS, --min-accuracy EDIT=PERCENT, --min-threshold ATTRIBUTE=LEVEL@PERCENT, "
    "--baseline PREDICTIONS or --config FILE.toml"
)


@dataclass(frozen=True)
class Rules:
    """The requirements of a gate.

    max_drop: edit (or a pattern such as `size-*`, or `average`) -> points; min_accuracy: edit or pattern -> percent;
    min_threshold: attribute of a sweep -> (level, percent), the level down to which that accuracy must be kept;
    baseline: predictions not to fall behind by more than `margin` points of `measure`, accuracy or drop, on any edit;
    level: of the intervals; models: those to check, all if empty.
    """

    max_drop: Mapping[str, float] = field(default_factory=dict)
    min_accuracy: Mapping[str, float] = field(default_factory=dict)
    min_threshold: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    baseline: str | Path | pl.DataFrame | None = None
    margin: float = 0.0
    measure: str = "accuracy"
    level: float = 0.95
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.max_drop or self.min_accuracy or self.min_threshold) and self.baseline is None:
            raise UserError("there is nothing to check", allowed=_KINDS)
        if self.measure not in MEASURES:
            raise unknown("measure", self.measure, MEASURES)
        if self.margin < 0:
            raise UserError(f"the margin is {self.margin:g} points", allowed="0 or more")
        for edit, points in self.max_drop.items():
            if not -100 <= points <= 100:
                raise UserError(f"the drop allowed for {edit} is {points:g} points", allowed="-100 to 100")
        for edit, percent in self.min_accuracy.items():
            if not (percent == 0 or 1 < percent <= 100):
                raise UserError(f"the accuracy wanted for {edit} is {percent:g} %", allowed="percent: 90 means 90 %")

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return a sentence for each limit that looks like a fraction where points are expected."""
        few = ((edit, f"{points:g}", f"{100 * points:g}") for edit, points in self.max_drop.items() if 0 < points < 1)
        words = "the limit {0}={1} allows a drop of {1} points of 100; for {2} points, write {0}={2}"
        return tuple(words.format(*limit) for limit in few)


def read_rules(config: str | Path | None, **given: Any) -> Rules:
    """Return the rules from a TOML file and from arguments, which override the file.

    The file: tables [max-drop] and [min-accuracy] (edit = number), [min-threshold] (size = "0.04@80"), a table
    [baseline] (path, margin, measure), and `level`, `models` at the top.
    """
    content: dict[str, Any] = {}
    if config is not None:
        path = Path(config)
        content = read_toml(path, "config")
        for table, allowed, where in (
            (content, ("max-drop", "min-accuracy", "min-threshold", "baseline", "level", "models"), path.name),
            (content.get("baseline", {}), ("path", "margin", "measure"), f"[baseline] of {path.name}"),
        ):
            for name in table:
                if name not in allowed:
                    raise unknown(f"entry in {where}", name, allowed)
    written = content.get("min-threshold", {})
    values: dict[str, Any] = {
        "max_drop": _numbers(content.get("max-drop", {})),
        "min_accuracy": _numbers(content.get("min-accuracy", {})),
        "min_threshold": {name: parse_threshold(f"{name}={value}") for name, value in written.items()},
    }
    values |= {name.replace("path", "baseline"): value for name, value in content.get("baseline", {}).items()}
    values |= {name: content[name] for name in ("level", "models") if name in content}
    for name, value in given.items():
        if isinstance(value, Mapping):
            values[name] |= value
        elif not (value is None or (isinstance(value, Sequence) and not value)):
            values[name] = value
    return Rules(**values | {"models": tuple(values.get("models", ()))})


def _numbers(table: Any) -> dict[str, float]:
    if not isinstance(table, dict):
        raise UserError(f"{table!r} is not a table of limits", allowed='"size-0.05" = 20')
    for name, value in table.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UserError(f"the limit of {name} is {value!r}", allowed="a number")
    return {name: float(value) for name, value in table.items()}


def gate_verdict(low: float, high: float, limit: float, must: Must = "at most") -> Verdict:
    """The verdict on a value that must be at most (or at least) `limit`, known to lie between low and high.

    >>> gate_verdict(1, 3, 4), gate_verdict(5, 7, 4), gate_verdict(3, 5, 4), gate_verdict(5, 7, 4, "at least")
    ('pass', 'fail', 'cannot tell', 'pass')
    """
    if must == "at least":
        low, high, limit = -high, -low, -limit
    return PASS if high <= limit else FAIL if low > limit else CANNOT_TELL


def threshold_rows(model: str, table: pl.DataFrame, rules: Rules, known: set[str], facts: Facts) -> list[Row]:
    """One row per limit; known: the edits of the benchmark and of all models, whether this model has them or not."""
    by_edit = {row["edit"]: row for row in table.iter_rows(named=True)}
    known = known - set(by_edit) - {ORIGINAL, SOURCE}
    chance = chance_in(facts.cards.get(model, {}))
    rows = []
    for measure, limits, column in (("drop", rules.max_drop, "drop"), ("accuracy", rules.min_accuracy, "accuracy_low")):
        measured = {edit: row for edit, row in by_edit.items() if row[column] is not None}
        for edit, limit in _expanded(limits, list(measured), known):
            if edit not in measured:
                rows.append(not_measured(model, edit, measure, limit, "these predictions do not contain it"))
                continue
            row = measured[edit]
            if measure == "drop":
                checked = check_row(row, measure, (row["drop"], row["low"], row["high"]), limit)
                rows.append(withheld(checked, out_of_reach(row["original_accuracy"], chance, limit)))
            else:
                ends = [100 * row[name] for name in ("accuracy", "accuracy_low", "accuracy_high")]
                rows.append(check_row(row, measure, ends, limit, "at least"))
    return rows


def sweep_rows(found: Outcomes, rules: Rules, facts: Facts, settings: IntervalSettings) -> list[Row]:
    """One row per attribute of `min_threshold`: the accuracy must be kept from the easy end to the wanted level."""
    need_original(found)
    there = {f"{sweep.attribute} {sweep.side}".rstrip(): sweep for sweep in find_sweeps(list(found.edits), facts)}
    rows = []
    for attribute, (wanted, percent) in rules.min_threshold.items():
        if attribute not in there:
            near = unknown("sweep of at least three levels of", attribute, there)
            raise UserError(near.given, allowed=f"{near.allowed}; found: {levels_found(list(found.edits), facts)}")
        sweep = there[attribute]
        first, *_, last = sweep.levels
        if not first <= wanted <= last:
            levels = f"{first:g} to {last:g}"
            raise UserError(f"the wanted level of {attribute} is {wanted:g}", allowed=f"the levels swept, {levels}")
        value, low, high, rising = threshold_bounds(found, sweep, percent, settings)
        must: Must = "at most" if rising else "at least"
        n = int(max((found.runs_of(edit) > 0).sum() for edit in sweep.edits))
        source = {"model": found.model, "edit": attribute, "n": n}
        verdict = gate_verdict(low, high, wanted, must)
        # Beyond the sweep nothing is known, so numbers end there; what that means is in the reason.
        ends = [min(max(end, first), last) for end in (value, low, high)]
        row = check_row(source, f"level with {percent:g} %", ends, wanted, must, verdict)
        if not first <= value <= last:
            row["reason"] += f"; kept at {'every' if (value < first) == rising else 'no'} level of the sweep"
        rows.append(row)
    return rows


def not_measured(model: str, edit: str, measure: str, limit: float, why: str) -> Row:
    """Return the row of a check that was not measured."""
    row = {"model": model, "edit": edit, "measure": measure, "n": 0, "threshold": limit}
    return row | {"verdict": NOT_MEASURED, "reason": f"not measured: {why}"}


def withheld(row: Row, why: str | None) -> Row:
    """Return the row of a check that is not measured for a reason, although it has a value; a failure stays one."""
    if why is None or row["verdict"] == FAIL or "value" not in row:
        return row
    return row | {"verdict": NOT_MEASURED, "reason": f"not measured: {why}"}


def out_of_reach(accuracy: float, chance: float, limit: float) -> str | None:
    """Return why no edit could cost more than `limit` points; None if one could.

    accuracy: on the originals, chance: of guessing, both in [0, 1]. A model that guesses on the edited pictures has
    lost all it can lose, so a limit above that passes every edit.

    >>> out_of_reach(0.15, 0.1, 20)
    'the accuracy on the originals is 15.0 %, 5.0 points above chance, so a drop of more than 20 points cannot be seen'
    >>> out_of_reach(0.9, 0.1, 20)
    """
    most = 100 * (accuracy - chance)
    if most > limit:
        return None
    above = f", {most:.1f} points above chance" if most > 0 else f", no more than chance ({100 * chance:.1f} %)"
    height = f"{100 * accuracy:.1f} %{above if chance else ''}"
    return f"the accuracy on the originals is {height}, so a drop of more than {limit:g} points cannot be seen"


def check_row(
    source: Mapping[str, Any],
    measure: str,
    ends: Sequence[float],
    limit: float,
    must: Must = "at most",
    verdict: Verdict | None = None,
) -> Row:
    """Return the row of a check with its reason; source: the model, the edit and n; ends: value, low and high;
    verdict: None if the interval decides."""
    value, low, high = ends
    verdict = gate_verdict(low, high, limit, must) if verdict is None else verdict
    unit = "%" if measure == "accuracy" else "" if measure.startswith("level") else "points"
    where = {PASS: "is within the limit,", FAIL: "is beyond the limit,", CANNOT_TELL: "contains the limit,"}[verdict]
    digits = 4 if measure.startswith("level") else 2
    shown = f"{value:.{digits}f} {unit} ({low:.{digits}f} to {high:.{digits}f})".replace("  ", " ")
    reason = f"{shown} of n = {source['n']:,} {where} {must} {limit:g} {unit}".rstrip()
    row = {name: source[name] for name in ("model", "edit", "n")} | {"measure": measure, "threshold": limit}
    return row | {"value": value, "low": low, "high": high, "verdict": verdict, "reason": reason}


def with_advice(row: Row, level: float) -> Row:
    """Return the row with the number of further photographs that would decide, if it is undecided."""
    if row["verdict"] != CANNOT_TELL:
        return row
    more, of_level = None, row["measure"].startswith("level")
    advice = "the value is so close to the limit that no feasible number of photographs would decide"
    if of_level:  # the number is known for means, not for thresholds
        advice = "more photographs are needed"
    elif needed := photographs_to_tell(row["value"], row["low"], row["high"], row["n"], row["threshold"], level):
        more = max(needed - row["n"], 1)
        advice = f"about {more:,} more photographs would decide with a power of 80 %, if the value stays the same"
    return row | {"more": more, "reason": f"{row['reason']}; {advice}"}


def _expanded(limits: Mapping[str, float], edits: Sequence[str], known: set[str]) -> list[tuple[str, float]]:
    """Return (edit, limit) with patterns expanded; an edit's own limit overrides a pattern's.

    edits: the measured ones; known: edits of the benchmark that a limit may name although they were not measured.
    """
    expanded: dict[str, float] = {}
    everything = [*edits, *sorted(known - set(edits))]
    for pattern, limit in limits.items():
        matching = fnmatch.filter(everything, pattern) if set(pattern) & set("*?[") else []
        expanded |= {edit: limit for edit in matching if edit not in limits}
        if not matching:
            if pattern not in everything:
                raise unknown("edit", pattern, edits)
            expanded[pattern] = limit
    return list(expanded.items())
