"""The card of a model's predictions: its weights, transform and pictures, and the fingerprint of all three."""

from __future__ import annotations

import hashlib
from typing import Any

from unfazed.engine.threads import FLOATS
from unfazed.files import canonical
from unfazed.models.classifier import Classifier
from unfazed.models.label_mapping import LabelMapping
from unfazed.versions import versions

from .inputs import Pictures

FORMAT = 2  # raised when the meaning of a column changes, so that old predictions are replaced


def fingerprint_of(
    model: Classifier,
    mapping: LabelMapping,
    pictures: Pictures,
    adaptation: int | None = None,
    name: str | None = None,
) -> str:
    """Return the SHA-256 of everything that determines the predictions; if it is unchanged they are not made again.

    adaptation: the size of the batches that a model adapts to, which its statistics depend on; name: another name of
    the model.
    """
    parts = {
        "format": FORMAT,
        "model": name or model.name,
        "weights": model.weights_hash,
        "code": model.origin.get("code_sha256"),
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


def is_white_box(model: Classifier, pictures: Pictures) -> bool:
    """Return whether adversarial pictures attack this model: the guide has the same weights or the same name."""
    return model.weights_hash in pictures.guides or model.spec.partition("+")[0] in pictures.guides
