"""Scores of every picture that say whether it is like what a classifier knows: Energy, GradNorm, background statistics.

with scores_probe(open_model("lite:0"), sets_of("BENCH", ["images:other"]), "results") as probe:
    outcome = run_probe(probe)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from unswayed.benchmark.measures import background_amplitude, glcm_measures
from unswayed.errors import UserError
from unswayed.files.whole import canonical
from unswayed.sources.labeled import pictures_below
from unswayed.sources.pictures import read_mask, read_picture
from unswayed.sources.source import unique_slugs
from unswayed.specs import Spec

from .inception import FEATURES, picture_features
from .inputs import ORIGINAL, Picture, open_pictures
from .measures import energy, gradnorm
from .run import Probe

if TYPE_CHECKING:
    import torch
    from torch import nn

    from unswayed.models import Classifier

SCORES, FEATURE_ROWS = "scores", "inception"
BACKGROUND = ("contrast", "dissimilarity", "homogeneity", "uniformity", "amplitude")
_NAMED = [(name, pa.string()) for name in ("picture", "set", "sample_id", "source_id")]
SCHEMA = pa.schema(
    [("model", pa.string()), *_NAMED, ("run", pa.int64())]
    + [(name, pa.float64()) for name in ("energy", "gradnorm", *BACKGROUND, "lpips")]
)
FEATURE_SCHEMA = pa.schema([*_NAMED, ("features", pa.list_(pa.float32(), FEATURES))])


@dataclass(frozen=True)
class Sets:
    """Pictures by key (`set|sample_id`), in order; described: what they are, for a probe's card."""

    pictures: dict[str, tuple[str, Picture]]
    described: list[dict[str, Any]]

    def original_of(self, picture: Picture) -> Picture | None:
        """The photograph that a picture of the benchmark was made from."""
        found = self.pictures.get(f"{ORIGINAL}|{picture.source_id}/{ORIGINAL}/0")
        return found[1] if found is not None else None


def sets_of(benchmark: str | Path, against: Sequence[str] = (), limit: int | None = None) -> Sets:
    """The benchmark's edits as sets of their own names, and each folder of `against` as a set of its own spec."""
    edited = open_pictures(str(benchmark), limit)
    pictures = {f"{row.edit}|{row.sample_id}": (row.edit, row) for row in edited.rows}
    described = [edited.described]
    for spec in against:
        found = _folder(spec, limit)
        pictures |= {f"{spec}|{row.sample_id}": (spec, row) for row in found}
        digest = hashlib.sha256()
        for row in found:
            status = Path(row.path).stat()
            digest.update(canonical([row.sample_id, status.st_size, status.st_mtime_ns]).encode())
        described.append({"spec": spec, "sha256": digest.hexdigest(), "pictures": len(found)})
    if not any(name == ORIGINAL for name, _ in pictures.values()):
        raise UserError(f"{benchmark} has no pictures of '{ORIGINAL}' to compare with", run="unswayed build …")
    return Sets(pictures, described)


def _folder(spec: str, limit: int | None) -> list[Picture]:
    """The pictures of `images:FOLDER`; their labels are not needed here, so they need not have any."""
    parsed = Spec.parse(spec)
    if parsed.kind != "images":
        raise UserError(f"--against {spec}", allowed="images:FOLDER, a folder of pictures with or without labels")
    root = parsed.folder()
    names = pictures_below(root)[:limit]
    if not names:
        raise UserError(f"'{spec}' holds no pictures")
    slugs = unique_slugs(names)
    return [
        Picture(one, one, Path(name).name, spec, 0, None, str(root / name))
        for one, name in zip(slugs, names, strict=True)
    ]


@contextmanager
def scores_probe(
    model: Classifier,
    sets: Sets,
    folder: str | Path,
    distance: Callable[[np.ndarray, np.ndarray], float] | None = None,
) -> Iterator[Probe]:
    """FOLDER/scores/<model>.parquet: one row per picture with its scores; resumes.

    distance: LPIPS between a picture and its original, or None. GradNorm is missing for models whose last layer is not
    one linear layer that is used once; background statistics are missing for pictures without a mask.
    """
    described = {"probe": SCORES, "pictures": sets.described, "lpips": distance is not None, **model.card()}
    path = Path(folder) / SCORES / f"{model.slug}.parquet"
    with _head_inputs(model) as head_inputs:

        def measure(key: str, loaded: tuple[np.ndarray, np.ndarray | None]) -> list[dict[str, Any]]:
            name, picture = sets.pictures[key]
            image, mask = loaded
            logits = model.logits(model.prepare(image)[None]).cpu().numpy()
            features = head_inputs()
            row = {"model": model.name, "picture": key, "set": name, "run": picture.run}
            row |= {"sample_id": picture.sample_id, "source_id": picture.source_id, "energy": float(energy(logits)[0])}
            if features is not None:
                row["gradnorm"] = float(gradnorm(features, logits)[0])
            if mask is not None:
                texture = glcm_measures(image, mask)
                row |= {one: texture[one] for one in BACKGROUND[:3]}
                row |= {"uniformity": texture["energy"], "amplitude": background_amplitude(image, mask)}
            original = sets.original_of(picture)
            if distance is not None and original is not None and name != ORIGINAL:
                before = read_picture(original.path)
                row["lpips"] = distance(before, image) if before.shape == image.shape else None
            return [row]

        yield Probe(path, described, list(sets.pictures), _loader(sets), measure, SCHEMA, "picture")


def features_probe(
    network: nn.Module, weights_sha256: str, sets: Sets, names: Sequence[str], folder: str | Path
) -> Probe:
    """FOLDER/inception/features.parquet: the Inception features of every picture of the named sets; resumes."""
    keys = [key for key, (name, _) in sets.pictures.items() if name in names]
    described = {"probe": FEATURE_ROWS, "pictures": sets.described, "weights_sha256": weights_sha256}

    def measure(key: str, loaded: tuple[np.ndarray, np.ndarray | None]) -> list[dict[str, Any]]:
        name, picture = sets.pictures[key]
        named = {"picture": key, "set": name, "sample_id": picture.sample_id, "source_id": picture.source_id}
        return [{**named, "features": picture_features(network, loaded[0])}]

    path = Path(folder) / FEATURE_ROWS / "features.parquet"
    return Probe(path, described, keys, _loader(sets), measure, FEATURE_SCHEMA, "picture")


def _loader(sets: Sets) -> Callable[[str], tuple[np.ndarray, np.ndarray | None]]:
    def load(key: str) -> tuple[np.ndarray, np.ndarray | None]:
        _, picture = sets.pictures[key]
        return read_picture(picture.path), None if picture.mask is None else read_mask(picture.mask)

    return load


@contextmanager
def _head_inputs(model: Classifier) -> Iterator[Callable[[], np.ndarray | None]]:
    """A function that gives what the last linear layer read in the pass just made, (N, D) float32, or None."""
    from torch import nn

    heads = [
        one for one in model.module.modules() if isinstance(one, nn.Linear) and one.out_features == len(model.labels)
    ]
    seen: list[torch.Tensor] = []

    def hook(_: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        seen.append(inputs[0].detach())

    def read() -> np.ndarray | None:
        found = list(seen)
        seen.clear()
        return found[0].float().cpu().numpy() if len(found) == 1 and found[0].ndim == 2 else None

    handle = heads[-1].register_forward_pre_hook(hook) if heads else None
    try:
        yield read
    finally:
        if handle is not None:
            handle.remove()
