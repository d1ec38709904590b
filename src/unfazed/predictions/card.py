"""The card beside a model's predictions: which weights, which transform, which pictures; and the fingerprint of all."""

from __future__ import annotations

import hashlib
from typing import Any

from unfazed.files import canonical
from unfazed.models.classifier import Classifier
from unfazed.models.label_mapping import LabelMapping
from unfazed.versions import versions

from .inputs import Pictures

FORMAT = 2  # raised when the meaning of a column changes, so that old predictions are made anew


def fingerprint_of(model: Classifier, mapping: LabelMapping, pictures: Pictures, adaptation: int | None = None) -> str:
    """SHA-256 of all that decides about the predictions; where it is the same, there is nothing to do again.

    adaptation: the size of the batches that a model adapts to, which its statistics depend on.
    """
    parts = {
        "format": FORMAT,
        "model": model.name,
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


def make_card(
    model: Classifier, mapping: LabelMapping, pictures: Pictures, fingerprint: str, results: dict[str, Any]
) -> dict[str, Any]:
    """The JSON beside the Parquet; `results` are the counts, the accuracy on originals, the warnings."""
    return {
        **model.card(),
        "spec": model.spec,
        "labels": pictures.labels.to_json(),
        "model_labels": {"name": model.labels.name, "classes": len(model.labels)},
        "mapping": {key: value for key, value in mapping.to_json().items() if key != "members"},
        "benchmark": pictures.described,
        "white_box": is_white_box(model, pictures),
        "versions": versions(),
        "fingerprint": fingerprint,
        **results,
    }


def is_white_box(model: Classifier, pictures: Pictures) -> bool:
    """Whether adversarial pictures were made against this very model: the guide has its weights, or its name."""
    return model.weights_hash in pictures.guides or model.spec.partition("+")[0] in pictures.guides
