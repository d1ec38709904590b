"""`unfazed distribution` as a function: every probe over a benchmark and other folders, into one folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unfazed.errors import UserError
from unfazed.predictions.inputs import ORIGINAL

from .distribution import Sets, measure_features, measure_scores, sets_of
from .inception import inception_file, open_inception
from .lpips import lpips_file, open_lpips
from .run import Report, counter

ADAPTED = "+bn-adapt"
CRITIC_NOTE = (
    "FID and KID of this benchmark's edits are left out: the embedded network was trained with Inception features "
    "as its critic, so they would flatter it"
)


@dataclass(frozen=True)
class DistributionStudy:
    """What was measured: the models' file names, whether there are features and adapted answers, notes and failures."""

    folder: Path
    slugs: list[str]
    features: bool
    adapted: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


def run_distribution(
    benchmark: str | Path,
    models: Sequence[str],
    folder: str | Path,
    *,
    against: Sequence[str] = (),
    fid: bool = True,
    inception: str | Path | None = None,
    adapt: bool = True,
    limit: int | None = None,
    device: str | None = None,
    report: Report | None = None,
) -> DistributionStudy:
    """Every score of every picture, the Inception features and the answers after batch-norm adaptation; resumes.

    against: folders `images:PATH` to compare with. fid: also FID and KID, by the Inception weights in the file
    `inception` (else the fetched ones). adapt: also the accuracy with batch-norm statistics of each edit.
    """
    if len(set(models)) != len(models) or not models:
        raise UserError(f"the models are {', '.join(models) or 'none'}", allowed="one or more, each once")
    sets = sets_of(benchmark, against, limit)
    weights = inception_file(inception) if fid else None
    names = _judged(benchmark, sets, against) if fid else []
    study = DistributionStudy(Path(folder), [], weights is not None and len(names) > 1)
    if fid and (ORIGINAL, *against) == tuple(names):
        study.notes.append(CRITIC_NOTE)
    found = lpips_file()
    if found is None:
        study.notes.append("LPIPS is left out, its weights are not here: unfazed weights fetch lpips-alex")
    distance = open_lpips(found) if found is not None else None
    from unfazed.benchmark import Benchmark
    from unfazed.models import open_model

    labels = Benchmark(benchmark).labels
    for name in models:
        model = open_model(name, device=device, labels=labels)
        outcome = measure_scores(model, sets, folder, distance, counter(report, name, len(sets.pictures)))
        outcome.record(name, study.failures, study.notes)
        study.slugs.append(model.slug)
        if adapt:
            _adapt(study, benchmark, name, model, limit, device)
    if weights is not None and study.features:
        from unfazed.files import sha256

        count = sum(name in names for name, _ in sets.pictures.values())
        network = open_inception(weights, device or "cpu")
        show = counter(report, "Inception", count)
        outcome = measure_features(network, sha256(weights), sets, names, folder, show)
        outcome.record("Inception", study.failures, study.notes)
    return study


def _judged(benchmark: str | Path, sets: Sets, against: Sequence[str]) -> list[str]:
    """The sets of which FID is fair: all, or the originals and other folders where the embedded network drew them."""
    from unfazed.benchmark import Benchmark

    renderer = Benchmark(benchmark).card.get("renderer")
    network = renderer.get("network") if isinstance(renderer, dict) else None
    if isinstance(network, dict) and network.get("name") == "compact":
        return [ORIGINAL, *against]
    return list(dict.fromkeys(name for name, _ in sets.pictures.values()))


def _adapt(
    study: DistributionStudy, benchmark: str | Path, name: str, model: Any, limit: int | None, device: str | None
) -> None:
    """The model's answers as it is and with adapted statistics, in FOLDER/answers."""
    from torch.nn.modules.batchnorm import _BatchNorm

    from unfazed.predictions.evaluation import run_evaluation
    from unfazed.predictions.settings import EvaluateSettings

    if model.adapt is not None or not any(isinstance(one, _BatchNorm) for one in model.module.modules()):
        study.notes.append(f"{name} has no batch norm to adapt")
        return
    names = [name, f"{name}{ADAPTED}"]
    settings = EvaluateSettings(limit=limit, device=device)
    done = run_evaluation(str(benchmark), names, study.folder / "answers", settings)
    study.failures.update(done.failed)
    study.notes.extend(text for warnings in done.warnings.values() for text in warnings)
    if not done.failed:
        study.adapted.append((names[0], names[1]))
