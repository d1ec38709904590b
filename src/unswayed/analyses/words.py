"""Results in plain words: what an edit is called where people read it, and one line that says what was found.

>>> list(edit_words(["size-0.05", "direction-small", "background-random"], Facts()).values())
['object size 5 %', 'small and turned', 'random background']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from unswayed.edits import edit_named_in
from unswayed.edits.edit import Edit, allowed
from unswayed.edits.recipes import named_item
from unswayed.evaluation.facts import Facts

from .drops.drop import with_effect
from .drops.outcomes import TOO_FEW_TO_RANK
from .drops.sweeps import Sweep, find_sweeps

FAILS = 10.0  # points: an attribute fails at the levels that cost more
NO_EFFECT = "no effect shown"


def edit_words(edits: Iterable[str], facts: Facts) -> dict[str, str]:
    """Return what a stranger would call each edit; edits that would be called the same have longer names."""
    chains = {edit: _chain(edit, facts) for edit in edits}
    short = {
        edit: " and ".join(part.words(len(chain) > 1) for part in chain) or edit.replace("-", " ")
        for edit, chain in chains.items()
    }
    long = {edit: ", ".join(part.words() for part in chain) for edit, chain in chains.items()}
    counts, long_counts = Counter(short.values()), Counter(long.values())
    return {
        edit: words if counts[words] == 1 else long[edit] if long_counts[long[edit]] == 1 else edit
        for edit, words in short.items()
    }


def _chain(edit: str, facts: Facts) -> Sequence[Edit]:
    item = None if edit in facts.chains else named_item(edit)
    return facts.chains.get(edit, () if item is None else item.chain)


def verdict_line(drops: pl.DataFrame, facts: Facts | None = None) -> str:
    """Return what was found about each attribute in one line, the worst first.

    `small and turned: costs 43 points; size: fails below 6 %; background: no effect shown`. An effect is shown if it is
    certain for at least one model (`statistics.certainty`); the points are the mean over the models for which it is.

    drops: of `dropped_accuracy`; results of a model that the edit attacks do not count.
    """
    facts = facts or Facts()
    drops = drops if "certain" in drops.columns else with_effect(drops)
    rows = drops.filter((pl.col("kind") == "edit") & ~pl.col("white_box")).drop_nulls("effect")
    if rows.is_empty():
        return "no edited pictures, so there is no drop"
    words = edit_words(rows["edit"].unique(maintain_order=True), facts)
    attributes = {edit: _attribute(edit, words[edit], facts) for edit in words}
    said: dict[str, list[str]] = {}
    ordered = rows.with_columns(attribute=pl.col("edit").replace_strict(attributes))
    worst = ordered.group_by("attribute").agg(pl.col("effect").max()).sort("effect", "attribute", descending=True)
    for attribute in worst["attribute"]:
        said.setdefault(_found(ordered.filter(attribute=attribute), facts), []).append(attribute)
    shown = [f"{', '.join(names)}: {finding}" for finding, names in said.items() if finding != NO_EFFECT]
    none = [f"{', '.join(said[NO_EFFECT])}: {NO_EFFECT}"] if NO_EFFECT in said else []
    n = max(rows["n"])
    few = f" ({n} photograph{'s' * (n != 1)} can show large effects only)" if n < TOO_FEW_TO_RANK else ""
    return "; ".join([*shown, *none]) + few


def _attribute(edit: str, words: str, facts: Facts) -> str:
    """Return what an edit changes: an attribute, or for several at once the edit's words."""
    named = edit_named_in(edit)
    return words if named is None or len(_chain(edit, facts)) > 1 else named.name


def _found(rows: pl.DataFrame, facts: Facts) -> str:
    """Return what is certain about the edits of one attribute."""
    certain = rows.filter(pl.col("certain") & (pl.col("effect") > 0))
    if certain.is_empty():
        return NO_EFFECT
    models, all_models = certain["model"].n_unique(), rows["model"].n_unique()
    of = "" if models == all_models else f" ({models} of {all_models} models)"
    means = dict(certain.group_by("edit").agg(pl.col("effect").mean()).iter_rows())
    sweeps = find_sweeps(rows["edit"].unique().to_list(), facts)
    if len(sweeps) == 1 and (limit := _limit(sweeps[0], means)):
        return f"fails {limit}{of}"
    most = max(means.values())
    return f"costs {'up to ' if rows['edit'].n_unique() > 1 else ''}{most:.0f} point{'s' * (round(most) != 1)}{of}"


def _limit(sweep: Sweep, means: dict[str, float]) -> str:
    """Return from which level on an attribute costs more than `FAILS` points; empty if no level does."""
    costs = np.array([means.get(edit, 0.0) for edit in sweep.edits])
    below = costs[0] >= costs[-1]  # whether small levels are the hard ones
    axis = sweep.axis()
    if below:
        costs, axis = costs[::-1], axis[::-1]
    costs = np.maximum.accumulate(costs)
    if costs[-1] <= FAILS:
        return ""
    side = "below" if below else "above"
    if costs[0] > FAILS:
        return f"at {_level(sweep, float(axis[0]))} and {side}"
    return f"{side} {_level(sweep, float(np.interp(FAILS, costs, axis)))}"


def _level(sweep: Sweep, at: float) -> str:
    """Return a level with its unit; shares in percent."""
    level = float(np.exp(at)) if sweep.is_log else at
    edit = edit_named_in(sweep.attribute)
    unit = "" if edit is None else getattr(allowed(edit, edit.axis), "unit", "")
    if unit.startswith("of the "):
        return f"{100 * level:.2g} %"
    return f"{level:.2g} {unit.partition(' of ')[0]}".strip()
