"""The check of a model before its evaluation: finite logits, reproducible predictions, better than chance.

A model with other logits is refused. A model whose accuracy on originals is no better than chance is evaluated, with
a suspicion about the likely cause: the order of its labels or its transform. The suspicion is kept in the model's card.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch

from unfazed.errors import UserError
from unfazed.labels import LabelSpace
from unfazed.models.classifier import Classifier
from unfazed.models.label_mapping import LabelMapping
from unfazed.models.transforms import IMAGENET_MEAN, IMAGENET_STD, Transform

REPEATED = 2  # pictures that are classified again, to see whether the predictions stay the same
TRIED = 32  # pictures that other transforms are tried on
Original = TypeVar("Original")
DOUBT = 0.01  # significance level at which an accuracy counts as better than chance


@dataclass(frozen=True)
class Cause:
    """A likely cause of a bad accuracy: `kind` is label order or transform; `accuracy` what it would be without it."""

    kind: str
    explanation: str
    accuracy: float


def check_answers(model: Classifier, crops: torch.Tensor, scored: torch.Tensor, batch: int) -> None:
    """Refuse a model whose logits are not finite, or change from pass to pass or with the batch size.

    crops: (n, crop, crop, 3) uint8; scored: (n, classes), their logits in a batch of size `batch`.
    """
    # A small batch is repeated in a larger one, together with the negatives of its pictures.
    company = crops if batch > len(crops) else torch.cat([crops, 255 - crops])
    few = model.from_pixels(company)
    again = model.logits(few)[: len(crops)]
    if not torch.isfinite(scored).all() or not torch.isfinite(again).all():
        raise UserError(
            f"{model.name} returns NaN or infinite logits",
            allowed="finite logits; check its weights, or avoid fp16 overflow with --precision fp32",
        )
    # If the logits are the same in another batch and another pass, both checks are passed.
    if _same(model, scored, again):
        return
    if not _same(model, again, model.logits(few)[: len(crops)]):
        raise UserError(
            f"{model.name} returns different logits for the same pictures in two passes",
            allowed="a deterministic model: dropout or other noise seems to be active in eval() mode",
        )
    raise UserError(
        f"the logits of {model.name} depend on the batch size",
        allowed="a model that treats each picture alone: a batch norm seems to use the statistics of the batch, or a "
        "dynamic quantization its ranges, which `batch=1` (an option of onnx:, tflite: …) avoids",
    )


def check_accuracy(
    model: Classifier,
    mapping: LabelMapping,
    crops: torch.Tensor,
    labels: np.ndarray,
    answers: np.ndarray,
    predicted: np.ndarray,
) -> str | None:
    """Return what is suspicious about the accuracy on originals, with the likely cause; None if nothing is.

    crops: (n, crop, crop, 3) uint8; labels: (n,) in the benchmark's space, -1 unknown; answers: (n,) the arg max
    of the model's own logits; predicted: (n,) the answers in the benchmark's space, as they are scored.
    """
    known = labels >= 0
    if not known.any():
        return None
    crops, labels, answers, predicted = crops[torch.from_numpy(known)], labels[known], answers[known], predicted[known]
    right = float((predicted == labels).mean())
    order = suspect_order(model.labels, mapping, answers, labels, predicted == labels)
    chance = chance_of(mapping)
    # A few pictures cannot show that a good model is better than chance; no warning if it is nearer to perfect.
    at_chance = not _beats(round(right * len(labels)), len(labels), chance) and right < (1 + chance) / 2
    told = f"{model.name}: accuracy on {len(labels)} originals is {right:.1%} (chance is {chance:.1%})"
    if order is not None:
        return f"{told}; suspected: the label order. {order.explanation}"
    if not at_chance:
        return None
    transform = suspect_transform(model, mapping, crops, labels, right)
    if transform is not None:
        return f"{told}; suspected: the transform. {transform.explanation}"
    return (
        f"{told}; no other label order and no other common transform explains it clearly: "
        "the weights may be untrained, or the labels may be swapped or those of another dataset"
    )


def chance_of(mapping: LabelMapping) -> float:
    """Return the accuracy of guessing: one over the number of classes that the model can answer."""
    return 1 / max(1, sum(bool(group) for group in mapping.members))


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
        if _clearly_better(guessed, stated) and (best is None or guessed.mean() > best.accuracy):
            best = Cause(
                "label order", f"Its outputs seem to be {name}: accuracy would be {guessed.mean():.1%}", guessed.mean()
            )
    if any(len(members) > 1 for members in mapping.members):
        return best
    truth = np.array([mapping.members[label][0] if mapping.members[label] else -1 for label in labels])
    learned, fitted = _leave_one_out(answers, truth)
    # A known order is a better explanation than a table of swaps, so it is preferred unless it explains clearly less.
    if best is not None and best.accuracy >= (learned == truth).mean() - 0.1:
        return best
    if not _clearly_better(learned == truth, stated):
        return best
    moved = [(output, target) for output, target in sorted(fitted.items()) if output != target]
    named = ", ".join(f"output {o} ({space.classes[o]!r}) means {space.classes[t]!r}" for o, t in moved[:6])
    more = f" and {len(moved) - 6} more" if len(moved) > 6 else ""
    share = float((learned == truth).mean())
    return Cause(
        "label order", f"Each output fits one other class: {named}{more}; accuracy would be {share:.1%}", share
    )


def suspect_transform(
    model: Classifier, mapping: LabelMapping, crops: torch.Tensor, labels: np.ndarray, right: float
) -> Cause | None:
    """Return the common normalization with which the model is clearly better than with its own, or None."""
    few, truth = crops[:TRIED], labels[:TRIED]

    def answers(transform: Transform) -> np.ndarray:
        variant = replace(model, transform=transform)
        logits = torch.cat([variant.logits(variant.from_pixels(part)) for part in few.split(TRIED)])
        return mapping.apply(logits).argmax(1).cpu().numpy() == truth

    stated = answers(model.transform)
    found = [(name, answers(transform)) for name, transform in _usual(model.transform)]
    found = [(name, guessed) for name, guessed in found if _clearly_better(guessed, stated)]
    if not found:
        return None
    name, guessed = max(found, key=lambda pair: pair[1].mean())
    return Cause("transform", f"With {name} accuracy would be {guessed.mean():.1%}", float(guessed.mean()))


def _usual(own: Transform) -> Iterator[tuple[str, Transform]]:
    half, zero, one = (0.5,) * 3, (0.0,) * 3, (1.0,) * 3
    yield "ImageNet's mean and std", replace(own, mean=IMAGENET_MEAN, std=IMAGENET_STD, scale=1.0)
    yield "mean 0.5 and std 0.5", replace(own, mean=half, std=half, scale=1.0)
    yield "pixels in [0, 1] without mean and std", replace(own, mean=zero, std=one, scale=1.0)
    yield "pixels in [0, 255] without mean and std", replace(own, mean=zero, std=one, scale=255.0)
    swapped = "BGR" if own.channels == "RGB" else "RGB"
    yield f"channels as {swapped}", replace(own, channels=swapped)


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
        others = {one: count - (one == target) for one, count in counts[answer].items()}
        best = max(others, key=lambda one: (others[one], -one))
        learned[place] = best if others[best] > 0 else -2
    meaning = {answer: max(votes, key=lambda one: (votes[one], -one)) for answer, votes in counts.items()}
    return learned, {answer: target for answer, target in meaning.items() if target >= 0}


def _clearly_better(guessed: np.ndarray, stated: np.ndarray) -> bool:
    """Return whether one set of predictions is better on the same pictures, by a sign test and by ten points."""
    gained, lost = int((guessed & ~stated).sum()), int((~guessed & stated).sum())
    if guessed.mean() < max(0.3, stated.mean() + 0.1) or gained + lost < 4:
        return False
    return _at_least(gained, gained + lost, 0.5) < max(DOUBT, 2 * 0.5 ** (gained + lost))


def _beats(right: int, count: int, chance: float) -> bool:
    return _at_least(right, count, chance) < DOUBT


def _at_least(successes: int, tries: int, chance: float) -> float:
    """Return the probability of at least this many successes in independent tries."""
    from scipy.special import bdtrc  # scipy.stats takes seconds to import

    return float(bdtrc(successes - 1, tries, chance)) if successes > 0 else 1.0


def _same(model: Classifier, one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two sets of logits are equal up to numerical precision."""
    tolerance = 1e-3 if model.precision == "fp32" else 0.1
    spread = float(one.std()) if one.numel() > 1 else 1.0
    return bool(((one - other).abs() <= tolerance * max(spread, 1e-3)).all())


def sanity_sample(originals: Sequence[Original], count: int) -> list[Original]:
    """Return up to `count` originals, evenly spaced."""
    if len(originals) <= count:
        return list(originals)
    return [originals[int(place)] for place in np.linspace(0, len(originals) - 1, count).round()]
