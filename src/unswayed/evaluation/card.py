"""The card of a model's predictions: its weights, transform and pictures, and the fingerprint of all three."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from unswayed.files.records import versions
from unswayed.files.whole import canonical
from unswayed.jobs.resources import FLOATS
from unswayed.models.classifier import Classifier
from unswayed.models.from_python import classes_hash
from unswayed.models.label_mapping import LabelMapping

from .inputs import Pictures

FORMAT = 2  # raised when the meaning of a column changes, so that old predictions are replaced


def fingerprint_of(
    model: Classifier,
    mapping: LabelMapping,
    pictures: Pictures,
    adaptation: int | None = None,
    named: tuple[str, str] | None = None,
) -> str:
    """Return the SHA-256 of everything that determines the predictions; if it is unchanged they are not made again.

    adaptation: the size of the batches that a model adapts to, which its statistics depend on; named: another name of
    the model, and what opens it under that name.
    """
    name, spec = named or (model.name, model.spec)
    parts = {
        "format": FORMAT,
        "model": name,
        # An alias says nothing about the model, and two models with the same weights can compute different things.
        **({"spec": spec} if spec != name else {}),
        "weights": model.weights_hash,
        "code": model.origin.get("code_sha256") if model.origin else classes_hash(model.module),
        "settings": model.origin.get("settings"),
        "adaptation": adaptation,
        "transform": model.transform.to_json(),
        "precision": model.precision,
        "mapping": mapping.to_json(),
        "labels": list(pictures.labels.classes),
        "pictures": pictures.described["sha256"],
    }
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def model_card(model: Classifier, mapping: LabelMapping, pictures: Pictures, fingerprint: str) -> dict[str, Any]:
    """Return the part of the card that is known before the predictions are made."""
    return {
        **model.card(),
        "spec": model.spec,
        "labels": pictures.labels.to_json(),
        "model_labels": {"name": model.labels.name, "classes": len(model.labels)},
        "mapping": {key: value for key, value in mapping.to_json().items() if key != "members"},
        "benchmark": pictures.described,
        "white_box": is_white_box(model, pictures),
        "versions": versions(),
        "floats": FLOATS,
        "fingerprint": fingerprint,
    }


def is_evaluated(model: Classifier, card: Mapping[str, Any]) -> bool:
    """Return whether the model is the one of a card, as far as that states its weights and its code."""
    code = (card.get("origin") or {}).get("code_sha256")
    return card.get("weights_sha256") in (None, model.weights_hash) and code in (None, model.origin.get("code_sha256"))


def is_white_box(model: Classifier, pictures: Pictures) -> bool:
    """Return whether adversarial pictures attack this model: the guide has the same weights or the same name."""
    return model.weights_hash in pictures.guides or model.spec.partition("+")[0] in pictures.guides
