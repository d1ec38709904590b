"""`unfazed sensitivity` as a function: probe some models over one source or benchmark, and fill a folder.

study = run_study("sample", ["lite:0", "lite:1"], "results", NoiseSettings(), saliency="layercam")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from unfazed.errors import UserError
from unfazed.files import read_json, write_bytes
from unfazed.probes.alignment import measure_alignment
from unfazed.probes.run import Outcome, read_probe
from unfazed.probes.sensitivity import NoiseSettings, measure_noise

if TYPE_CHECKING:
    from unfazed.benchmark import Benchmark
    from unfazed.models import Classifier
    from unfazed.sources import Source

Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Study:
    """What was done: the models' file names in order, whether noise and saliency were measured, what failed and why."""

    folder: Path
    slugs: list[str]
    noise: bool
    saliency: bool
    failures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


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
) -> Study:
    """The probes of every model in turn, each resumed where it stopped.

    spec: a source with masks, or a benchmark's folder, of which heat maps alone are measured (noise is for
    photographs). saliency: a method of `saliency.METHODS`; spurious: also the galleries; channels: also the layer's
    channels against the attributes, `heat` for the model's heat layer. report: told (what, done, total).
    """
    if len(set(models)) != len(models) or not models:
        raise UserError(f"the models are {', '.join(models) or 'none'}", allowed="one or more, each once")
    pictures, is_benchmark = _opened(spec, limit, classes)
    if is_benchmark and (spurious or channels):
        raise UserError("--spurious and --channels need a source of photographs", allowed="sample, folder:PATH, …")
    study = Study(Path(folder), [], not is_benchmark, bool(saliency) or is_benchmark or spurious)
    for name in models:
        model = _open(name, device)
        if not is_benchmark:
            show = _counter(report, f"{name}: noise", len(pictures))  # type: ignore[arg-type]
            _note(study, name, measure_noise(model, pictures, folder, settings, batch_size, show))  # type: ignore[arg-type]
        if study.saliency:
            show = _counter(report, f"{name}: heat maps", None)
            _note(study, name, measure_alignment(model, pictures, folder, saliency or "layercam", show))
        study.slugs.append(model.slug)
        if spurious:
            study.notes.append(_gallery(study, model, pictures, saliency or "layercam"))  # type: ignore[arg-type]
        if channels:
            study.notes.append(_channels(study, model, pictures, None if channels == "heat" else channels, report))  # type: ignore[arg-type]
    return study


def _opened(spec: str, limit: int | None, classes: str | None) -> tuple[Source | Benchmark, bool]:
    if (Path(spec).expanduser() / "benchmark.json").is_file():
        from unfazed.benchmark import Benchmark

        if limit or classes:
            raise UserError("--limit and --classes choose from a source", allowed="a benchmark is taken whole")
        return Benchmark(spec), True
    from unfazed.sources import open_source

    return open_source(spec, limit=limit, classes=classes), False


def _open(name: str, device: str | None) -> Classifier:
    from unfazed.models import open_model

    return open_model(name, device=device)


def _note(study: Study, model: str, outcome: Outcome) -> None:
    study.failures.update({f"{model}, {one}": reason for one, reason in outcome.failures.items()})
    study.notes.append(f"{outcome.path}: {outcome.measured} measured now, {outcome.resumed} before")


def _counter(report: Report | None, what: str, total: int | None) -> Callable[[int], None] | None:
    if report is None:
        return None
    done = 0

    def show(more: int) -> None:
        nonlocal done
        done += more
        report(what, done, total or 0)

    return show


def _gallery(study: Study, model: Classifier, source: Source, method: str) -> str:
    """FOLDER/spurious/<model>/gallery.html and .png; names given to clusters are read from names.json beside them."""
    from unfazed.analyses.suspects import suspects
    from unfazed.probes.spurious import shared_regions

    from .figures_factors import figure_bytes
    from .spurious_page import spurious_page, spurious_sheet

    noise, saliency = (read_probe(study.folder, kind, [model.slug]) for kind in ("noise", "saliency"))
    chosen = suspects(noise, saliency)["source_id"].unique(maintain_order=True).to_list()
    regions = shared_regions(model, source, [one for one in chosen if one in source], method)
    folder = study.folder / "spurious" / model.slug
    names = read_json(folder / "names.json") if (folder / "names.json").is_file() else {}
    page = spurious_page(regions, model.name, source.labels.classes, names)
    write_bytes(folder / "gallery.html", page.encode())
    write_bytes(folder / "gallery.png", figure_bytes(spurious_sheet(regions, source.labels.classes, names), "png"))
    return f"{folder / 'gallery.html'}: {len(regions)} pictures in {len({one.cluster for one in regions})} rows"


def _channels(study: Study, model: Classifier, source: Source, layer: str | None, report: Report | None) -> str:
    """FOLDER/channels/<model>.parquet, its best channels as CSV and as pictures."""
    import io

    from unfazed.analyses.channels import best_channels
    from unfazed.probes.neural_features import study_channels

    from .channel_pictures import channel_sheet
    from .figures_factors import figure_bytes

    found = study_channels(model, source, layer, _counter(report, f"{model.name}: channels", len(source)))
    best = best_channels(found.table)
    folder, buffer = study.folder / "channels", io.BytesIO()
    found.table.write_parquet(buffer)
    write_bytes(folder / f"{model.slug}.parquet", buffer.getvalue())
    write_bytes(folder / f"{model.slug}.best.csv", best.write_csv().encode())
    write_bytes(folder / f"{model.slug}.png", figure_bytes(channel_sheet(model, source, found, best), "png"))
    study.failures.update({f"{model.name}, {one}": reason for one, reason in found.failures.items()})
    return f"{folder / model.slug}.best.csv: {len(best)} attributes, layer {found.layer}"
