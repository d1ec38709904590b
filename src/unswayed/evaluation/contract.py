"""The check of a model before it is evaluated or probed: finite logits, reproducible predictions, plausible accuracy.

A model with other logits is refused. A model whose accuracy on originals is no better than chance, or clearly better
with other labels or another transform, is evaluated with a suspicion about the likely cause. Outputs that look like
probabilities get a remark. Both are kept in the model's card, or in FOLDER/suspicions/<model>.json of a study.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch

from unswayed.benchmark.rows import SOURCE_EDIT
from unswayed.choices import Frame
from unswayed.errors import BadPicture, UserError
from unswayed.files.whole import remove_file, write_json
from unswayed.jobs.resources import in_parts
from unswayed.masks.checks import doubted_masks
from unswayed.models.classifier import Classifier
from unswayed.models.label_mapping import LabelMapping
from unswayed.models.opening import brings_transform
from unswayed.models.training_photographs import training_overlap
from unswayed.models.transforms import IMAGENET_MEAN, IMAGENET_STD, Geometry, paper

from .label_orders import DOUBT, SURE, Cause, at_least, clearly_better, suspect_exchange, suspect_order
from .probes import Careful
from .saliency import MaskedPicture, opened_pictures

if TYPE_CHECKING:
    from unswayed.benchmark import Benchmark
    from unswayed.models import Classifier
    from unswayed.sources import Source


SANITY = 64  # originals that are checked before any prediction is stored
REPEATED = 2  # pictures that are classified again, to see whether the predictions stay the same
TRIED = 64  # pictures that other transforms are tried on
TOGETHER = 32  # of them in one batch
NEAR_ONE = 0.01  # how far the sum of rounded probabilities may be from 1
Original = TypeVar("Original")
# (geometry, places) -> (n, crop, crop, 3) uint8: the originals at these places, cropped for that geometry.
Crops = Callable[[Geometry, np.ndarray], torch.Tensor]


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

    outputs: (m, classes), its logits for some of them; of_probabilities: whether the results are computed from its
    probabilities; the others: see `check_accuracy`.
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
    """Return what is suspicious about the accuracy on originals, with the likely cause; None if nothing is.

    crops: the n originals in any geometry; labels: (n,) in the benchmark's space, -1 unknown; answers: (n,) the arg max
    of the model's own logits; predicted: (n,) the answers in the benchmark's space, as they are scored.
    """
    known = np.flatnonzero(labels >= 0)
    if not len(known):
        return None
    labels, answers, predicted = labels[known], answers[known], predicted[known]
    right = float((predicted == labels).mean())
    order = suspect_order(model.labels, mapping, answers, labels, predicted == labels)
    chance = chance_of(mapping)
    # A few pictures cannot show that a good model is better than chance; no warning if it is nearer to perfect.
    at_chance = not _beats(round(right * len(labels)), len(labels), chance) and right < (1 + chance) / 2
    told = f"{model.name}: accuracy on {len(labels)} originals is {right:.1%} (chance is {chance:.1%})"
    if order is not None:
        return f"{told}; suspected: the label order. {order.explanation}"
    # Models that come with their transform are prepared as their authors say; others only as well as their users know.
    doubted = at_chance or (model.adapt is None and not brings_transform(model.spec))
    if doubted and not model.transform.checked:
        # Half of the pictures is enough to show the cause of an accuracy at chance.
        few = np.array(sanity_sample(range(len(known)), TRIED // 2 if at_chance else TRIED))
        stated = (predicted == labels)[few]
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


def chance_of(mapping: LabelMapping) -> float:
    """Return the accuracy of guessing: one over the number of classes that the model can answer."""
    return 1 / max(1, sum(bool(group) for group in mapping.members))


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

    def correct(variant: Classifier, some: np.ndarray) -> np.ndarray:
        parts = crops(variant.transform.geometry, places[some]).split(TOGETHER)
        predicted = [mapping.apply(variant.logits(variant.from_pixels(part))).argmax(1).cpu() for part in parts]
        return torch.cat(predicted).numpy() == labels[some]

    variants = list(_usual(model))
    level = None if at_chance else SURE / len(variants)
    wrong, fine = np.flatnonzero(~right), np.flatnonzero(right)
    if not clearly_better(np.ones_like(right), right, level):
        return None
    best: Cause | None = None
    for name, variant in variants:
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
            best = Cause("transform", text + advice, share)
    return best


def _usual(model: Classifier) -> Iterator[tuple[str, Classifier]]:
    """Yield names and variants of the model under the common transforms that differ from its own."""
    own = model.transform
    half, zero, one = (0.5,) * 3, (0.0,) * 3, (1.0,) * 3
    swapped = "BGR" if own.channels == "RGB" else "RGB"
    common = {
        "ImageNet's mean and std": replace(own, mean=IMAGENET_MEAN, std=IMAGENET_STD, scale=1.0),
        "mean 0.5 and std 0.5": replace(own, mean=half, std=half, scale=1.0),
        "pixels in [0, 1] without mean and std": replace(own, mean=zero, std=one, scale=1.0),
        "pixels in [0, 255] without mean and std": replace(own, mean=zero, std=one, scale=255.0),
        f"channels as {swapped}": replace(own, channels=swapped),
    }
    for name, transform in common.items():
        if transform != own:
            yield name, replace(model, transform=transform)
    if paper(own) != own:
        yield "resize 256 and crop 224", model.with_transform("paper")


def _beats(right: int, count: int, chance: float) -> bool:
    return at_least(right, count, chance) < DOUBT


def _same(model: Classifier, logits: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two sets of logits are equal up to numerical precision."""
    tolerance = 1e-3 if model.precision == "fp32" else 0.1
    spread = float(logits.std()) if logits.numel() > 1 else 1.0
    return bool(((logits - other).abs() <= tolerance * max(spread, 1e-3)).all())


def sanity_sample(originals: Sequence[Original], count: int) -> list[Original]:
    """Return up to `count` originals, evenly spaced."""
    if len(originals) <= count:
        return list(originals)
    return [originals[int(place)] for place in np.linspace(0, len(originals) - 1, count).round()]


BATCH = 16


def check_plausible(
    model: Classifier,
    pictures: Source | Benchmark,
    folder: str | Path,
    frame: Frame = "object",
    skipped: Container[str] = (),
    careful: Careful | None = None,
) -> None:
    """Record what is suspicious about the model's accuracy on up to 64 originals, as `evaluate` does.

    Refuses a model whose logits are not finite or not reproducible. skipped: photographs that are not read; careful:
    called with each photograph and with the model before they are used.
    """
    import torch

    load, ids, mapping, _ = opened_pictures(pictures, model, frame)
    sample = list(_sampled(load, ids, skipped, careful))
    if careful is not None:
        careful("model", model.name)
    path = _file(folder, model.slug)
    remove_file(path)
    if not sample:
        return

    def crops(geometry: Geometry, places: np.ndarray) -> torch.Tensor:
        some = [sample[place] for place in places]
        if some[0].whole and geometry.crop != model.transform.crop:
            other = replace(model, transform=replace(model.transform, crop=geometry.crop))
            load_other = opened_pictures(pictures, other, frame)[0]
            some = [load_other(f"{picture.source_id}/original/0") for picture in some]
        images = [picture.image if picture.whole else geometry.apply(picture.image) for picture in some]
        return torch.from_numpy(np.stack(images))

    own = crops(model.transform.geometry, np.arange(len(sample)))
    logits = torch.cat(
        [in_parts(lambda some: model.logits(model.from_pixels(some)), part) for part in own.split(BATCH)]
    )
    if model.adapt is None:
        check_answers(model, own[:REPEATED], logits[:REPEATED], min(BATCH, len(own)))
    labels = np.array([picture.label for picture in sample])
    answers, predicted = (scores.argmax(1).cpu().numpy() for scores in (logits, mapping.apply(logits)))
    grave, remarks = check_originals(model, mapping, crops, labels, answers, predicted, logits, of_probabilities=True)
    seen = training_overlap(model.name, model.origin, _photographs(pictures))
    doubts = [
        *grave,
        None if grave else suspect_exchange(model.name, mapping.target, labels, predicted),
        doubted_masks(
            {picture.source_id: picture.about_mask for picture in sample},
            {picture.source_id: picture.mask_origin for picture in sample if picture.mask_origin is not None},
        ),
        seen.suspicion,
    ]
    suspicion = "; ".join(doubt for doubt in doubts if doubt)
    remarks += [seen.remark] if seen.remark else []
    if suspicion or remarks:
        write_json(path, {"model": model.name, "suspicion": suspicion, "remarks": remarks})


def _sampled(
    load: Callable[[str], MaskedPicture], ids: Iterable[str], skipped: Container[str], careful: Careful | None
) -> Iterator[MaskedPicture]:
    """Up to 64 readable originals, evenly spaced."""
    originals = [sample_id for sample_id in ids if sample_id.split("/")[-2] == "original"]
    for sample_id in sanity_sample(originals, SANITY):
        photograph = sample_id.rsplit("/", 2)[0]
        if photograph in skipped:
            continue
        if careful is not None:
            careful("picture", photograph)
        with contextlib.suppress(BadPicture):  # the probe reports it
            yield load(sample_id)


def _photographs(pictures: Source | Benchmark) -> list[str]:
    """The files of the photographs themselves."""
    from unswayed.sources import Source

    if isinstance(pictures, Source):
        return [entry.image for entry in pictures.entries]
    rows = pictures.manifest.select(["edit", "path"]).to_pylist()
    return [str(pictures.root / row["path"]) for row in rows if row["edit"] == SOURCE_EDIT and row["path"]]


def _file(folder: str | Path, slug: str) -> Path:
    return Path(folder) / "suspicions" / f"{slug}.json"
