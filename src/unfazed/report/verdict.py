"""The verdict: three sentences written from the numbers, with their uncertainty and their limits."""

from __future__ import annotations

from typing import Any

import polars as pl

from unfazed.predictions.facts import AVERAGE, ORIGINAL

from .findings import Findings
from .words import interval, listed, percent, plural, points

# With fewer photographs one of them changes an accuracy by more than two points, so models cannot be ranked.
FEW = 50
SURE = 0.05
_NAMED = 3


def verdict(findings: Findings) -> list[str]:
    """Return three sentences: how much the edits cost, which cost most, and what can and cannot be concluded."""
    drops = findings.drops
    averages = {row["model"]: row for row in drops.filter(pl.col("kind") == AVERAGE).iter_rows(named=True)}
    if not averages:
        return [_without_edits(findings)]
    return [_how_much(findings, averages), _which(findings), _how_sure(findings, averages)]


def _how_much(findings: Findings, averages: dict[str, dict[str, Any]]) -> str:
    names = [name for name in findings.models if name in averages]
    n = max(row["n"] for row in averages.values())
    edits = sorted({row["edits"] for row in averages.values()})
    over = f"Averaged over {' or '.join(map(str, edits))} edits of {plural(n, 'photograph')}"
    if len(names) <= _NAMED:
        parts = [f"{name} loses {_with_interval(averages[name])}" for name in names]
        return f"{over}, {listed(parts)} points of accuracy (95 % intervals)."
    best, worst = names[0], names[-1]
    return (
        f"{over}, {plural(len(names), 'model')} lose between {_with_interval(averages[best])} ({best}) and "
        f"{_with_interval(averages[worst])} ({worst}) points of accuracy (95 % intervals)."
    )


def _which(findings: Findings) -> str:
    fair = findings.drops.filter((pl.col("kind") == "edit") & ~pl.col("white_box"))
    means = fair.group_by("edit").agg(pl.col("drop").mean(), pl.col("n").max()).sort("drop", "edit", descending=True)
    # An edit that was possible for only a few photographs does not come first: its drop is the least certain.
    worst = means.filter(2 * pl.col("n") >= pl.col("n").max()).row(0, named=True)
    if worst["drop"] <= 0:
        return f"No edit costs accuracy, averaged over models (n = {worst['n']:,}){_controls(findings)}."
    rows = fair.filter(pl.col("edit") == worst["edit"]).sort("drop")
    if rows.height == 1:
        row = rows.row(0, named=True)
        said = f"{points(row['drop'])} points ({interval(row['low'], row['high'])}, n = {row['n']:,})"
    else:
        low, high = points(rows["drop"][0]), points(rows["drop"][-1])
        spread = f"{low} to {high}" if low != high else f"{low} for each"
        said = f"{points(worst['drop'])} points on average over models ({spread}; n = {worst['n']:,})"
    return f"The largest drop is that of {worst['edit']}: {said}{_controls(findings)}."


def _controls(findings: Findings) -> str:
    """Return what the rendering alone costs, if there are controls."""
    controls = findings.drops.filter(pl.col("kind") == "control")
    if controls.is_empty():
        return ""
    means = controls.group_by("edit").agg(pl.col("drop").mean()).sort("edit")
    parts = [f"{points(drop)} ({edit})" for edit, drop in means.iter_rows()]
    return f"; rendering alone, without a change, costs {listed(parts)} points"


def _how_sure(findings: Findings, averages: dict[str, dict[str, Any]]) -> str:
    tested = findings.drops.filter((pl.col("kind") == "edit") & ~pl.col("white_box")).drop_nulls("p_holm")
    sure = int((tested["p_holm"] < SURE).sum())
    n = max(row["n"] for row in averages.values())
    counted = f"{sure} of {plural(tested.height, 'drop')} {'is' if sure == 1 else 'are'} significant at 5 % after "
    counted += "Holm's correction"
    difference = _difference(findings)
    if n < FEW:
        one = points(100 / n)
        small = (
            f"n = {n} is small: one photograph counts for {one} points, so this is a demonstration, not a ranking"
            if n > 1
            else "n = 1: nothing can be concluded from one photograph"
        )
        return f"{small}; {counted}{', and ' + difference if difference else ''}."
    return f"{counted[0].upper()}{counted[1:]}{'; ' + difference if difference else ''}."


def _difference(findings: Findings) -> str:
    """Return whether the best and the worst model differ significantly, as in `unfazed compare`."""
    if findings.comparison is None:
        return ""
    row = findings.comparison.filter(pl.col("edit") == AVERAGE)
    if row.is_empty() or row["drop_difference"][0] is None:
        return ""
    one, two = findings.models[0], findings.models[-1]
    gap, low, high = (float(row[name][0]) for name in ("drop_difference", "low", "high"))
    said = f"({points(-gap)} points, {interval(-high, -low)}, n = {int(row['n'][0]):,})"
    if "drops less" not in row["verdict"][0]:
        return f"it is not certain that {one} drops less than {two} {said}"
    picked = (
        ""
        if len(findings.models) == 2
        else f", although the two were chosen as the extremes of {len(findings.models)} models"
    )
    better, other = (one, two) if gap < 0 else (two, one)
    return f"{better} drops significantly less than {other} {said}{picked}"


def _without_edits(findings: Findings) -> str:
    rows = findings.drops.filter(pl.col("edit") == ORIGINAL)
    parts = [
        f"{row['model']} {percent(row['accuracy'])} ({percent(row['accuracy_low'])} to {percent(row['accuracy_high'])})"
        for row in rows.iter_rows(named=True)
    ]
    return (
        f"These predictions contain no edited pictures, so there is no drop; accuracy on "
        f"{plural(int(rows['n'].max() or 0), 'photograph')}: {listed(parts)}."  # type: ignore[arg-type]
    )


def _with_interval(row: dict[str, Any]) -> str:
    return f"{points(row['drop'])} ({interval(row['low'], row['high'])})"
