"""The result of `unswayed check` as Markdown, for the summary of a CI job or a comment on a merge request."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from unswayed.analyses.drops.gate import GateResult
from unswayed.analyses.flips import Flip, worst_flips
from unswayed.errors import UserError
from unswayed.evaluation.facts import Facts, read_facts

from .verdict_tables import checks_text

_SIGNS = {"pass": "✅", "fail": "❌", "cannot tell": "❔", "not measured": "❔"}


def check_markdown(found: GateResult, predictions: str | Path) -> str:
    """Return the verdict as a heading, the table of checks, and the three worst flips of what was checked."""
    checks, verdict = found.checks, found.verdict
    lines = [f"## {_SIGNS[verdict]} unswayed check: {verdict}", "", _counted(checks), ""]
    lines += [checks_text(checks, verdict, "markdown", found.remarks).strip(), ""]
    flips = worst_flips(predictions, list(dict.fromkeys(checks["model"])), _edits(checks))
    if flips:
        facts = _facts(predictions)
        lines += ["### The worst flips", "", "| photograph | edit | model | class | predicted after the edit |"]
        lines += ["| --- | --- | --- | --- | --- |", *(_row(flip, facts) for flip in flips), ""]
    return "\n".join(lines)


def _counted(checks: pl.DataFrame) -> str:
    counts = checks["verdict"].value_counts(sort=True).rows()
    return f"{checks.height} checks: " + ", ".join(f"{count} {verdict}" for verdict, count in counts) + "."


def _edits(checks: pl.DataFrame) -> list[str] | None:
    """The edits to look for flips in: those that fail, else those undecided, else all that were checked."""
    for verdict in ("fail", "cannot tell", "pass"):
        found = list(dict.fromkeys(checks.filter(verdict=verdict)["edit"]))
        named = [edit for edit in found if edit not in ("original", "average", "all")]
        if named or found:
            return named or None
    return None


def _row(flip: Flip, facts: Facts) -> str:
    names = [
        facts.classes[index] if 0 <= index < len(facts.classes) else str(index) for index in (flip.label, flip.after)
    ]
    cells = (flip.source_id, flip.edit, flip.model, names[0], f"{names[1]} ({flip.after_probability:.0%})")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _facts(predictions: str | Path) -> Facts:
    try:
        return read_facts(predictions)
    except UserError:
        return Facts()
