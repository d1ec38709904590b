"""The rules of a gate, and its checks of limits of drop, accuracy and threshold, each judged by its interval."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import polars as pl

from unswayed.errors import UserError, check_known, unknown
from unswayed.evaluation.facts import ORIGINAL, SOURCE, Facts
from unswayed.evaluation.model_cards import chance_in, doubted_share_in, suspicion_in
from unswayed.files.records import require_fields
from unswayed.files.whole import Json, read_toml

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
    baseline: predictions not to fall behind by more than `margin` points of `measure` on any edit; models: those to
    check, all if empty.
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
        for name in ("max_drop", "min_accuracy", "min_threshold"):
            if not isinstance(limits := getattr(self, name), Mapping):
                allowed = "a mapping from edits or attributes to limits, such as {'size-0.05': 20}"
                raise UserError(f"{name} is {limits!r}", allowed=allowed)
        if not (self.max_drop or self.min_accuracy or self.min_threshold) and self.baseline is None:
            raise UserError("there is nothing to check", allowed=_KINDS)
        check_known("measure", [self.measure], MEASURES)
        if not 0 <= self.margin <= 100:
            raise UserError(f"the margin is {self.margin:g} points", allowed="0 to 100")
        if not 0.5 <= self.level < 1:
            raise UserError(f"the level of the intervals is {self.level:g}", allowed="0.5 to below 1, such as 0.95")
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


# The entries of a file of limits with their types; of a table, the types of its entries, `*` for any name.
_FILE: Json = {
    "max-drop": {"*": float},
    "min-accuracy": {"*": float},
    "min-threshold": {"*": str},
    "baseline": {"path": str, "margin": float, "measure": Literal["accuracy", "drop"]},
    "level": float,
    "models": list[str],
}


def read_rules(config: str | Path | None, **given: object) -> Rules:
    """Return the rules from a TOML file and from arguments, which override the file.

    The file: tables [max-drop] and [min-accuracy] (edit = number), [min-threshold] (size = "0.04@80"), a table
    [baseline] (path, margin, measure), and `level`, `models` at the top.
    """
    content: Json = {} if config is None else _read_config(Path(config))
    written, baseline = content.get("min-threshold", {}), content.get("baseline", {})
    values: Json = {
        "max_drop": dict(content.get("max-drop", {})),
        "min_accuracy": dict(content.get("min-accuracy", {})),
        "min_threshold": {name: parse_threshold(f"{name}={value}") for name, value in written.items()},
    }
    values |= {name.replace("path", "baseline"): value for name, value in baseline.items()}
    values |= {name: content[name] for name in ("level", "models") if name in content}
    for name, value in given.items():
        if isinstance(value, Mapping):
            values[name] |= value
        elif not (value is None or (isinstance(value, Sequence) and not value)):
            values[name] = value
    models = values.get("models", ())
    values["models"] = (models,) if isinstance(models, str) else tuple(models)
    try:
        return Rules(**values)
    except UserError as error:
        where = "" if config is None else f"with {config}, "
        raise UserError(f"{where}{error.given}", allowed=error.allowed, run=error.run) from None


def _read_config(path: Path) -> dict[str, object]:
    """Return the content of a file of limits; an entry that is unknown or of another type is refused."""
    content = read_toml(path, "config")
    for name, value in content.items():
        kinds = _FILE.get(name)
        if kinds is None:
            raise unknown(f"entry in {path}", name, _FILE)
        if not isinstance(kinds, dict):
            require_fields({name: value}, {name: kinds}, str(path))
        elif not isinstance(value, dict):
            raise UserError(f"{path}: the field '{name}' is {value!r}", allowed=f"a table [{name}]")
        else:
            for key, entry in value.items():
                if not kinds.keys() & {key, "*"}:
                    raise unknown(f"entry in [{name}] of {path}", key, kinds)
                require_fields({key: entry}, {key: kinds.get(key, kinds.get("*"))}, f"{path}, [{name}]")
    return content


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
    rows = []
    for measure, limits in (("drop", rules.max_drop), ("accuracy", rules.min_accuracy)):
        measured = {edit: row for edit, row in by_edit.items() if row[_ENDS[measure][1]] is not None}
        for edit, limit in _expanded(limits, list(measured), known):
            if edit in measured:
                rows.append(judge(measured[edit], measure, limit, facts, rules.level))
            else:
                rows.append(not_measured(model, edit, measure, limit, why_missing(edit, facts)))
    return rows


# measure -> its value and the ends of its interval in the table of drops
_ENDS = {
    "drop": ("drop", "low", "high"),
    "net drop": ("net_drop", "net_low", "net_high"),
    "accuracy": ("accuracy", "accuracy_low", "accuracy_high"),
}


def judge(row: Row, measure: str, limit: float, facts: Facts, level: float, must: Must | None = None) -> Row:
    """Return the check of one number of the table of drops: the one verdict behind the command, Python and pytest.

    measure: `drop`, `net drop` or `accuracy`, which must be at most or, for an accuracy, at least the limit, unless
    `must` says otherwise. Nothing is measured about a suspicious model, and no drop that could not be seen. Unsure
    automatic masks widen the interval by their share: the answers to their edited pictures count as unknown.
    """
    must = must or ("at least" if measure == "accuracy" else "at most")
    ends = [row[name] for name in _ENDS[measure]]
    if None in ends:
        why = "its control was not evaluated" if measure == "net drop" else why_missing(row["edit"], facts)
        return not_measured(row["model"], row["edit"], measure, limit, why)
    card = facts.cards.get(row["model"], {})
    why_not = suspicion_in(card)
    if measure == "accuracy":
        ends = [100 * end for end in ends]
    elif must == "at most" and why_not is None:
        why_not = out_of_reach(row["original_accuracy"], chance_in(card), limit)
    checked = with_advice(check_row(row, measure, ends, limit, must), level)
    share = 0.0 if row["edit"] in (ORIGINAL, SOURCE) else doubted_share_in(card)
    return withheld(_doubted(checked, row, share, limit, must) if share else checked, why_not)


def _doubted(checked: Row, row: Row, share: float, limit: float, must: Must) -> Row:
    """Return the check with an interval that holds whatever the answers to the pictures of unsure masks may be."""
    right, wrong = 100 * share * row["accuracy"], 100 * share * (1 - row["accuracy"])
    below, above = (right, wrong) if checked["measure"] == "accuracy" else (wrong, right)
    ends = checked["value"], checked["low"] - below, checked["high"] + above
    wider = checked | check_row(row, checked["measure"], ends, limit, must)
    wider["reason"] += f"; {share:.0%} of the masks are automatic and unsure, which widens the interval by their share"
    if wider["verdict"] == CANNOT_TELL:
        wider["more"] = checked.get("more")
        told = checked["verdict"] == CANNOT_TELL
        mend = "look at these masks and mend them (`unswayed review BENCH`)"
        wider["reason"] += f"; {checked['reason'].rpartition('; ')[2]}, and {mend}" if told else f"; {mend}"
    return wider


def why_missing(edit: str, facts: Facts) -> str:
    """Return why there are no predictions for an edit: why the benchmark skipped it and what to run, if it did."""
    manifest = facts.manifest
    if manifest is None or not {"status", "reason"} <= set(manifest.columns):
        return "these predictions do not contain it"
    rows = manifest.filter(pl.col("edit") == edit)
    if rows.is_empty() or (rows["status"] == "ok").any():
        return "these predictions do not contain it; run: unswayed evaluate BENCH -m MODEL -o PREDICTIONS"
    reason, count = rows.drop_nulls("reason")["reason"].value_counts(sort=True).row(0) if rows.height else ("", 0)
    renderer = next((name for name in ("diffusers:NAME_OR_FOLDER", "diffusion") if name in reason), None)
    run = f"unswayed build … --renderer {renderer} -o ANOTHER" if renderer else "unswayed build … again"
    return (
        f"the benchmark has no picture of it: {count} of {rows.height} were skipped because of: {reason}; "
        f"remove its limit, or run: {run}"
    )


def sweep_rows(outcomes: Outcomes, rules: Rules, facts: Facts, settings: IntervalSettings) -> list[Row]:
    """One row per attribute of `min_threshold`: the accuracy must be kept from the easy end to the wanted level."""
    need_original(outcomes)
    card = facts.cards.get(outcomes.model, {})
    share = doubted_share_in(card)
    there = {f"{sweep.attribute} {sweep.side}".rstrip(): sweep for sweep in find_sweeps(list(outcomes.edits), facts)}
    rows = []
    for attribute, (wanted, percent) in rules.min_threshold.items():
        if attribute not in there:
            near = unknown("sweep of at least three levels of", attribute, there)
            raise UserError(near.given, allowed=f"{near.allowed}; found: {levels_found(list(outcomes.edits), facts)}")
        sweep = there[attribute]
        first, *_, last = sweep.levels
        if not first <= wanted <= last:
            levels = f"{first:g} to {last:g}"
            raise UserError(f"the wanted level of {attribute} is {wanted:g}", allowed=f"the levels swept, {levels}")
        value, low, high, rising = threshold_bounds(outcomes, sweep, percent, settings)
        must: Must = "at most" if rising else "at least"
        n = int(max((outcomes.runs_of(edit) > 0).sum() for edit in sweep.edits))
        source = {"model": outcomes.model, "edit": attribute, "n": n}
        verdict = gate_verdict(low, high, wanted, must)
        if share:  # with unsure masks the accuracy may be lower or higher by their share
            for other in (percent * (1 + share), percent - share * (100 - percent)):
                _, *bounds, _ = threshold_bounds(outcomes, sweep, min(other, 100.0), settings)
                verdict = verdict if gate_verdict(bounds[0], bounds[1], wanted, must) == verdict else CANNOT_TELL
        # Beyond the sweep nothing is known, so numbers end there; what that means is in the reason.
        ends = [min(max(end, first), last) for end in (value, low, high)]
        row = check_row(source, f"level with {percent:g} %", ends, wanted, must, verdict)
        if not first <= value <= last:
            row["reason"] += f"; kept at {'every' if (value < first) == rising else 'no'} level of the sweep"
        if share:
            row["reason"] += f"; {share:.0%} of the masks are automatic and unsure"
        rows.append(withheld(row, suspicion_in(card)))
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
    source: Mapping[str, object],
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
    rounded = [f"{round(end, digits) + 0.0:.{digits}f}" for end in ends]  # no minus before zero
    shown = f"{rounded[0]} {unit} ({rounded[1]} to {rounded[2]})".replace("  ", " ")
    reason = f"{shown} of n = {source['n']:,} {where} {must} {limit:g} {unit}".rstrip()
    row = {name: source[name] for name in ("model", "edit", "n")} | {"measure": measure, "threshold": limit}
    return row | {"value": value, "low": low, "high": high, "verdict": verdict, "reason": reason}


def with_advice(row: Row, level: float) -> Row:
    """Return the row with the number of further photographs that would decide, if it is undecided."""
    if row["verdict"] != CANNOT_TELL or "more" in row:
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
