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
from unswayed.errors import UserError, check_known


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
        items = []
        for item in self.items:
            told = {"edit": None, "label": None} if self.blind else {"edit": item.edit, "label": item.label}
            items.append({"answer": answered.get(item.sample_id), **told})
        return {"rater": self.rater, "blind": self.blind, "items": items}

    def answer(self, number: int, answer: Answer, seconds: float | None = None) -> None:
        """Keep the rater's answer to the item of this number."""
        item = self.items[number]
        picture = (item.sample_id, item.source_id, item.edit, item.run)
        add_review(self.root, Review(*picture, self.rater, answer, self.blind, seconds))


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
    check_known("edit", edits or (), opened.edits)
    originals = {row["source_id"]: row["path"] for row in rows if row["edit"] == ORIGINAL_EDIT}
    items = []
    for row in rows:
        source_id, edit = row["source_id"], row["edit"]
        if edit in (ORIGINAL_EDIT, SOURCE_EDIT) or source_id not in originals or (edits and edit not in edits):
            continue
        label = "" if row["label"] is None else opened.labels.classes[row["label"]]
        original, edited = opened.root / originals[source_id], opened.root / row["path"]
        items.append(Item(row["sample_id"], source_id, edit, int(row["run"]), label, original, edited))
    if not items:
        raise UserError(f"{opened.root} has no edited pictures to rate", run=f"unswayed status {opened.root}")
    if limit is not None:
        chosen = sorted(np.random.default_rng(seed).permutation(len(items))[:limit].tolist())
        items = [items[number] for number in chosen]
    if shuffle:
        own = int.from_bytes(hashlib.blake2b(f"{seed}/{rater}".encode(), digest_size=8).digest(), "big")
        items = [items[number] for number in np.random.default_rng(own).permutation(len(items))]
    return Session(opened.root, rater.strip(), tuple(items), blind)


def summarize(benchmark: str | Path) -> dict[str, Any]:
    """The raters with their numbers of answers, the answers by edit, and the agreement, None with one rater."""
    root = Benchmark(benchmark).root
    reviews = read_reviews(root)
    if not reviews:
        raise UserError(f"nobody has reviewed {root}", run=f"unswayed review {root} --rater NAME")
    answers: dict[str, dict[str, str]] = {}
    by_edit: dict[str, Counter[str]] = {}
    for review in reviews:
        answers.setdefault(review.rater, {})[review.sample_id] = review.answer
        by_edit.setdefault(review.edit, Counter())[review.answer] += 1
    edits = {
        edit: {**{answer: counts[answer] / counts.total() for answer in ANSWERS}, "n": counts.total()}
        for edit, counts in sorted(by_edit.items())
    }
    agreed = agreement(answers)
    measured = {} if agreed is None else asdict(agreed)
    undefined = {name: None for name, value in measured.items() if isinstance(value, float) and math.isnan(value)}
    return {
        "raters": {rater: len(given) for rater, given in sorted(answers.items())},
        "edits": edits,
        "agreement": {**measured, **undefined} or None,
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
