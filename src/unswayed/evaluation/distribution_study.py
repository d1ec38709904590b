"""`unswayed distribution` as a function: every probe over a benchmark and other folders, into one folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unswayed.errors import UserError
from unswayed.files.whole import sha256
from unswayed.jobs import EngineSettings
from unswayed.jobs.monitor import Monitor, View
from unswayed.jobs.resources import copies
from unswayed.jobs.settings import device_at
from unswayed.jobs.table_job import Share
from unswayed.labels import LabelSpace

from .distribution import FEATURE_ROWS, SCORES, FeaturesProbe, ScoresProbe, Sets, sets_of
from .inception import inception_file, open_inception
from .inputs import ORIGINAL
from .lpips import lpips_file, open_lpips
from .probes import Careful, Probe, run_probes

if TYPE_CHECKING:
    from unswayed.models import Classifier

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
    engine: EngineSettings | None = None,
    show: Callable[[View], None] | None = None,
) -> DistributionStudy:
    """Every score of every picture, the Inception features and the answers after batch-norm adaptation; resumes.

    against: folders `images:PATH` to compare with. fid: also FID and KID, by the Inception weights in the file
    `inception` (else the fetched ones). adapt: also the accuracy with batch-norm statistics of each edit. engine: where
    the networks run; with a shard, the results are complete when the last shard is done. show: called with the state
    of the run. A model that fails is recorded as a failure, and the others are measured.
    """
    if len(set(models)) != len(models) or not models:
        raise UserError(f"the models are {', '.join(models) or 'none'}", allowed="one or more, each once")
    engine = EngineSettings() if engine is None else engine
    sets = sets_of(benchmark, against, limit)
    weights = inception_file(inception) if fid else None
    names = _judged(benchmark, sets, against) if fid else []
    study = DistributionStudy(Path(folder), [], weights is not None and len(names) > 1)
    if fid and (ORIGINAL, *against) == tuple(names):
        study.notes.append(CRITIC_NOTE)
    found = lpips_file()
    if found is None:
        study.notes.append("LPIPS is left out, its weights are not here: unswayed weights fetch lpips-alex")
    from unswayed.benchmark import Benchmark

    opener = DistributionProbes(
        sets, study.folder, Benchmark(benchmark).labels, found, weights, tuple(names), engine.device
    )
    keys = [(name, SCORES) for name in models]
    if weights is not None and study.features:
        keys.append(("", FEATURE_ROWS))
    with Monitor(study.folder, "distribution", "pictures", show) as monitor:
        for (name, kind), result in run_probes(opener, keys, study.folder, engine, monitor, len(sets.pictures)):
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
    for name in models if adapt and not study.unfinished else ():
        if name not in study.failures:
            _adapt(study, benchmark, name, opener.model(name), limit, engine)
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

    def model(self, name: str, device: str | None = None) -> Classifier:
        from unswayed.models import open_model

        return open_model(name, device=device_at(device, self.device), labels=self.labels)

    @contextlib.contextmanager
    def open(
        self, model: str, kind: str, share: Share, device: str | None, lanes: int, careful: Careful | None
    ) -> Iterator[list[Probe]]:
        """Probes of the scores of one model, or of the Inception features."""
        with contextlib.ExitStack() as stack:
            if kind == SCORES:
                distance = open_lpips(self.lpips) if self.lpips is not None else None
                opened = self.model(model, device)
                lanes = lanes if str(opened.device).startswith("cpu") else 1
                models = copies((opened, distance), lanes, len(self.sets.pictures), opened.nbytes)
                yield [stack.enter_context(ScoresProbe(copy, self.sets, self.folder, by)) for copy, by in models]
                return
            assert self.inception is not None
            place = device_at(device, self.device or "cpu") or "cpu"
            network, hashed = open_inception(self.inception, place), sha256(self.inception)
            size = sum(value.nbytes for value in network.state_dict().values())
            networks = copies(network, lanes if place == "cpu" else 1, len(self.sets.pictures), size)
            yield [FeaturesProbe(copy, hashed, self.sets, self.names, self.folder) for copy in networks]


def _judged(benchmark: str | Path, sets: Sets, against: Sequence[str]) -> list[str]:
    """The sets of which FID is fair: all, or the originals and other folders where the embedded network drew them."""
    from unswayed.benchmark import Benchmark

    renderer = Benchmark(benchmark).card.get("renderer")
    network = renderer.get("network") if isinstance(renderer, dict) else None
    if isinstance(network, dict) and network.get("name") == "compact":
        return [ORIGINAL, *against]
    return list(dict.fromkeys(name for name, _ in sets.pictures.values()))


def _adapt(
    study: DistributionStudy, benchmark: str | Path, name: str, model: Any, limit: int | None, engine: EngineSettings
) -> None:
    """The model's answers as it is and with adapted statistics, in FOLDER/answers."""
    from torch.nn.modules.batchnorm import _BatchNorm

    from .evaluation import run_evaluation
    from .settings import EvaluateSettings

    if model.adapt is not None or not any(isinstance(one, _BatchNorm) for one in model.module.modules()):
        study.notes.append(f"{name} has no batch norm to adapt")
        return
    names = [name, f"{name}{ADAPTED}"]
    where = {one.name: getattr(engine, one.name) for one in fields(EngineSettings) if one.name != "shard"}
    settings = EvaluateSettings(limit=limit, **where)
    done = run_evaluation(str(benchmark), names, study.folder / "answers", settings)
    study.failures.update(done.failed)
    study.notes.extend(text for warnings in done.warnings.values() for text in warnings)
    if not done.failed:
        study.adapted.append((names[0], names[1]))
