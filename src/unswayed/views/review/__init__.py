"""People rate the pictures of a benchmark: one rater's session, and a summary of what all raters said."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unswayed.analyses.statistics.agreement import agreement
from unswayed.benchmark import Benchmark
from unswayed.benchmark.rows import ANSWERS, OK, ORIGINAL_EDIT, SOURCE_EDIT, Answer, Review, add_review, read_reviews
from unswayed.errors import UserError, unknown


@dataclass(frozen=True)
class Item:
    """One picture to be rated, with the picture of the photograph beside it; paths are files."""

    sample_id: str
    source_id: str
    edit: str
    run: int
    label: str
    original: Path
    edited: Path


@dataclass(frozen=True)
class Session:
    """What one rater is shown. blind: neither the edit's name nor the class is shown."""

    root: Path
    rater: str
    items: tuple[Item, ...]
    blind: bool = False

    def state(self) -> dict[str, Any]:
        """What the page shows, as JSON; nothing in it tells a blind rater what was done to a picture."""
        answered = {review.sample_id: review.answer for review in read_reviews(self.root) if review.rater == self.rater}
        items = [
            {
                "answer": answered.get(item.sample_id),
                "edit": None if self.blind else item.edit,
                "label": None if self.blind else item.label,
            }
            for item in self.items
        ]
        return {"rater": self.rater, "blind": self.blind, "items": items}

    def answer(self, number: int, answer: Answer, seconds: float | None = None) -> None:
        """Keep the rater's answer to the item of this number."""
        item = self.items[number]
        add_review(
            self.root,
            Review(item.sample_id, item.source_id, item.edit, item.run, self.rater, answer, self.blind, seconds),
        )


def open_session(
    benchmark: str | Path,
    rater: str,
    *,
    blind: bool = False,
    shuffle: bool = False,
    edits: Sequence[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> Session:
    """The session of one rater over the edited pictures of a benchmark.

    shuffle: another order for each rater, the same whenever this rater comes back; limit: the first so many pictures,
    taken before shuffling for one rater so that all raters see the same ones, spread over the edits.
    """
    if not rater.strip():
        raise UserError("the rater has no name", allowed="--rater NAME")
    opened = Benchmark(benchmark)
    rows = [row for row in opened.manifest.to_pylist() if row["status"] == OK and row["path"]]
    for name in edits or ():
        if name not in opened.edits:
            raise unknown("edit", name, opened.edits)
    originals = {row["source_id"]: row["path"] for row in rows if row["edit"] == ORIGINAL_EDIT}
    classes = opened.labels.classes
    items = [
        Item(
            row["sample_id"],
            row["source_id"],
            row["edit"],
            int(row["run"]),
            "" if row["label"] is None else classes[row["label"]],
            opened.root / originals[row["source_id"]],
            opened.root / row["path"],
        )
        for row in rows
        if row["edit"] not in (ORIGINAL_EDIT, SOURCE_EDIT)
        and row["source_id"] in originals
        and (not edits or row["edit"] in edits)
    ]
    if not items:
        raise UserError(f"{opened.root} has no edited pictures to rate", run=f"unswayed status {opened.root}")
    if limit is not None:
        chosen = sorted(np.random.default_rng(seed).permutation(len(items))[:limit].tolist())
        items = [items[place] for place in chosen]
    if shuffle:
        own = int.from_bytes(hashlib.blake2b(f"{seed}/{rater}".encode(), digest_size=8).digest(), "big")
        items = [items[place] for place in np.random.default_rng(own).permutation(len(items))]
    return Session(opened.root, rater.strip(), tuple(items), blind)


def summarize(benchmark: str | Path) -> dict[str, Any]:
    """The raters with their numbers of answers, the answers by edit, and the agreement, None with one rater."""
    root = Benchmark(benchmark).root
    reviews = read_reviews(root)
    if not reviews:
        raise UserError(f"nobody has reviewed {root}", run=f"unswayed review {root} --rater NAME")
    answers: dict[str, dict[str, str]] = {}
    for review in reviews:
        answers.setdefault(review.rater, {})[review.sample_id] = review.answer
    agreed = agreement(answers)
    return {
        "raters": {rater: len(its) for rater, its in sorted(answers.items())},
        "edits": {edit: _shares([review for review in reviews if review.edit == edit]) for edit in _edits(reviews)},
        "agreement": None if agreed is None else {k: _finite(v) for k, v in asdict(agreed).items()},
    }


def summary_text(summary: dict[str, Any]) -> str:
    """The summary as lines for a terminal."""
    lines = ["raters: " + ", ".join(f"{rater} ({count} answers)" for rater, count in summary["raters"].items())]
    for edit, shares in summary["edits"].items():
        parts = ", ".join(f"{shares[answer]:.0%} {answer}" for answer in ANSWERS)
        lines.append(f"{edit}: {parts} (n = {shares['n']} answers; human accuracy {1 - shares['unrecognizable']:.0%})")
    agreed = summary["agreement"]
    if agreed is None:
        lines.append("agreement: needs a second rater")
    else:
        kappa = "undefined" if agreed["kappa"] is None else f"{agreed['kappa']:.3f}"
        counts = f"{agreed['raters']} raters, {agreed['n']} pictures in common"
        lines.append(f"agreement: {agreed['method']}'s kappa {kappa}, {counts}")
    return "\n".join(lines) + "\n"


def _edits(reviews: list[Review]) -> list[str]:
    return sorted({review.edit for review in reviews})


def _shares(reviews: list[Review]) -> dict[str, float]:
    counts = Counter(review.answer for review in reviews)
    return {**{answer: counts[answer] / len(reviews) for answer in ANSWERS}, "n": len(reviews)}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
