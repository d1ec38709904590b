"""What raters said about a benchmark: answers by edit, and how well they agree."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unswayed.analyses.statistics.agreement import agreement
from unswayed.benchmark import Benchmark
from unswayed.benchmark.rows import ANSWERS, Review, read_reviews
from unswayed.errors import UserError


def summarize(benchmark: str | Path) -> dict[str, Any]:
    """The raters with their numbers of answers, the answers by edit, and the agreement, None with one rater."""
    root = Benchmark(benchmark).root
    reviews = read_reviews(root)
    if not reviews:
        raise UserError(f"nobody has reviewed {root}", run=f"unswayed review {root} --rater NAME")
    answers: dict[str, dict[str, str]] = {}
    for one in reviews:
        answers.setdefault(one.rater, {})[one.sample_id] = one.answer
    found = agreement(answers)
    return {
        "raters": {rater: len(its) for rater, its in sorted(answers.items())},
        "edits": {edit: _shares([one for one in reviews if one.edit == edit]) for edit in _edits(reviews)},
        "agreement": None if found is None else {k: _finite(v) for k, v in asdict(found).items()},
    }


def summary_text(summary: dict[str, Any]) -> str:
    """The summary as lines for a terminal."""
    lines = ["raters: " + ", ".join(f"{rater} ({count} answers)" for rater, count in summary["raters"].items())]
    for edit, shares in summary["edits"].items():
        parts = ", ".join(f"{shares[answer]:.0%} {answer}" for answer in ANSWERS)
        lines.append(f"{edit}: {parts} (n = {shares['n']} answers; human accuracy {1 - shares['unrecognizable']:.0%})")
    found = summary["agreement"]
    if found is None:
        lines.append("agreement: needs a second rater")
    else:
        kappa = "undefined" if found["kappa"] is None else f"{found['kappa']:.3f}"
        lines.append(
            f"agreement: {found['method']}'s kappa {kappa}, {found['raters']} raters, {found['n']} pictures in common"
        )
    return "\n".join(lines) + "\n"


def _edits(reviews: list[Review]) -> list[str]:
    return sorted({one.edit for one in reviews})


def _shares(reviews: list[Review]) -> dict[str, float]:
    counts = Counter(one.answer for one in reviews)
    return {**{answer: counts[answer] / len(reviews) for answer in ANSWERS}, "n": len(reviews)}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
