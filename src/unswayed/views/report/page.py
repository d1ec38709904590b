"""The report: one HTML file that needs nothing else.

write_report("PREDICTIONS", "report.html")
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import filterfalse
from pathlib import Path
from typing import Any

import polars as pl
from markupsafe import Markup

from unswayed.analyses import ANALYSES, table_facts
from unswayed.analyses.flips import Flip
from unswayed.choices import one_line, takes
from unswayed.errors import UserError
from unswayed.files.records import package_version
from unswayed.files.storage import local_copy
from unswayed.files.whole import check_writable, write_bytes
from unswayed.views.text import joined, plural, tag

from .extras import RESULT, distribution_section, factors_section, frame_table, repair_section, sensitivity_section
from .findings import Findings, find
from .gallery import Explain, as_script, explorer_section, gallery_section, heat_maps_of_flips, page_data, pictures_of
from .pictures import Album
from .provenance import made_section
from .section import Section, csv_files, drawing, paragraphs, render, write_assets
from .sections import accuracy_section, answers_section, curves_section, drops_section, edits_section, groups_section
from .settings import ReportSettings
from .verdict import first_screen, verdict

_LONG = 30


@one_line
@dataclass(frozen=True, eq=False)
class Written:
    """The result of a report: its file and size, the verdict, the table of drops, how many flips are shown, the files
    under `assets`, and notes: which pictures are not available or have changed, and why models have no heat maps."""

    path: Path
    size: int
    verdict: list[str]
    drops: pl.DataFrame
    flips: int
    assets: list[Path]
    notes: list[str]


@takes(ReportSettings)
def write_report(
    predictions: str | Path,
    output: str | Path,
    settings: ReportSettings,
    *,
    explain: Explain | None = None,
    command: Sequence[str] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Written:
    """Write the report of a folder of predictions as one HTML file; with `assets`, figures and tables also as files.

    explain: makes the heat maps (`unswayed.evaluation.heat.explain_pairs`; None for no heat maps); command: the
    command that reproduces everything, if there is one; progress: (done, total, what).
    """
    predictions, output = map(local_copy, (predictions, output))
    check_writable(output)
    show = progress or (lambda done, total, what: None)
    total = 3 + settings.heat_maps
    show(0, total, "numbers")
    findings = find(
        predictions,
        settings.benchmark,
        names=settings.names,
        flips=settings.flips,
        draw=settings.draw,
        resamples=settings.resamples,
        seed=settings.seed,
    )
    album = Album(findings.facts.root, findings.facts.manifest)
    show(2, total, "heat maps")
    steps = iter(range(3, total + 1))
    chosen = _spread(findings.flips.shown, settings.heat_maps)
    heat, notes = heat_maps_of_flips(
        findings, album, chosen, explain, lambda: show(next(steps, total), total, "heat maps")
    )
    data = page_data(findings)
    data["strips"] = pictures_of(findings, album, data)
    with drawing("unswayed"):
        sections = [
            edits_section(findings, album),
            drops_section(findings),
            gallery_section(findings, album, heat, notes, settings.draw),
            explorer_section(findings, data, len(data["strips"])),
            answers_section(findings),
            groups_section(findings),
            accuracy_section(findings),
            curves_section(findings),
            *_extra_sections(predictions, settings, findings),
            *_outside_sections(findings),
            made_section(findings, _command(predictions, output, settings), command),
        ]
        remarks = [*findings.remarks, *findings.facts.absent, *album.remarks()]  # now that every picture has been read
        doubts, sentences = [f"Suspicious: {suspicion}." for suspicion in findings.suspicions], verdict(findings)
        first = _verdict_section(findings, doubts, sentences, remarks)
        shown = [first, *(section for section in sections if section is not None)]
        tables = csv_files(shown)
        page = render_page(shown, settings.title, _subtitle(findings), data, tables).encode()
        files = write_assets(Path(settings.assets), shown, tables) if settings.assets is not None else []
    write_bytes(output, page)
    show(total, total, "done")
    said = [*doubts, *sentences]
    return Written(output, len(page), said, findings.drops, len(findings.flips.shown), files, [*remarks, *notes])


def render_page(
    sections: Sequence[Section], title: str, subtitle: str, data: dict[str, Any], tables: Mapping[str, bytes]
) -> str:
    """Return the page with its sections, style, script and the data that it reads; nothing else may run or load.

    tables: those of the sections as CSV.
    """
    script = _resource("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return render(
        "page.html",
        title=title,
        subtitle=subtitle,
        version=package_version(),
        script_hash=digest,
        style=Markup(_resource("page.css")),
        script=Markup(script),
        sections=sections,
        files={name: base64.b64encode(content).decode() for name, content in tables.items()},
        models=data["models"],
        edits=data["edits"],
        data=as_script(data),
    )


def _verdict_section(
    findings: Findings, doubts: Sequence[str], sentences: Sequence[str], remarks: Sequence[str]
) -> Section:
    small = (
        "Confidence intervals are at 95 %, over photographs; n is the number of photographs unless stated otherwise."
    )
    words = paragraphs(*sentences, *(f"Note: {remark}." for remark in remarks))
    warnings = [tag("p", tag("strong", doubt), class_="doubt") for doubt in doubts]
    content = [*warnings, first_screen(findings), words, tag("p", small, class_="quiet")]
    return Section("verdict", "Verdict", joined(content))


# Results that are also found in a folder of that name next to the predictions.
_EXTRAS: dict[str, Callable[[Path, Findings], Section]] = {
    "factors": factors_section,
    "sensitivity": sensitivity_section,
    "distribution": distribution_section,
    "repair": repair_section,
}


def _extra_sections(predictions: Path, settings: ReportSettings, findings: Findings) -> list[Section]:
    sections = []
    around = predictions.resolve().parent
    for name, make in _EXTRAS.items():
        folder = getattr(settings, name)
        if folder is not None and not Path(folder).exists():
            raise UserError(f"there is no folder {folder} for --{name}")
        # The predictions by which a repair was measured stand in the folder of the repair itself.
        beside = around if name == "repair" and (around / RESULT).is_file() else around / name
        if folder is not None:
            sections.append(make(Path(folder), findings))
        elif beside.is_dir() and beside != predictions.resolve():
            sections.append(make(beside, findings))
    return sections


def _outside_sections(findings: Findings) -> list[Section]:
    """Return one section for each analysis of another installed package."""
    sections = []
    for name in list(filterfalse(ANALYSES.is_own, ANALYSES)):
        from unswayed.analyses.tables import analyze

        facts = table_facts(name)
        table = findings.named(analyze(findings.predictions, table=name, benchmark=findings.facts.root))
        note = facts.notes or ANALYSES.part(name).help if table.height else f"{facts.empty}."
        body = joined([paragraphs(note), frame_table(f"{name}-table", facts.title, table)])
        sections.append(Section(name, facts.title, body, {}, {name: table}))
    return sections


def _spread(flips: Sequence[Flip], count: int) -> list[Flip]:
    """Return up to `count` of the flips, evenly spaced."""
    if count >= len(flips):
        return list(flips)
    return [flips[place * len(flips) // count] for place in range(count)]


def _subtitle(findings: Findings) -> str:
    recipe = findings.facts.benchmark.get("recipe")
    name = recipe.get("name") if isinstance(recipe, dict) else None
    n = max(findings.drops["n"], default=0)
    controls = list(findings.kinds.values()).count("control")
    edits = plural(len(findings.edits) - controls, "edit") + (f" and {plural(controls, 'control')}" if controls else "")
    parts = [plural(len(findings.models), "model"), edits, plural(n, "photograph")]
    return " · ".join([*parts, *([f"recipe {name}"] if name and len(name) <= _LONG else [])])


def _command(predictions: Path, output: Path, settings: ReportSettings) -> list[str]:
    options = {name: getattr(settings, name) for name in ("benchmark", "assets", *_EXTRAS)}
    words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    words += [word for model, name in (settings.names or {}).items() for word in ("--name", f"{model}={name}")]
    return ["unswayed", "report", str(predictions), "-o", str(output), *words]


def _resource(name: str) -> str:
    return resources.files("unswayed.views.report").joinpath(name).read_text(encoding="utf-8")
