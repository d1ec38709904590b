"""What vision-language models need of an evaluation: questions asked again, an estimate of what they cost, and a
summary of what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from unswayed.errors import BadPicture, UserError, printable
from unswayed.files.whole import Json
from unswayed.models.chat_server import Budget, ChatServer, read_budget
from unswayed.models.opening import Model
from unswayed.models.vision_language import VisionLanguageModel
from unswayed.sources.pictures import read_picture

from .inputs import ORIGINAL, Pictures
from .model_cards import REPEAT
from .settings import EvaluateSettings

ANSWERED = "answered"
SHOWN = 10  # texts that mean no class, in a card
BINS = 10  # into which the positions in a list of options are divided
SURE = 0.01  # significance level of a preference for positions


def with_repeats(pictures: Pictures, repeats: int) -> Pictures:
    """The pictures, and every original so many times again: what changes then is the model's own noise.

    The repetitions are no part of the benchmark's identity, so that models with and without them can be compared.
    """
    originals = [pictures.rows[index] for index in pictures.originals]
    again = tuple(
        replace(row, edit=REPEAT, run=run, sample_id=f"{row.source_id}/{REPEAT}/{run}")
        for row in originals
        for run in range(repeats)
    )
    described = {**pictures.described, "sha256": f"{pictures.described['sha256']}:repeats={repeats}"}
    return replace(pictures, rows=(*pictures.rows, *again), described=described)


def budget_of(settings: EvaluateSettings) -> Budget:
    """What a run may ask of servers."""
    limits = read_budget(settings.budget)
    return Budget(**limits, concurrency=settings.concurrency, per_minute=settings.rate, timeout=settings.timeout)


def begin(model: Model, pictures: Pictures, budget: Budget, tell: Callable[[str], None] | None = None) -> None:
    """Give a model that is asked elsewhere its budget, and tell what its answers will cost; refused if that is more
    requests than the budget has left."""
    if not isinstance(model, VisionLanguageModel) or not isinstance(server := model.talker, ChatServer):
        return
    server.budget = budget
    questions: dict[Path, int] = {}
    for row in pictures.rows:
        try:
            shown = replace(model.prepare(read_picture(row.path)), repeat=row.run + 1 if row.edit == REPEAT else 0)
        except BadPicture:
            continue
        prompt = model.question(shown).prompt
        questions[server.stored(shown, prompt)] = server.estimate(prompt)
    new = [tokens for path, tokens in questions.items() if not path.is_file()]
    known = f", {len(questions) - len(new):,} of them answered already" if len(new) < len(questions) else ""
    needed = f"{len(new):,} requests with about {sum(new):,} tokens"
    if tell is not None:
        tell(f"{model.name}: {len(questions):,} questions{known}; {needed}")
    left = None if budget.most_requests is None else budget.most_requests - budget.requests
    if left is not None and len(new) > left:
        raise UserError(
            f"{model.name} needs {needed}, and the budget has {left:,} requests",
            allowed="a larger --budget, or fewer photographs by --limit",
        )


def summary(model: str, table: pa.Table, classes: int) -> tuple[Json, str | None, list[str]]:
    """What became of the questions, for the card; a suspicion, if most of them have no answer; and remarks."""
    outcomes = Counter(table["outcome"].to_pylist())
    texts = zip(table["outcome"].to_pylist(), table["answer_text"].to_pylist(), strict=True)
    unmatched = Counter(printable(str(text))[:200] for outcome, text in texts if outcome == "unmatched")
    position = position_preference(table["choice_position"].drop_null().to_numpy(), classes)
    counted: Json = {
        "outcomes": dict(outcomes.most_common()),
        "tokens": int(np.sum(table["tokens"].drop_null().to_numpy())),
        "unmatched": dict(unmatched.most_common(SHOWN)),
        **({} if position is None else {"position": position}),
    }
    without, remarks = table.num_rows - outcomes[ANSWERED], []
    listed = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common() if outcome != ANSWERED)
    told = f"{model}: {without} of {table.num_rows} questions have no answer and count as wrong: {listed}"
    if unmatched:
        told += f", such as {next(iter(unmatched))!r}"
    suspicion = told if without > table.num_rows / 2 else None
    if without and suspicion is None:
        remarks.append(told)
    if position is not None and position["p"] < SURE:
        remarks.append(
            f"{model} prefers some positions in the list of options (p = {position['p']:.2g}): {position['first']:.1%} "
            f"of its answers are the first option, {position['last']:.1%} the last; {1 / classes:.1%} are expected"
        )
    columns = (table[name].to_pylist() for name in ("source_id", "edit", "run", "predicted"))
    said = {(source, edit, run): predicted for source, edit, run, predicted in zip(*columns, strict=True)}
    # How many questions that were asked again have another answer than at first.
    again = [said[key] != said[first] for key in said if key[1] == REPEAT and (first := (key[0], ORIGINAL, 0)) in said]
    if again:
        counted["repeats"] = {"n": len(again), "changed": sum(again)}
        remarks.append(f"{model} gives another answer to {sum(again)} of {len(again)} repeated questions")
    return counted, suspicion, remarks


def position_preference(positions: np.ndarray, options: int) -> dict[str, float] | None:
    """The test whether the chosen positions, from 0, are spread evenly over a list that was shuffled for each answer;
    None with too few answers.

    >>> position_preference(np.zeros(40, int), 4)["first"], position_preference(np.arange(40) % 4, 4)["p"]
    (1.0, 1.0)
    """
    from scipy.stats import chisquare

    bins = min(options, BINS, len(positions) // 5)
    if bins < 2:
        return None
    places = positions * bins // options
    expected = np.bincount(np.arange(options) * bins // options, minlength=bins) / options * len(positions)
    p = float(chisquare(np.bincount(places, minlength=bins), expected).pvalue)
    first, last = (float((positions == option).mean()) for option in (0, options - 1))
    return {"n": len(positions), "first": first, "last": last, "mean": float(positions.mean() / (options - 1)), "p": p}
