"""`unswayed sensitivity` as a function: probe models over one source or benchmark, and write the results to a folder.

study = run_study("sample", ["lite:0", "lite:1"], "results", saliency="layercam")
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import torch

from unswayed.benchmark import Benchmark
from unswayed.benchmark.rows import SOURCE_EDIT
from unswayed.choices import Frame, takes
from unswayed.errors import BadPicture, CannotWrite, UserError, need, reason_of
from unswayed.files.records import read_object
from unswayed.files.text_tables import csv_text
from unswayed.files.whole import Json, remove_file, write_bytes, write_json
from unswayed.jobs import device_at
from unswayed.jobs.monitor import Monitor, View
from unswayed.jobs.resources import one_thread, shrinking
from unswayed.jobs.table_job import Share
from unswayed.masks.checks import doubted_masks
from unswayed.models import Classifier, open_model
from unswayed.models.heads import training_overlap
from unswayed.models.transforms import Geometry
from unswayed.sources import open_source
from unswayed.sources.source import Source

from .channels import ChannelExample, channel_examples, study_channels
from .contract import REPEATED, SANITY, check_answers, check_originals, sanity_sample, suspect_exchange
from .heat import Region, shared_regions
from .measures import best_channels, suspects
from .model_cards import sentences_in
from .noise import CHANGES, NoiseProbe, choose_levels
from .noise import SCHEMA as NOISE_SCHEMA
from .probes import Careful, Opened, Probe, ProbeResult, counter, read_probe, run_probes
from .saliency import SCHEMA as SALIENCY_SCHEMA
from .saliency import MaskedPicture, SaliencyProbe, opened_pictures
from .settings import SensitivitySettings

RELEASED = (
    "--convention released, as in RIVAL10's released code: pixels in [0, 1] enter the networks without normalization, "
    "masks are soft, and pictures and masks are resized as torchvision does"
)
SCHEMAS = {"noise": NOISE_SCHEMA, "saliency": SALIENCY_SCHEMA}
BATCH = 16  # pictures of the check of a model


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions beside the object that one model uses, and the class names."""

    model: str
    classes: Sequence[str]
    regions: list[Region]


@dataclass(frozen=True, eq=False)
class Channels:
    """The best channel of each attribute (one row each), and example pictures for each row."""

    best: pl.DataFrame
    examples: list[list[ChannelExample]]


@dataclass(frozen=True)
class Study:
    """The result of a study: the file names of the models with noise and with saliency results, in order, and failures.

    classes: the names of the pictures' classes; remarks: sentences about the models, as `evaluate` has them;
    unfinished: probes of which other shards have not measured all pictures yet; regions, channels: what
    `report.study_pictures` draws, by a model's file name.
    """

    folder: Path
    classes: Sequence[str]
    noise: list[str]
    saliency: list[str]
    failures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    regions: dict[str, Regions] = field(default_factory=dict)
    channels: dict[str, Channels] = field(default_factory=dict)


@takes(SensitivitySettings)
def run_study(
    spec: str,
    models: Sequence[str],
    folder: str | Path,
    settings: SensitivitySettings,
    *,
    show: Callable[[View], None] | None = None,
) -> Study:
    """Run the probes of every model, each resumed where it stopped; the fields of settings are also keywords.

    spec: a source with masks, or a benchmark's folder, for which only heat maps are measured (noise is for
    photographs). All probes see the photographs in the framing of `settings`, and a folder with results in another
    one is refused. show: called with the state of the run. A shard measures its part of the pictures, and the one that
    completes the last part writes the results. The models run in worker processes, also on one device.
    """
    if len(set(models)) != len(models) or not models:
        raise UserError(f"the models are {', '.join(models) or 'none'}", allowed="one or more different models")
    closer = settings.spurious or settings.channels is not None
    choose_levels(settings.norm, settings.levels)  # wrong ones are refused at once
    probes = StudyProbes(spec, Path(folder), settings)
    pictures, is_benchmark = probes.pictures
    if is_benchmark and closer:
        raise UserError("--spurious and --channels need a source of photographs", allowed="sample, folder:PATH, …")
    study = Study(Path(folder), pictures.labels.classes, [], [])
    if not is_benchmark:
        _require_same(study.folder, settings)
    if settings.convention == "released":
        study.notes.append(RELEASED)
    kinds = probes.kinds
    with Monitor(study.folder, "sensitivity", "pictures", show) as monitor:
        keys = [(name, kind) for name in models for kind in kinds]
        measured = dict(run_probes(probes, keys, study.folder, settings, monitor, len(pictures)))
        for name in models:
            try:
                complete = _record(study, name, {kind: measured[name, kind] for kind in kinds})
                if closer and complete:
                    _look_closer(study, probes, name, monitor)
            except CannotWrite:
                raise
            except Exception as error:  # whatever one model does, the others are measured
                if len(models) == 1:
                    raise
                study.failures[name] = reason_of(error)
    if not study.noise and not study.saliency and not study.unfinished:
        raise UserError("no model could be measured:\n" + "\n".join(f"{n}: {r}" for n, r in study.failures.items()))
    for kind, slugs in (("noise", study.noise), ("saliency", study.saliency)):
        slugs.extend(_earlier(Path(folder), kind, slugs))
    study.remarks.extend(sentences_in(folder, dict.fromkeys([*study.noise, *study.saliency])))
    return study


def _record(study: Study, name: str, results: Mapping[str, ProbeResult | str | None]) -> bool:
    """Add the results of a model, by kind; whether all are complete. Raises UserError if one of them failed."""
    for result in results.values():
        if isinstance(result, str):
            raise UserError(result)
    for kind, result in results.items():
        if isinstance(result, ProbeResult):
            result.record(name, study.failures, study.notes)
            (study.noise if kind == "noise" else study.saliency).append(result.path.stem)
        else:
            study.unfinished.append(f"{name}: {kind}")
    return None not in results.values()


@dataclass(eq=False)
class StudyProbes:
    """Opens the pictures and the models of a study, in this process or in another one; keeps one model open."""

    spec: str
    folder: Path
    settings: SensitivitySettings
    opened: dict[str, Classifier] = field(default_factory=dict)
    checked: set[str] = field(default_factory=set)

    @property
    def method(self) -> str:
        """The method of the heat maps."""
        return self.settings.saliency or "layercam"

    @functools.cached_property
    def pictures(self) -> tuple[Source | Benchmark, bool]:
        """The source or the benchmark, and whether it is a benchmark."""
        chosen: Json = {name: getattr(self.settings, name) for name in ("limit", "classes", "sample")}
        if not (Path(self.spec).expanduser() / "benchmark.json").is_file():
            return open_source(self.spec).select(**chosen), False
        if any(chosen.values()):
            raise UserError("--limit, --sample and --classes select from a source", allowed="a benchmark without them")
        return Benchmark(self.spec), True

    @property
    def kinds(self) -> list[str]:
        """The kinds of probes: of a benchmark only heat maps, of photographs noise and, if wanted, heat maps."""
        is_benchmark = self.pictures[1]
        if not (is_benchmark or self.settings.saliency or self.settings.spurious):
            return ["noise"]
        need("studies", "pytorch_grad_cam", "sklearn")
        return ["saliency"] if is_benchmark else ["noise", "saliency"]

    def __reduce__(self) -> tuple[object, ...]:
        return StudyProbes, (self.spec, self.folder, self.settings)

    def model(self, name: str, device: str | None = None) -> Classifier:
        if name not in self.opened:
            self.opened.clear()
            opened = open_model(name, device=device_at(device, self.settings.device))
            released = self.settings.convention == "released"
            opened = opened.without_normalization() if released else opened
            # Nobody trains it on, so that all copies of it have the hash that is computed once.
            self.opened[name] = replace(opened, fixed_hash=opened.weights_hash)
        return self.opened[name]

    def __call__(self, model: str, kind: str, share: Share, device: str | None, careful: Careful | None) -> Opened:
        """Probes of one model: for noise, or for heat maps."""
        opened = self.model(model, device)
        pictures, folder, settings = self.pictures[0], self.folder, self.settings
        if share.number == 0 and model not in self.checked:
            self.checked.add(model)
            self._check(opened, kind, share, careful)

        def probe(copy: Classifier) -> Probe:
            if kind == "noise":
                return NoiseProbe(copy, pictures, folder, settings)  # type: ignore[arg-type]
            return SaliencyProbe(copy, pictures, folder, self.method, settings.frame)

        return Opened(opened, probe, str(opened.device), opened.nbytes)

    def _check(self, model: Classifier, kind: str, share: Share, careful: Careful | None) -> None:
        """Record what is suspicious about the model before anything is measured with it."""
        (pictures, is_benchmark), frame = self.pictures, self.settings.frame
        stated = pictures.card.get("frame") if is_benchmark else frame  # type: ignore[union-attr]
        model.check_framing(None if stated is None else str(stated))
        ending = "" if kind == "noise" else _ORIGINAL

        def used(kind: str, name: str) -> None:
            if careful is not None:
                careful(kind, f"{name}{ending}" if kind == "picture" else name)

        with one_thread():
            skipped = {picture.removesuffix(_ORIGINAL) for picture, _ in share.skipped}
            check_plausible(model, pictures, self.folder, frame, skipped, used)


def _look_closer(study: Study, probes: StudyProbes, name: str, monitor: Monitor) -> None:
    """What needs one model and the results of its probes: regions beside the object, and channels.

    Writes FOLDER/channels/<model>.parquet, and its best channels as CSV.
    """
    model, (source, _), settings = probes.model(name), probes.pictures, probes.settings
    assert isinstance(source, Source)
    slug = model.slug
    if settings.spurious:
        noise, saliency = (read_probe(study.folder, kind, [slug], SCHEMAS[kind]) for kind in SCHEMAS)
        listed = suspects(noise, saliency, by=settings.class_by, measure=settings.measure)["source_id"]
        chosen = [scene_id for scene_id in listed.unique(maintain_order=True) if scene_id in source]
        regions = shared_regions(model, source, chosen, probes.method, settings.frame)
        study.regions[slug] = Regions(model.name, source.labels.classes, regions)
    if settings.channels:
        show = counter(partial(monitor.count, note=f"{name}: channels"), len(source))
        layer = None if settings.channels == "heat" else settings.channels
        studied = study_channels(model, source, layer, show, settings.frame)
        best = best_channels(studied.table)
        folder, buffer = study.folder / "channels", io.BytesIO()
        studied.table.write_parquet(buffer)
        write_bytes(folder / f"{slug}.parquet", buffer.getvalue())
        write_bytes(folder / f"{slug}.best.csv", csv_text(best).encode())
        study.failures.update({f"{model.name}, {picture}": reason for picture, reason in studied.failures.items()})
        study.notes.append(f"{folder / slug}.best.csv: {len(best)} attributes, layer {studied.layer}")
        study.channels[slug] = Channels(best, channel_examples(model, source, studied, best))


def _earlier(folder: Path, kind: str, slugs: list[str]) -> list[str]:
    """The models that an earlier run measured in the same way: they stay in the tables of this one."""
    cards = _cards(folder, kind)
    now = cards.get(slugs[0], {}) if slugs else {}
    probed = []
    for slug, stated in cards.items():
        # What is about the model itself may differ; the source and the probe's own settings may not.
        differing = [name for name in now if name in _OWN and now[name] != stated.get(name)]
        if slug not in slugs and now and not differing and (folder / kind / f"{slug}.parquet").is_file():
            probed.append(slug)
    return probed


def _cards(folder: Path, kind: str) -> dict[str, dict[str, object]]:
    """The settings of every model's results of one kind, by file name."""
    kinds = {"settings": Json | None}
    cards = {path.stem: read_object(path, kinds) for path in sorted((folder / kind).glob("*.json"))}
    return {slug: card.get("settings") or {} for slug, card in cards.items()}


def _require_same(folder: Path, settings: SensitivitySettings) -> None:
    """Refuse a folder with results in another framing or convention: its tables and pictures would mix two of them."""
    for kind, option in itertools.product(("noise", "saliency"), ("frame", "convention")):
        chosen = getattr(settings, option)
        for slug, stated in _cards(folder, kind).items():
            there = stated.get(option, "default" if (kind, option) == ("noise", "convention") else chosen)
            if there != chosen:
                raise UserError(
                    f"{folder} contains results of {slug} with --{option} {there}, not {chosen}",
                    allowed=f"--{option} {there}, or another folder",
                )


_ORIGINAL = "/original/0"
_OWN = frozenset(("probe", "source", "method", "benchmark", "levels", *CHANGES))


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
    load, ids, mapping, _ = opened_pictures(pictures, model, frame)
    sample = list(_sampled(load, ids, skipped, careful))
    if careful is not None:
        careful("model", model.name)
    path = Path(folder) / "suspicions" / f"{model.slug}.json"
    remove_file(path)
    if not sample:
        return

    def crops(geometry: Geometry, places: np.ndarray) -> torch.Tensor:
        some = [sample[position] for position in places]
        if some[0].whole and geometry.crop != model.transform.crop:
            other = replace(model, transform=replace(model.transform, crop=geometry.crop))
            load_other = opened_pictures(pictures, other, frame)[0]
            some = [load_other(f"{picture.source_id}/original/0") for picture in some]
        images = [picture.image if picture.whole else geometry.apply(picture.image) for picture in some]
        return torch.from_numpy(np.stack(images))

    own = crops(model.transform.geometry, np.arange(len(sample)))
    logits = torch.cat([shrinking(partial(model.classify, part), len(part))[0] for part in own.split(BATCH)])
    if model.adapt is None:
        check_answers(model, own[:REPEATED], logits[:REPEATED], min(BATCH, len(own)))
    labels = np.array([picture.label for picture in sample])
    answers, predicted = (scores.argmax(1).cpu().numpy() for scores in (logits, mapping.apply(logits)))
    grave, remarks = check_originals(model, mapping, crops, labels, answers, predicted, logits, of_probabilities=True)
    if isinstance(pictures, Source):
        photographs = [entry.image for entry in pictures.entries]
    else:
        rows = pictures.manifest.select(["edit", "path"]).to_pylist()
        photographs = [str(pictures.root / row["path"]) for row in rows if row["edit"] == SOURCE_EDIT and row["path"]]
    seen = training_overlap(model.name, model.origin, photographs)
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
