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
from unswayed.jobs.parts import ItemTable
from unswayed.sources.labeled import pictures_below
from unswayed.sources.pictures import read_mask, read_picture
from unswayed.sources.source import unique_slugs
from unswayed.specs import Spec

from .inception import FEATURES, picture_features
from .inputs import ORIGINAL, Picture, open_pictures
from .measures import energy, gradnorm
from .probes import Probe

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


class _SetsProbe(Probe):
    """Rows of the pictures of sets; each picture is loaded with its mask, if it has one."""

    def __init__(self, sets: Sets, path: Path, described: dict[str, Any], keys: Sequence[str], schema: pa.Schema):
        super().__init__(ItemTable(path, {**described, "pictures": sets.described}, keys, schema, "picture"))
        self.sets = sets

    def load(self, picture: str) -> tuple[np.ndarray, np.ndarray | None]:
        _, row = self.sets.pictures[picture]
        return read_picture(row.path), None if row.mask is None else read_mask(row.mask)

    def named(self, picture: str) -> dict[str, Any]:
        name, row = self.sets.pictures[picture]
        return {"picture": picture, "set": name, "sample_id": row.sample_id, "source_id": row.source_id}


class ScoresProbe(_SetsProbe):
    """FOLDER/scores/<model>.parquet: one row per picture with its scores.

    distance: LPIPS between a picture and its original, or None. GradNorm is missing for models whose last layer is not
    one linear layer that is used once; background statistics are missing for pictures without a mask.
    """

    def __init__(
        self,
        model: Classifier,
        sets: Sets,
        folder: str | Path,
        distance: Callable[[np.ndarray, np.ndarray], float] | None = None,
    ) -> None:
        described = {"probe": SCORES, "lpips": distance is not None, **model.card()}
        super().__init__(sets, Path(folder) / SCORES / f"{model.slug}.parquet", described, list(sets.pictures), SCHEMA)
        self.model, self.distance = model, distance
        self.head_inputs = self.held.enter_context(_head_inputs(model))

    def measure(self, picture: str, loaded: tuple[np.ndarray, np.ndarray | None]) -> list[dict[str, Any]]:
        name, shown = self.sets.pictures[picture]
        image, mask = loaded
        logits = self.model.logits(self.model.prepare(image)[None]).cpu().numpy()
        features = self.head_inputs()
        row = {"model": self.model.name, **self.named(picture), "run": shown.run, "energy": float(energy(logits)[0])}
        if features is not None:
            row["gradnorm"] = float(gradnorm(features, logits)[0])
        if mask is not None:
            texture = glcm_measures(image, mask)
            row |= {measure: texture[measure] for measure in BACKGROUND[:3]}
            row |= {"uniformity": texture["energy"], "amplitude": background_amplitude(image, mask)}
        original = self.sets.original_of(shown)
        if self.distance is not None and original is not None and name != ORIGINAL:
            before = read_picture(original.path)
            row["lpips"] = self.distance(before, image) if before.shape == image.shape else None
        return [row]


class FeaturesProbe(_SetsProbe):
    """FOLDER/inception/features.parquet: the Inception features of every picture of the named sets."""

    def __init__(
        self, network: nn.Module, weights_sha256: str, sets: Sets, names: Sequence[str], folder: str | Path
    ) -> None:
        keys = [key for key, (name, _) in sets.pictures.items() if name in names]
        described = {"probe": FEATURE_ROWS, "weights_sha256": weights_sha256}
        super().__init__(sets, Path(folder) / FEATURE_ROWS / "features.parquet", described, keys, FEATURE_SCHEMA)
        self.network = network

    def measure(self, picture: str, loaded: tuple[np.ndarray, np.ndarray | None]) -> list[dict[str, Any]]:
        return [{**self.named(picture), "features": picture_features(self.network, loaded[0])}]


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
