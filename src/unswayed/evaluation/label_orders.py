"""The order of a model's labels, judged by its predictions: usual confusions of the order, exchanged classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from unswayed.labels import LabelSpace
from unswayed.models.label_mapping import LabelMapping

DOUBT = 0.01  # significance level where accuracy is near chance, or one order is compared with another
SURE = 0.001  # significance level, after Bonferroni's correction, where accuracy is above chance
NAMED = 6  # outputs or pairs of classes that a message names


@dataclass(frozen=True)
class Cause:
    """A likely cause of a bad accuracy: `kind` is label order or transform; `accuracy` what it would be without it."""

    kind: str
    explanation: str
    accuracy: float


def suspect_order(
    space: LabelSpace,
    mapping: LabelMapping,
    answers: np.ndarray,
    labels: np.ndarray,
    stated: np.ndarray | None = None,
) -> Cause | None:
    """Return the order of classes that explains the predictions clearly better than the stated one, or None.

    Tried: constant shifts, reversed, alphabetical and index-as-text orders and their inverses; then, if classes have
    several pictures and one output each, any other assignment of outputs to classes (leave-one-out). stated: which
    pictures are correct; without it, those whose arg max is an output of the stated class.
    """
    class_of = np.full(len(space), -1)
    for index, members in enumerate(mapping.members):
        class_of[list(members)] = index
    stated = class_of[answers] == labels if stated is None else stated
    best: Cause | None = None
    for name, meaning in _orders(space, answers, [mapping.members[label] for label in labels]):
        guessed = class_of[meaning[answers]] == labels
        if clearly_better(guessed, stated) and (best is None or guessed.mean() > best.accuracy):
            moved = [(int(output), int(meaning[output])) for output in np.flatnonzero(meaning != np.arange(len(space)))]
            # A few exchanged outputs may happen to give the alphabetical order, so they are named instead.
            order = f"Its outputs seem to be {name}" if 2 * len(moved) > len(space) else _exchanged(space, moved)
            best = Cause("label order", f"{order}: accuracy would be {guessed.mean():.1%}", float(guessed.mean()))
    if any(len(members) > 1 for members in mapping.members):
        return best
    truth = np.array([mapping.members[label][0] if mapping.members[label] else -1 for label in labels])
    learned, fitted = _leave_one_out(answers, truth)
    # A known order is a better explanation than a table of swaps, so it is preferred unless it explains clearly less.
    if best is not None and best.accuracy >= (learned == truth).mean() - 0.1:
        return best
    if not clearly_better(learned == truth, stated):
        return best
    moved = [(output, target) for output, target in sorted(fitted.items()) if output != target]
    share = float((learned == truth).mean())
    return Cause("label order", f"{_exchanged(space, moved)}: accuracy would be {share:.1%}", share)


def suspect_exchange(name: str, space: LabelSpace, labels: np.ndarray, predicted: np.ndarray) -> str | None:
    """Return which pairs of classes the model `name` seems to exchange, at any accuracy; None without any.

    labels, predicted: (n,) in `space`, -1 unknown. More photographs of each of the two classes are answered with the
    other than rightly: a sign test over both, corrected for the pairs that are confused at all.
    """
    known = (labels >= 0) & (predicted >= 0)
    labels, predicted = labels[known], predicted[known]
    counts = Counter(zip(labels.tolist(), predicted.tolist(), strict=True))
    pairs = sorted({(min(pair), max(pair)) for pair in counts if pair[0] != pair[1]})
    found, gained = [], 0
    for first, second in pairs:
        # A class that is always answered with the other, but not the reverse, is a mistake of the model.
        if counts[first, second] <= counts[first, first] or counts[second, first] <= counts[second, second]:
            continue
        exchanged = counts[first, second] + counts[second, first]
        right = counts[first, first] + counts[second, second]
        if at_least(exchanged, exchanged + right, 0.5) * len(pairs) < SURE:
            among = int(np.isin(labels, (first, second)).sum())
            found.append(
                f"{space.classes[first]!r} and {space.classes[second]!r} look exchanged: {exchanged} of {among} "
                "photographs of them are answered with the other"
            )
            gained += exchanged - right
    if not found:
        return None
    accuracy = float((predicted == labels).mean())
    return (
        f"{name}: accuracy on {len(labels)} originals is {accuracy:.1%}; suspected: the label order. "
        f"{'; '.join(found[:NAMED])}{_more(found)}; accuracy would be {accuracy + gained / len(labels):.1%}"
    )


def _orders(space: LabelSpace, answers: np.ndarray, truth: Sequence[Sequence[int]]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield names and meanings (output -> output that it should be) of the orders that are often confused.

    truth: the outputs that are right for each picture.
    """
    count = len(space)
    gaps = [(output - answer) % count for answer, outputs in zip(answers, truth, strict=True) for output in outputs]
    shifts = np.bincount(np.array(gaps, dtype=np.int64), minlength=count)
    shift = int(shifts.argmax())
    if shift:
        signed = shift if shift <= count // 2 else shift - count
        text = f"shifted by {abs(signed)}: output j means class j {'+' if signed > 0 else '-'} {abs(signed)}"
        yield text, (np.arange(count) + shift) % count
    yield "in reversed order", np.arange(count)[::-1].copy()
    keys: dict[str, Callable[[int], object]] = {
        "in alphabetical order (capitals first)": lambda index: space.classes[index],
        "in alphabetical order": lambda index: space.classes[index].lower(),
        "in the order of their indices as text (0, 1, 10, 100 …)": str,
    }
    if space.wnids:
        keys["in the order of their WNIDs"] = lambda index: space.wnids[index]
    for name, key in keys.items():
        order = np.array(sorted(range(count), key=key))  # type: ignore[arg-type]
        if (order != np.arange(count)).any():
            yield name, order
            yield f"{name}, inverted", np.argsort(order)


def _leave_one_out(answers: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, dict[int, int]]:
    """Return each picture's class as predicted by the others with the same output, and the class of each output."""
    counts: dict[int, dict[int, int]] = {}
    for answer, target in zip(answers.tolist(), truth.tolist(), strict=True):
        counts.setdefault(answer, {})[target] = counts.get(answer, {}).get(target, 0) + 1
    learned = np.full(len(truth), -1)
    for place, (answer, target) in enumerate(zip(answers.tolist(), truth.tolist(), strict=True)):
        others = {label: count - (label == target) for label, count in counts[answer].items()}
        best = max(others, key=lambda label: (others[label], -label))
        learned[place] = best if others[best] > 0 else -2
    meaning = {answer: max(votes, key=lambda label: (votes[label], -label)) for answer, votes in counts.items()}
    return learned, {answer: target for answer, target in meaning.items() if target >= 0}


def _exchanged(space: LabelSpace, moved: Sequence[tuple[int, int]]) -> str:
    named = ", ".join(f"output {o} ({space.classes[o]!r}) means {space.classes[t]!r}" for o, t in moved[:NAMED])
    return f"Some of its outputs seem to be exchanged, {named}{_more(moved)}"


def _more(named: Sequence[object]) -> str:
    return f" and {len(named) - NAMED} more" if len(named) > NAMED else ""


def clearly_better(guessed: np.ndarray, stated: np.ndarray, level: float | None = None) -> bool:
    """Return whether one set of predictions is better on the same pictures, by a sign test and by ten points.

    level: of the test; by default 1 %, or at least four corrected predictions and none lost.
    """
    gained, lost = int((guessed & ~stated).sum()), int((~guessed & stated).sum())
    if guessed.mean() < max(0.3, stated.mean() + 0.1) or gained + lost < 4:
        return False
    return (level is None and not lost) or at_least(gained, gained + lost, 0.5) < (level or DOUBT)


def at_least(successes: int, tries: int, chance: float) -> float:
    """Return the probability of at least this many successes in independent tries."""
    from scipy.special import bdtrc  # scipy.stats takes seconds to import

    return float(bdtrc(successes - 1, tries, chance)) if successes > 0 else 1.0
