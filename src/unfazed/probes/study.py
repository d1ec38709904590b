"""`unfazed sensitivity` as a function: probe models over one source or benchmark, and write the results to a folder.

study = run_study("sample", ["lite:0", "lite:1"], "results", NoiseSettings(), saliency="layercam")
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unfazed.choices import ClassColumn, Frame, stored_frame
from unfazed.errors import UserError
from unfazed.files import read_json, write_bytes
from unfazed.measures.channels import best_channels
from unfazed.models.heads import check_framing
from unfazed.text_tables import csv_text

from .alignment import measure_alignment
from .channel_examples import ChannelExample, channel_examples
from .neural_features import study_channels
from .noise_response import NoiseSettings, measure_noise
from .plausibility import check_plausible, suspicions_in
from .run import Report, counter, read_probe
from .spurious import Region, shared_regions
from .suspects import suspects

if TYPE_CHECKING:
    import polars as pl

    from unfazed.benchmark import Benchmark
    from unfazed.models import Classifier
    from unfazed.sources import Source


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions beside the object that one model uses, and the class names."""

    model: str
    classes: Sequence[str]
    found: list[Region]


@dataclass(frozen=True, eq=False)
class Channels:
    """The best channel of each attribute (one row each), and example pictures for each row."""

    best: pl.DataFrame
    examples: list[list[ChannelExample]]


@dataclass(frozen=True)
class Study:
    """The result of a study: the file names of the models with noise and with saliency results, in order, and failures.

    classes: the names of the pictures' classes; suspicions: about the models' labels and transforms, as `evaluate` has
    them; regions, channels: what `report.study_pictures` draws, by a model's file name.
    """

    folder: Path
    classes: Sequence[str]
    noise: list[str]
    saliency: list[str]
    failures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    suspicions: list[str] = field(default_factory=list)
    regions: dict[str, Regions] = field(default_factory=dict)
    channels: dict[str, Channels] = field(default_factory=dict)


def run_study(
    spec: str,
    models: Sequence[str],
    folder: str | Path,
    settings: NoiseSettings,
    saliency: str | None = None,
    spurious: bool = False,
    channels: str | None = None,
    limit: int | None = None,
    classes: str | None = None,
    device: str | None = None,
    batch_size: int | None = None,
    report: Report | None = None,
    class_by: ClassColumn = "label",
    measure: str = "precision",
) -> Study:
    """Run the probes of every model in turn, each resumed where it stopped.

    spec: a source with masks, or a benchmark's folder, for which only heat maps are measured (noise is for
    photographs). All probes see the photographs in the framing of `settings`, and a folder with results in another
    one is refused. saliency: a method of `saliency.METHODS`; spurious: also the galleries, of the
    suspects by `class_by` and `measure` (see `suspects`); channels: also the layer's
    channels against the attributes, `heat` for the model's heat layer. report: called with (what, done, total).
    """
    if len(set(models)) != len(models) or not models:
        raise UserError(f"the models are {', '.join(models) or 'none'}", allowed="one or more different models")
    pictures, is_benchmark = _opened(spec, limit, classes)
    if is_benchmark and (spurious or channels):
        raise UserError("--spurious and --channels need a source of photographs", allowed="sample, folder:PATH, …")
    study = Study(Path(folder), pictures.labels.classes, [], [])
    frame = _benchmark_frame(pictures) if is_benchmark else settings.frame  # type: ignore[arg-type]
    if not is_benchmark:
        _require_framing(study.folder, settings.frame)

    def probe(name: str) -> None:
        model = _open(name, device)
        check_framing(model, frame)
        check_plausible(model, pictures, folder, settings.frame)
        if not is_benchmark:
            show = counter(report, f"{name}: noise", len(pictures))  # type: ignore[arg-type]
            outcome = measure_noise(model, pictures, folder, settings, batch_size, show)  # type: ignore[arg-type]
            outcome.record(name, study.failures, study.notes)
            study.noise.append(model.slug)
        method = saliency or "layercam"
        if saliency or is_benchmark or spurious:
            show = counter(report, f"{name}: heat maps", None)
            outcome = measure_alignment(model, pictures, folder, method, show, settings.frame)
            outcome.record(name, study.failures, study.notes)
            study.saliency.append(model.slug)
        if spurious:
            chosen = _suspects(study.folder, model.slug, class_by, measure)
            study.regions[model.slug] = _regions(model, pictures, chosen, method, settings.frame)  # type: ignore[arg-type]
        if channels:
            layer = None if channels == "heat" else channels
            study.channels[model.slug] = _channels(study, model, pictures, layer, settings.frame, report)  # type: ignore[arg-type]

    for name in models:
        try:
            probe(name)
        except Exception as error:  # whatever one model does, the others are measured
            if len(models) == 1:
                raise
            study.failures[name] = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    if not study.noise and not study.saliency:
        raise UserError("no model could be measured:\n" + "\n".join(f"{n}: {r}" for n, r in study.failures.items()))
    for kind, slugs in (("noise", study.noise), ("saliency", study.saliency)):
        slugs.extend(_earlier(Path(folder), kind, slugs))
    study.suspicions.extend(suspicions_in(folder, [*study.noise, *study.saliency]))
    return study


def _earlier(folder: Path, kind: str, slugs: list[str]) -> list[str]:
    """The models that an earlier run measured in the same way: they stay in the tables of this one."""
    cards = _cards(folder, kind)
    now = cards.get(slugs[0], {}) if slugs else {}
    found = []
    for slug, stated in cards.items():
        # What is about the model itself may differ; the source and the probe's own settings may not.
        differing = [name for name in now if name in _OWN and now[name] != stated.get(name)]
        if slug not in slugs and now and not differing and (folder / kind / f"{slug}.parquet").is_file():
            found.append(slug)
    return found


def _cards(folder: Path, kind: str) -> dict[str, dict[str, Any]]:
    """The settings of every model's results of one kind, by file name."""
    return {path.stem: read_json(path).get("settings", {}) for path in sorted((folder / kind).glob("*.json"))}


def _require_framing(folder: Path, frame: Frame) -> None:
    """Refuse a folder with results in another framing: its tables and pictures would mix two of them."""
    for kind in ("noise", "saliency"):
        for slug, stated in _cards(folder, kind).items():
            if stored_frame(str(stated.get("frame", frame))) != frame:
                raise UserError(
                    f"{folder} contains results of {slug} with --frame {stated['frame']}, not {frame}",
                    allowed=f"--frame {stated['frame']}, or another folder",
                )


def _benchmark_frame(benchmark: Benchmark) -> str | None:
    stated = benchmark.card.get("frame")
    return None if stated is None else stored_frame(str(stated))


_OWN = frozenset(("probe", "source", "method", "benchmark", *(one.name for one in fields(NoiseSettings))))


def _opened(spec: str, limit: int | None, classes: str | None) -> tuple[Source | Benchmark, bool]:
    if (Path(spec).expanduser() / "benchmark.json").is_file():
        from unfazed.benchmark import Benchmark

        if limit or classes:
            raise UserError("--limit and --classes select from a source", allowed="a benchmark without them")
        return Benchmark(spec), True
    from unfazed.sources import open_source

    return open_source(spec, limit=limit, classes=classes), False


def _open(name: str, device: str | None) -> Classifier:
    from unfazed.models import open_model

    return open_model(name, device=device)


def _suspects(folder: Path, slug: str, by: ClassColumn, measure: str) -> list[str]:
    noise, saliency = (read_probe(folder, kind, [slug]) for kind in ("noise", "saliency"))
    return suspects(noise, saliency, by=by, measure=measure)["source_id"].unique(maintain_order=True).to_list()


def _regions(model: Classifier, source: Source, chosen: list[str], method: str, frame: Frame) -> Regions:
    """The regions beside the object that the model uses, in the pictures that its rows make suspects."""
    regions = shared_regions(model, source, [one for one in chosen if one in source], method, frame=frame)
    return Regions(model.name, source.labels.classes, regions)


def _channels(
    study: Study, model: Classifier, source: Source, layer: str | None, frame: Frame, report: Report | None
) -> Channels:
    """FOLDER/channels/<model>.parquet, and its best channels as CSV."""
    found = study_channels(model, source, layer, counter(report, f"{model.name}: channels", len(source)), frame)
    best = best_channels(found.table)
    folder, buffer = study.folder / "channels", io.BytesIO()
    found.table.write_parquet(buffer)
    write_bytes(folder / f"{model.slug}.parquet", buffer.getvalue())
    write_bytes(folder / f"{model.slug}.best.csv", csv_text(best).encode())
    study.failures.update({f"{model.name}, {one}": reason for one, reason in found.failures.items()})
    study.notes.append(f"{folder / model.slug}.best.csv: {len(best)} attributes, layer {found.layer}")
    return Channels(best, channel_examples(model, source, found, best))
