"""The check of a model before it is evaluated or probed: finite logits, reproducible predictions, plausible accuracy.

A model with other logits is refused. A model whose accuracy on originals is no better than chance, or clearly better
with other labels or another transform, is evaluated with a suspicion about the likely cause. Outputs that look like
probabilities get a remark. Both are kept in the model's card, or in FOLDER/suspicions/<model>.json of a study.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from unswayed.errors import UserError
from unswayed.labels import LabelSpace, Task
from unswayed.models.classifier import Classifier
from unswayed.models.label_mapping import LabelMapping
from unswayed.models.opening import brings_transform
from unswayed.models.transforms import IMAGENET_MEAN, IMAGENET_STD, Geometry, paper

SANITY = 64  # originals that are checked before any prediction is stored
REPEATED = 2  # pictures that are classified again, to see whether the predictions stay the same
TRIED = 64  # pictures that other transforms are tried on
TOGETHER = 32  # of them in one batch
NEAR_ONE = 0.01  # how far the sum of rounded probabilities may be from 1
DOUBT = 0.01  # significance level where accuracy is near chance, or one order is compared with another
SURE = 0.001  # significance level, after Bonferroni's correction, where accuracy is above chance
NAMED = 6  # outputs or pairs of classes that a message names
Original = TypeVar("Original")
# (geometry, places) -> (n, crop, crop, 3) uint8: the originals at these places, cropped for that geometry.
Crops = Callable[[Geometry, np.ndarray], torch.Tensor]


def check_answers(model: Classifier, crops: torch.Tensor, scored: torch.Tensor, batch: int) -> None:
    """Refuse a model whose logits are not finite, or change from pass to pass or with the batch size.

    crops: (n, crop, crop, 3) uint8; scored: (n, classes), their logits in a batch of size `batch`.
    """
    # A small batch is repeated in a larger one, together with the negatives of its pictures. A GPU takes seconds to
    # choose its kernels for another batch size, so there the negatives are the only change.
    company = crops if batch > len(crops) else torch.cat([crops, 255 - crops])
    if batch > len(crops) and str(model.device).startswith("cuda"):
        company = torch.cat([crops, *[255 - crops] * -(-batch // len(crops))])[:batch]
    again = model.classify(company, len(company))[: len(crops)]
    if not torch.isfinite(scored).all() or not torch.isfinite(again).all():
        raise UserError(
            f"{model.name} returns NaN or infinite logits",
            allowed="finite logits; check its weights, or avoid fp16 overflow with --precision fp32",
        )
    # If the logits are the same in another batch and another pass, both checks are passed.
    if _same(model, scored, again):
        return
    if not _same(model, again, model.classify(company, len(company))[: len(crops)]):
        raise UserError(
            f"{model.name} returns different logits for the same pictures in two passes",
            allowed="a deterministic model: dropout or other noise seems to be active in eval() mode",
        )
    raise UserError(
        f"the logits of {model.name} depend on the batch size",
        allowed="a model that treats each picture alone: a batch norm seems to use the statistics of the batch, or a "
        "dynamic quantization its ranges, which `batch=1` (an option of onnx:, tflite: …) avoids",
    )


def check_originals(
    model: Classifier,
    mapping: LabelMapping,
    crops: Crops,
    labels: np.ndarray,
    answers: np.ndarray,
    predicted: np.ndarray,
    outputs: torch.Tensor,
    of_probabilities: bool = False,
) -> tuple[list[str], list[str]]:
    """Return what is suspicious about a model, and remarks for a reader of its numbers, from its answers on originals.

    crops: the n originals in any geometry; labels: (n,) in the benchmark's space, -1 unknown; answers: (n,) the arg max
    of the model's own logits; predicted: (n,) the answers in the benchmark's space, as they are scored; outputs:
    (m, classes), its logits for some of them; of_probabilities: whether its probabilities determine the results.
    """
    scores = suspect_scores(model.name, outputs)
    outside, most = classes_left_out(model.name, mapping, answers)
    # A group's probability is the sum of its members', so that a softmax makes its predicted classes wrong too.
    wrong = scores if of_probabilities or mapping.kind == "groups" else None
    accuracy = check_accuracy(model, mapping, crops, labels, answers, predicted)
    grave = [sentence for sentence in (wrong, accuracy, outside if most else None) if sentence]
    return grave, [sentence for sentence in (scores, outside) if sentence and sentence not in grave]


def check_accuracy(
    model: Classifier,
    mapping: LabelMapping,
    crops: Crops,
    labels: np.ndarray,
    answers: np.ndarray,
    predicted: np.ndarray,
) -> str | None:
    """Return what is suspicious about the accuracy on originals, with the likely cause; None if nothing is."""
    known = np.flatnonzero(labels >= 0)
    if not len(known):
        return None
    labels, answers, predicted = labels[known], answers[known], predicted[known]
    right = float((predicted == labels).mean())
    order = suspect_order(model.labels, mapping, answers, labels, predicted == labels)
    chance = chance_of(mapping)
    # A few pictures cannot show that a good model is better than chance; no warning if it is nearer to perfect.
    beaten = at_least(round(right * len(labels)), len(labels), chance) < DOUBT
    at_chance = not beaten and right < (1 + chance) / 2
    told = f"{model.name}: accuracy on {len(labels)} originals is {right:.1%} (chance is {chance:.1%})"
    if order is not None:
        return f"{told}; suspected: the label order. {order.explanation}"
    # Half of the pictures is enough to show the cause of an accuracy at chance.
    few = np.array(sanity_sample(range(len(known)), TRIED // 2 if at_chance else TRIED))
    stated = (predicted == labels)[few]
    improvable = not model.transform.checked and clearly_better(np.ones_like(stated), stated)
    # Models that come with their transform are prepared as their authors say; others only as well as their users know.
    if improvable and (at_chance or (model.adapt is None and not brings_transform(model.spec))):
        transform = suspect_transform(model, mapping, crops, known[few], labels[few], stated, at_chance)
        if transform is not None:
            return f"{told}; suspected: the transform. {transform.explanation}"
    if not at_chance:
        return None
    return (
        f"{told}; no other label order and no other common transform explains it clearly: "
        "the weights may be untrained, or the labels may be swapped or those of another dataset"
    )


def suspect_scores(name: str, outputs: torch.Tensor) -> str | None:
    """Return a remark if the outputs, (n, classes), look like probabilities where logits are expected, or None."""
    if not outputs.numel() or outputs.min() < 0 or outputs.max() > 1 + NEAR_ONE or bool((outputs == outputs[:1]).all()):
        return None
    if bool(((outputs.sum(1) - 1).abs() < NEAR_ONE).all()):
        return (
            f"{name}: its outputs are between 0 and 1 and sum to 1 for each picture, so the model seems to end in a "
            "softmax. Its probabilities, confidences and iRFS are wrong, because they are computed by another softmax. "
            'Remove the softmax, or state it: "scores": "probabilities" in the JSON file of a deployed model, '
            "Classifier(LogProbabilities(network), …) in Python"
        )
    if outputs.numel() < 16:  # so few logits may lie between 0 and 1 by chance
        return None
    return (
        f"{name}: its outputs are all between 0 and 1 but do not sum to 1, as those of sigmoids, so its probabilities "
        "and confidences cannot be compared with those of other models. Return the logits before the sigmoid"
    )


def classes_left_out(name: str, mapping: LabelMapping, answers: np.ndarray) -> tuple[str | None, bool]:
    """Return a remark about a model that is scored over some of its classes only, or None, and whether it prefers one
    of the other classes for most originals; answers: (n,) the arg max of its own logits."""
    used = sorted(index for members in mapping.members for index in members)
    if len(used) == mapping.classes or not len(answers):
        return None, False
    outside = int((~np.isin(answers, used)).sum())
    return (
        f"{name} is scored over {len(used)} of its {mapping.classes} classes, those of the pictures; for {outside} of "
        f"{len(answers)} originals it prefers one of the others, which does not count here"
    ), 2 * outside > len(answers)


def chance_of(mapping: LabelMapping, task: Task = "classify") -> float:
    """Return the accuracy of guessing: one over the number of classes that the model can answer, and none where it must
    find the object."""
    return 0.0 if task in ("detect", "segment") else 1 / max(1, sum(bool(group) for group in mapping.members))


def suspect_transform(
    model: Classifier,
    mapping: LabelMapping,
    crops: Crops,
    places: np.ndarray,
    labels: np.ndarray,
    right: np.ndarray,
    at_chance: bool,
) -> Cause | None:
    """Return the common transform with which the model is clearly better than with its own, or None.

    places: (n,) which of the originals are tried; labels, right: (n,) their labels, and whether the model classifies
    them correctly with its own transform. Unless the accuracy is at chance, the difference must be beyond doubt.
    """
    own, halves, zeros, ones = model.transform, (0.5,) * 3, (0.0,) * 3, (1.0,) * 3
    swapped = "BGR" if own.channels == "RGB" else "RGB"
    common = {
        "ImageNet's mean and std": replace(own, mean=IMAGENET_MEAN, std=IMAGENET_STD, scale=1.0),
        "mean 0.5 and std 0.5": replace(own, mean=halves, std=halves, scale=1.0),
        "pixels in [0, 1] without mean and std": replace(own, mean=zeros, std=ones, scale=1.0),
        "pixels in [0, 255] without mean and std": replace(own, mean=zeros, std=ones, scale=255.0),
        f"channels as {swapped}": replace(own, channels=swapped),
    }
    variants = {name: replace(model, transform=other) for name, other in common.items() if other != own}
    if paper(own) != own:
        variants["resize 256 and crop 224"] = model.with_transform("paper")

    def correct(variant: Classifier, some: np.ndarray) -> np.ndarray:
        logits = variant.classify(crops(variant.transform.geometry, places[some]), TOGETHER)
        return mapping.apply(logits).argmax(1).cpu().numpy() == labels[some]

    level = None if at_chance else SURE / len(variants)
    wrong, fine = np.flatnonzero(~right), np.flatnonzero(right)
    if not clearly_better(np.ones_like(right), right, level):
        return None
    best: Cause | None = None
    for name, variant in variants.items():
        guessed = right.copy()
        try:
            guessed[wrong] = correct(variant, wrong)
            # The others are tried only if enough mistakes are corrected.
            if len(fine) and clearly_better(guessed, right, level):
                guessed[fine] = correct(variant, fine)
        except Exception:  # a network may take only pictures of its own size
            continue
        share = float(guessed.mean())
        if clearly_better(guessed, right, level) and (best is None or share > best.accuracy):
            text = f"With {name} accuracy on {len(right)} of them would be {share:.1%} instead of {right.mean():.1%}"
            advice = "" if at_chance else "; if your transform is right, state `checked` in it"
            best = Cause(text + advice, share)
    return best


def _same(model: Classifier, logits: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two sets of logits are equal up to numerical precision."""
    tolerance = 1e-3 if model.precision == "fp32" else 0.1
    spread = float(logits.std()) if logits.numel() > 1 else 1.0
    return bool(((logits - other).abs() <= tolerance * max(spread, 1e-3)).all())


def sanity_sample(originals: Sequence[Original], count: int) -> list[Original]:
    """Return up to `count` originals, evenly spaced."""
    if len(originals) <= count:
        return list(originals)
    return [originals[int(position)] for position in np.linspace(0, len(originals) - 1, count).round()]


class Cause(NamedTuple):
    """A likely cause of a bad accuracy, and what the accuracy would be without it."""

    explanation: str
    accuracy: float


def suspect_order(
    space: LabelSpace, mapping: LabelMapping, answers: np.ndarray, labels: np.ndarray, stated: np.ndarray | None = None
) -> Cause | None:
    """Return the order of classes that explains the predictions clearly better than the stated one, or None.

    Tried: constant shifts, reversed, alphabetical and index-as-text orders and their inverses; then, if classes have
    several pictures and one output each, any other assignment of outputs to classes (leave-one-out). stated: which
    pictures are correct; without it, those whose arg max is an output of the stated class.
    """
    count = len(space.classes)
    members = [mapping.members[label] for label in labels]

    def right(outputs: np.ndarray) -> np.ndarray:
        return np.array([output in outputs_of for output, outputs_of in zip(outputs, members, strict=True)], bool)

    stated = right(answers) if stated is None else stated
    best: Cause | None = None
    for name, meaning in _orders(space, answers, members):
        guessed = right(meaning[answers])
        if clearly_better(guessed, stated) and (best is None or guessed.mean() > best.accuracy):
            moved = [(int(output), int(meaning[output])) for output in np.flatnonzero(meaning != np.arange(count))]
            # A few exchanged outputs may happen to give the alphabetical order, so they are named instead.
            order = f"Its outputs seem to be {name}" if 2 * len(moved) > count else _exchanged(space, moved)
            best = Cause(f"{order}: accuracy would be {guessed.mean():.1%}", float(guessed.mean()))
    if any(len(outputs) > 1 for outputs in mapping.members):
        return best
    truth = np.array([outputs[0] if outputs else -1 for outputs in members])
    learned, fitted = _leave_one_out(answers, truth)
    # A known order is a better explanation than a table of swaps, so it is preferred unless it explains clearly less.
    if best is not None and best.accuracy >= (learned == truth).mean() - 0.1:
        return best
    if not clearly_better(learned == truth, stated):
        return best
    moved = [(output, target) for output, target in sorted(fitted.items()) if output != target]
    share = float((learned == truth).mean())
    return Cause(f"{_exchanged(space, moved)}: accuracy would be {share:.1%}", share)


def suspect_exchange(name: str, space: LabelSpace, labels: np.ndarray, predicted: np.ndarray) -> str | None:
    """Return which pairs of classes the model `name` seems to exchange, at any accuracy; None without any.

    labels, predicted: (n,) in `space`, -1 unknown. More photographs of each of the two classes are answered with the
    other than rightly: a sign test over both, corrected for the pairs that are confused at all.
    """
    known = (labels >= 0) & (predicted >= 0)
    labels, predicted = labels[known], predicted[known]
    counts = Counter(zip(labels.tolist(), predicted.tolist(), strict=True))
    pairs = sorted({(min(pair), max(pair)) for pair in counts if pair[0] != pair[1]})
    better, gained = [], 0
    for first, second in pairs:
        # A class that is always answered with the other, but not the reverse, is a mistake of the model.
        if counts[first, second] <= counts[first, first] or counts[second, first] <= counts[second, second]:
            continue
        exchanged = counts[first, second] + counts[second, first]
        right = counts[first, first] + counts[second, second]
        if at_least(exchanged, exchanged + right, 0.5) * len(pairs) < SURE:
            among = int(np.isin(labels, (first, second)).sum())
            better.append(
                f"{space.classes[first]!r} and {space.classes[second]!r} look exchanged: {exchanged} of {among} "
                "photographs of them are answered with the other"
            )
            gained += exchanged - right
    if not better:
        return None
    accuracy = float((predicted == labels).mean())
    return (
        f"{name}: accuracy on {len(labels)} originals is {accuracy:.1%}; suspected: the label order. "
        f"{'; '.join(better[:NAMED])}{_more(better)}; accuracy would be {accuracy + gained / len(labels):.1%}"
    )


def _orders(space: LabelSpace, answers: np.ndarray, truth: Sequence[Sequence[int]]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield names and meanings (output -> output that it should be) of the orders that are often confused.

    truth: the outputs that are right for each picture.
    """
    count = len(space.classes)
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
    outputs, rows = np.unique(answers, return_inverse=True)
    targets, columns = np.unique(truth, return_inverse=True)
    counts = np.zeros((len(outputs), len(targets)), np.int64)
    np.add.at(counts, (rows, columns), 1)
    others = counts[rows]
    others[np.arange(len(truth)), columns] -= 1
    learned = np.where(others.max(1) > 0, targets[others.argmax(1)], -2)
    meaning = zip(outputs.tolist(), targets[counts.argmax(1)].tolist(), strict=True)
    return learned, {output: target for output, target in meaning if target >= 0}


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
    if successes <= 0 or chance >= 1:
        return 1.0
    if chance <= 0:
        return 0.0
    # scipy would be imported for this alone, after the first batch.
    odds, whole = (math.log(chance), math.log1p(-chance)), math.lgamma(tries + 1)
    return math.fsum(
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(tries - k + 1) + k * odds[0] + (tries - k) * odds[1])
        for k in range(successes, tries + 1)
    )
