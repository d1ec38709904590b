"""`unswayed distribution`: whether pictures are like what a classifier knows, by scores of every picture.

Energy, GradNorm, background statistics, LPIPS, Inception features, and answers after batch-norm adaptation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from unswayed.benchmark import Benchmark
from unswayed.benchmark.quality import background_amplitude, glcm_measures
from unswayed.choices import takes
from unswayed.errors import UserError
from unswayed.files.whole import Json, canonical, sha256
from unswayed.jobs import EngineSettings, device_at
from unswayed.jobs.monitor import Monitor, View
from unswayed.jobs.parts import ItemTable
from unswayed.jobs.table_job import Share
from unswayed.labels import LabelSpace
from unswayed.models import Classifier, open_model
from unswayed.models.wrappers import NO_BATCH_NORM
from unswayed.sources.labeled import pictures_below
from unswayed.sources.pictures import read_mask, read_picture
from unswayed.sources.source import unique_slugs
from unswayed.specs import Spec, split_alias

from .evaluation import run_evaluation
from .feature_networks import FEATURES, inception_file, lpips_file, open_inception, open_lpips, picture_features
from .inputs import ORIGINAL, Picture, open_pictures
from .measures import energy, gradnorm
from .probes import Careful, Opened, Probe, run_probes
from .settings import DistributionSettings, EvaluateSettings

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
    """Pictures by key (`set|sample_id`), in order, whose edit is the set; described: what they are, for a card."""

    pictures: dict[str, Picture]
    described: list[Json]


def sets_of(benchmark: str | Path, against: Sequence[str] = (), limit: int | None = None) -> Sets:
    """The benchmark's edits as sets of their own names, and each folder of `against` as a set of its own spec."""
    edited = open_pictures(str(benchmark), limit)
    pictures = {f"{row.edit}|{row.sample_id}": row for row in edited.rows}
    described = [edited.described]
    for spec in against:
        listed = _folder(spec, limit)
        pictures |= {f"{spec}|{row.sample_id}": row for row in listed}
        digest = hashlib.sha256()
        for row in listed:
            status = Path(row.path).stat()
            digest.update(canonical([row.sample_id, status.st_size, status.st_mtime_ns]).encode())
        described.append({"spec": spec, "sha256": digest.hexdigest(), "pictures": len(listed)})
    if not any(row.edit == ORIGINAL for row in pictures.values()):
        raise UserError(f"{benchmark} has no pictures of '{ORIGINAL}' to compare with", run="unswayed build …")
    return Sets(pictures, described)


def _folder(spec: str, limit: int | None) -> list[Picture]:
    """The pictures of `images:FOLDER`; their labels are not needed here, so they need not have any."""
    parsed = Spec.parse(spec)
    if parsed.kind != "images":
        raise UserError(
            f"'{spec}' is no folder to compare with",
            allowed="images:FOLDER, a folder of pictures with or without labels",
        )
    root = parsed.folder()
    names = pictures_below(root)[:limit]
    if not names:
        raise UserError(f"'{spec}' holds no pictures")
    slugs = unique_slugs(names)
    return [
        Picture(slug, slug, Path(name).name, spec, 0, None, str(root / name))
        for slug, name in zip(slugs, names, strict=True)
    ]


Distance = Callable[[np.ndarray, np.ndarray], float]
MaybeMasked = tuple[np.ndarray, np.ndarray | None]  # a picture, and its mask if it has one


class _SetsProbe(Probe[MaybeMasked]):
    """Rows of the pictures of sets; each picture is loaded with its mask, if it has one."""

    def __init__(self, sets: Sets, path: Path, described: Json, keys: Sequence[str], schema: pa.Schema):
        super().__init__(ItemTable(path, {**described, "pictures": sets.described}, keys, schema, "picture"))
        self.sets = sets

    def load(self, picture: str) -> MaybeMasked:
        row = self.sets.pictures[picture]
        return read_picture(row.path), None if row.mask is None else read_mask(row.mask)

    def named(self, picture: str) -> Json:
        row = self.sets.pictures[picture]
        return {"picture": picture, "set": row.edit, "sample_id": row.sample_id, "source_id": row.source_id}


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
        distance: Distance | None = None,
    ) -> None:
        described = {"probe": SCORES, "lpips": distance is not None, **model.card()}
        super().__init__(sets, Path(folder) / SCORES / f"{model.slug}.parquet", described, list(sets.pictures), SCHEMA)
        self.model, self.distance = model, distance
        self.seen: list[torch.Tensor] = []  # what the last linear layer read in a pass
        layers = [layer for layer in model.module.modules() if isinstance(layer, nn.Linear)]
        for head in [layer for layer in layers if layer.out_features == len(model.labels)][-1:]:
            self.callback(head.register_forward_pre_hook(self._see).remove)

    def _see(self, _: object, inputs: tuple[torch.Tensor, ...]) -> None:
        self.seen.append(inputs[0].detach())

    def measure(self, picture: str, loaded: MaybeMasked) -> list[Json]:
        shown, (image, mask) = self.sets.pictures[picture], loaded
        self.seen.clear()
        logits = self.model.logits(self.model.prepare(image)[None]).cpu().numpy()
        row = {"model": self.model.name, **self.named(picture), "run": shown.run, "energy": float(energy(logits)[0])}
        if len(self.seen) == 1 and self.seen[0].ndim == 2:
            row["gradnorm"] = float(gradnorm(self.seen[0].float().cpu().numpy(), logits)[0])
        if mask is not None:
            texture = glcm_measures(image, mask)
            row |= {measure: texture[measure] for measure in BACKGROUND[:3]}
            row |= {"uniformity": texture["energy"], "amplitude": background_amplitude(image, mask)}
        original = self.sets.pictures.get(f"{ORIGINAL}|{shown.source_id}/{ORIGINAL}/0")
        if self.distance is not None and original is not None and shown.edit != ORIGINAL:
            before = read_picture(original.path)
            row["lpips"] = self.distance(before, image) if before.shape == image.shape else None
        return [row]


class FeaturesProbe(_SetsProbe):
    """FOLDER/inception/features.parquet: the Inception features of every picture of the named sets."""

    def __init__(
        self, network: nn.Module, weights_sha256: str, sets: Sets, names: Sequence[str], folder: str | Path
    ) -> None:
        keys = [key for key, row in sets.pictures.items() if row.edit in names]
        described = {"probe": FEATURE_ROWS, "weights_sha256": weights_sha256}
        super().__init__(sets, Path(folder) / FEATURE_ROWS / "features.parquet", described, keys, FEATURE_SCHEMA)
        self.network = network

    def measure(self, picture: str, loaded: MaybeMasked) -> list[Json]:
        return [{**self.named(picture), "features": picture_features(self.network, loaded[0])}]


ADAPTED = "+bn-adapt"
CRITIC_NOTE = (
    "FID and KID of this benchmark's edits are left out: the embedded network was trained with Inception features "
    "as its critic, so they would flatter it"
)


@dataclass(frozen=True)
class DistributionStudy:
    """What was measured: the models' file names, whether there are features and adapted answers, notes, and failures
    of models and pictures; unfinished: the models of which other shards have not measured all pictures yet."""

    folder: Path
    slugs: list[str]
    features: bool
    adapted: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)


@takes(DistributionSettings)
def run_distribution(
    benchmark: str | Path,
    models: Sequence[str],
    folder: str | Path,
    settings: DistributionSettings,
    *,
    show: Callable[[View], None] | None = None,
) -> DistributionStudy:
    """Every score of every picture, the Inception features and the answers after batch-norm adaptation; resumes.

    The fields of settings are also keywords. With a shard, the results are complete when the last shard is done. show:
    called with the state of the run. A model that fails is recorded as a failure, and the others are measured.
    """
    if len(set(models)) != len(models) or not models:
        raise UserError(f"the models are {', '.join(models) or 'none'}", allowed="one or more, each once")
    others = dict.fromkeys((*settings.against, settings.reference or ORIGINAL))
    against = [spec for spec in others if spec != ORIGINAL]
    sets = sets_of(benchmark, against, settings.limit)
    weights = inception_file(settings.inception) if settings.fid else None
    names = _fair_sets(benchmark, sets, against) if settings.fid else []
    study = DistributionStudy(Path(folder), [], weights is not None and len(names) > 1)
    if settings.fid and (ORIGINAL, *against) == tuple(names):
        study.notes.append(CRITIC_NOTE)
    lpips = lpips_file()
    if lpips is None:
        study.notes.append("LPIPS is left out, its weights are not here: unswayed weights fetch lpips-alex")
    opener = DistributionProbes(
        sets, study.folder, Benchmark(benchmark).labels, lpips, weights, tuple(names), settings.device
    )
    keys = [(name, SCORES) for name in models]
    if weights is not None and study.features:
        keys.append(("", FEATURE_ROWS))
    with Monitor(study.folder, "distribution", "pictures", show) as monitor:
        for (name, kind), result in run_probes(opener, keys, study.folder, settings, monitor, len(sets.pictures)):
            network = name or "Inception"
            if isinstance(result, str):  # whatever one network does, the others are measured
                study.failures[network] = result
            elif result is None:
                study.unfinished.append(network)
            else:
                result.record(network, study.failures, study.notes)
                if kind == SCORES:
                    study.slugs.append(result.path.stem)
    if not study.slugs and not study.unfinished:
        raise UserError("no model could be measured:\n" + "\n".join(f"{n}: {r}" for n, r in study.failures.items()))
    for name in models if settings.adapt and not study.unfinished else ():
        if name not in study.failures:
            _adapt(study, benchmark, name, settings)
    return replace(study, features=study.features and "Inception" not in study.failures)


@dataclass(frozen=True, eq=False)
class DistributionProbes:
    """Opens the models and the Inception network, in this process or in another one; keeps one of them open."""

    sets: Sets
    folder: Path
    labels: LabelSpace
    lpips: Path | None
    inception: Path | None
    names: tuple[str, ...]
    device: str | None = None

    def __call__(self, model: str, kind: str, share: Share, device: str | None, careful: Careful | None) -> Opened:
        """Probes of the scores of one model, or of the Inception features."""
        if kind == SCORES:
            distance = open_lpips(self.lpips) if self.lpips is not None else None
            opened = open_model(model, device=device_at(device, self.device), labels=self.labels)
            opened = replace(opened, fixed_hash=opened.weights_hash)

            def scores(copy: tuple[Classifier, Distance | None]) -> Probe:
                return ScoresProbe(copy[0], self.sets, self.folder, copy[1])

            return Opened((opened, distance), scores, str(opened.device), opened.nbytes)
        assert self.inception is not None
        chosen = device_at(device, self.device or "cpu") or "cpu"
        network, hashed = open_inception(self.inception, chosen), sha256(self.inception)
        size = sum(value.nbytes for value in network.state_dict().values())
        return Opened(
            network, lambda copy: FeaturesProbe(copy, hashed, self.sets, self.names, self.folder), chosen, size
        )


def _fair_sets(benchmark: str | Path, sets: Sets, against: Sequence[str]) -> list[str]:
    """The sets of which FID is fair: all, or the originals and other folders where the embedded network drew them."""
    renderer = Benchmark(benchmark).card.get("renderer")
    network = renderer.get("network") if isinstance(renderer, dict) else None
    if isinstance(network, dict) and network.get("name") == "compact":
        return [ORIGINAL, *against]
    return list(dict.fromkeys(row.edit for row in sets.pictures.values()))


def _adapt(study: DistributionStudy, benchmark: str | Path, name: str, wanted: DistributionSettings) -> None:
    """The model's answers with adapted statistics and as it is, in FOLDER/answers."""
    alias, spec = split_alias(name)
    if spec.endswith(ADAPTED):
        study.notes.append(f"{name} adapts its batch norm already")
        return
    called = f"{alias}-adapted={spec}{ADAPTED}" if alias else f"{spec}{ADAPTED}"
    where = {setting.name: getattr(wanted, setting.name) for setting in fields(EngineSettings)}
    settings = EvaluateSettings(**{**where, "shard": None, "limit": wanted.limit})
    for model in (called, name):
        done = run_evaluation(str(benchmark), [model], study.folder / "answers", settings)
        if any(NO_BATCH_NORM in reason for reason in done.failed.values()):
            study.notes.append(f"{name} has no batch norm to adapt")
            return
        study.failures.update(done.failed)
        study.notes.extend(text for warnings in done.warnings.values() for text in warnings)
        if done.failed:
            return
    study.adapted.append((alias or spec, split_alias(called)[0] or called))
