"""Do pictures show what the words say? Image-text agreement by a CLIP-like model, with limits learned on the control.

The control is the same photograph drawn by the same pipeline from a prompt that describes it as it is, so it does not
show the words, unless by chance. A picture agrees with its words if it matches them better than nearly all controls
match the same words: its fault is the share of controls that match them at least as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from unswayed.errors import UserError
from unswayed.labels import LabelSpace
from unswayed.sources.pictures import read_picture
from unswayed.specs import Spec

from .rows import OK, Row
from .validity import judge

if TYPE_CHECKING:
    from unswayed.models import Classifier

AT_ONCE = 16


def agreement_faults(scores: np.ndarray, controls: np.ndarray) -> np.ndarray:
    """The share of the controls that match the words at least as well as each picture does, (N,) in [0, 1].

    scores: (N,), how well the pictures match; controls: (M,), how well the controls match the same words.

    >>> agreement_faults(np.array([0.9, 0.25, 0.1]), np.array([0.1, 0.2, 0.3, 0.4]))
    array([0. , 0.5, 1. ])
    """
    if not len(controls):
        return np.full(len(scores), np.nan)
    ranked = np.sort(controls)
    return 1 - np.searchsorted(ranked, scores, side="left") / len(ranked)


def measured_agreement(
    root: Path, rows: Sequence[Row], model: str, device: str | None = None
) -> tuple[list[Row], dict[str, object]]:
    """The rows with the fault `agreement` and its verdict for every picture that was drawn from words; and what the
    card says about the measurement.

    model: `open_clip:NAME/TAG`, `transformers:NAME_OR_FOLDER` or another source of zero-shot models.
    """
    made = [row for row in rows if row.status == OK and row.path is not None]
    drawn = [row for row in made if words_of(row) is not None]
    controls = [row for row in made if row.edit in {row.control for row in drawn}]
    if not drawn or not controls:
        return list(rows), {}
    texts = tuple(dict.fromkeys(text for row in drawn if (text := words_of(row)) is not None))
    classifier = _opened(model, texts, device)
    scores = _matches(root, [*drawn, *controls], classifier)
    faults: dict[str, float] = {}
    for column, text in enumerate(texts):
        shown = [row for row in drawn if words_of(row) == text]
        names = {row.control for row in shown}
        beside = np.array([scores[row.sample_id][column] for row in controls if row.edit in names])
        own = np.array([scores[row.sample_id][column] for row in shown])
        shares = agreement_faults(own, beside)
        faults |= {row.sample_id: float(share) for row, share in zip(shown, shares, strict=True)}
    facts = {"model": model, "weights_sha256": classifier.weights_hash, "controls": len(controls)}
    return [_judged(row, faults) for row in rows], facts


def words_of(row: Row) -> str | None:
    """What a picture was drawn from; None if it was not drawn from words."""
    text = row.values.get("words") or row.values.get("object_words")
    return str(text) if text else None


def _judged(row: Row, faults: Mapping[str, float]) -> Row:
    if row.sample_id not in faults or row.validity is None:
        return row
    measures = {**row.validity_measures, "agreement": round(faults[row.sample_id], 5)}
    verdict = judge(measures)
    return replace(row, validity=verdict.score, validity_reasons=list(verdict.reasons), validity_measures=measures)


def check_model(model: str, device: str | None = None) -> None:
    """Refuse a model that cannot be opened or reads no texts, before pictures are drawn for it."""
    _opened(model, ("a photo", "a drawing"), device)


def _opened(model: str, texts: tuple[str, ...], device: str | None) -> Classifier:
    """The model with one output for each text."""
    from unswayed.models import open_model

    allowed = "a zero-shot model, such as open_clip:NAME/TAG or transformers:NAME_OR_FOLDER"
    spec = Spec.parse(model)
    plain = model if "prompt" in spec.options else f"{model}{'&' if spec.options else '?'}prompt={{}}"
    try:
        classifier = open_model(plain, labels=LabelSpace("words", texts), device=device)
    except UserError as error:
        raise UserError(f"{model} does not compare pictures with texts: {error.given}", allowed=allowed) from None
    if classifier.origin.get("kind") != "zero-shot":
        raise UserError(f"{model} does not compare pictures with texts", allowed=allowed)
    return classifier


def _matches(root: Path, rows: Sequence[Row], classifier: Classifier) -> dict[str, np.ndarray]:
    """How well each picture matches each text, in the model's own scale, by the picture's sample_id."""
    import torch

    matches: dict[str, np.ndarray] = {}
    for first in range(0, len(rows), AT_ONCE):
        part = rows[first : first + AT_ONCE]
        pixels = torch.stack([classifier.prepare(read_picture(root / str(row.path))) for row in part])
        values = classifier.logits(pixels).double().cpu().numpy()
        matches |= {row.sample_id: value for row, value in zip(part, values, strict=True)}
    return matches
