"""The report: one HTML file that needs nothing else, with how its results were made.

write_report("PREDICTIONS", "report.html")
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import filterfalse
from pathlib import Path
from typing import Any

import polars as pl
from markupsafe import Markup

from unswayed.analyses import ANALYSES, table_facts
from unswayed.benchmark.rows import WORST_MASKS
from unswayed.choices import OneLine, takes
from unswayed.errors import UserError
from unswayed.files.records import versions
from unswayed.files.storage import local_copy
from unswayed.files.text_tables import csv_text
from unswayed.files.whole import Json, check_writable, write_bytes
from unswayed.labels import worded, worded_page
from unswayed.scene import LOOK_BELOW
from unswayed.views.tables import Column, Row, Table
from unswayed.views.text import joined, percent, plural, render

from . import ReportSettings, gallery
from .extras import RESULT, distribution_section, factors_section, frame_table, repair_section, sensitivity_section
from .findings import Findings
from .section import Section, drawing, paragraphs, write_assets
from .sections import accuracy_section, answers_section, curves_section, drops_section, edits_section, groups_section
from .verdict import first_screen, verdict

_LONG = 30


@dataclass(frozen=True, eq=False, repr=False)
class ReportResult(OneLine):
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
    explain: gallery.Explain | None = None,
    command: Sequence[str] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> ReportResult:
    """Write the report of a folder of predictions as one HTML file; with `assets`, figures and tables also as files.

    explain: makes the heat maps (`unswayed.evaluation.heat.explain_pairs`; None for no heat maps); command: the
    command that reproduces everything, if there is one; progress: (done, total, what).
    """
    predictions, output = map(local_copy, (predictions, output))
    check_writable(output)
    show = progress or (lambda done, total, what: None)
    total = 3 + settings.heat_maps
    show(0, total, "numbers")
    findings = Findings(predictions, settings)
    show(2, total, "heat maps")
    steps = iter(range(3, total + 1))
    together = gallery.flips_of_every_model(findings)
    heat, notes = gallery.heat_maps_of_flips(
        findings, settings.heat_maps, together, explain, lambda: show(next(steps, total), total, "heat maps")
    )
    data = gallery.page_data(findings)
    data["strips"] = gallery.pictures_of(findings, data)
    with drawing("unswayed"):
        sections = [
            edits_section(findings),
            drops_section(findings),
            gallery.gallery_section(findings, heat, notes, settings.draw),
            gallery.models_section(findings, together, heat),
            gallery.explorer_section(findings, data, len(data["strips"])),
            answers_section(findings),
            groups_section(findings),
            accuracy_section(findings),
            curves_section(findings),
            *_extra_sections(predictions, settings, findings),
            *_outside_sections(findings),
            made_section(findings, _command(predictions, output, settings), command),
        ]
        remarks = [
            *findings.remarks,
            *findings.facts.absent,
            *findings.album.remarks(),
        ]  # now that every picture has been read
        doubts, sentences = [f"Suspicious: {suspicion}." for suspicion in findings.suspicions], verdict(findings)
        warnings = [Markup('<p class="doubt"><strong>{}</strong></p>').format(doubt) for doubt in doubts]
        words = paragraphs(*([] if findings.averages else sentences), *(f"Note: {remark}." for remark in remarks))
        first = Section("verdict", "Verdict", joined(*warnings, first_screen(findings), words))
        tasks = frozenset(findings.tasks.values())
        shown = [
            replace(section, title=worded(section.title, tasks), body=Markup(worded_page(section.body, tasks)))
            for section in (first, *sections)
            if section is not None
        ]
        title, *said = [worded(text, tasks) for text in (settings.title, sentences[0], *doubts, *sentences[1:])]
        tables = {name: csv_text(table).encode() for section in shown for name, table in section.tables.items()}
        page = render_page(shown, title, _subtitle(findings), data, tables).encode()
        files = write_assets(Path(settings.assets), shown, tables) if settings.assets is not None else []
    write_bytes(output, page)
    show(total, total, "done")
    return ReportResult(output, len(page), said, findings.drops, len(findings.flips.shown), files, [*remarks, *notes])


def render_page(
    sections: Sequence[Section], title: str, subtitle: str, data: dict[str, object], tables: Mapping[str, bytes]
) -> str:
    """Return the page with its sections, style, script and the data that it reads; nothing else may run or load.

    tables: those of the sections as CSV.
    """
    folder = resources.files("unswayed.views.report")
    script, style = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.js", "page.css"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return render(
        "page.html",
        title=title,
        subtitle=subtitle,
        version=versions()["unswayed"],
        script_hash=digest,
        style=Markup(style),
        script=Markup(script),
        sections=sections,
        files={name: base64.b64encode(content).decode() for name, content in tables.items()},
        choices=data,
        data=gallery.as_script(data),
    )


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
    """Return one section for each analysis of another installed package, and one about answers in words."""
    sections = []
    asked = ["outcomes"] if "answer" in findings.tasks.values() else []
    for name in [*asked, *filterfalse(ANALYSES.is_own, ANALYSES)]:
        from unswayed.analyses.tables import analyze

        facts = table_facts(name)
        table = findings.named(analyze(findings.predictions, table=name, benchmark=findings.facts.root))
        note = facts.notes or ANALYSES.part(name).help if table.height else f"{facts.empty}."
        columns = [column for column in facts.columns.split() if column in table.columns] or table.columns
        shares = [column for column in facts.percent if column in columns]
        shown = table.select(columns).with_columns((table[column] * 100).round(1) for column in shares)
        body = joined(paragraphs(note), frame_table(f"{name}-table", facts.title, shown))
        sections.append(Section(name, facts.title, body, {}, {name: table}))
    return sections


def _subtitle(findings: Findings) -> str:
    name = _at(findings.facts.benchmark, "recipe.name")
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


_NEAREST = "the most similar ImageNet class; some of these animals have no class (a chameleon is labeled as an agama)"


def made_section(findings: Findings, report_command: Sequence[str], whole: Sequence[str] | None = None) -> Section:
    """Return the section; whole: one command that reproduces everything."""
    lines = [shlex.join(whole)] if whole else commands(findings, report_command)
    cards = [findings.facts.benchmark, *(findings.facts.cards.get(model, {}) for model in findings.models)]
    versions = dict.fromkeys(
        ", ".join(f"{name} {version}" for name, version in _mapping(card.get("versions")).items()) for card in cards
    )
    body = render(
        "sections.html",
        "made",
        benchmark=benchmark_facts(findings),
        left_out=_left_out(findings),
        models=[_model(findings, model) for model in findings.models],
        versions=paragraphs(*(f"Built or evaluated with {text}." for text in versions if text)),
        lines=lines,
    )
    return Section("made", "How it was made", body)


def benchmark_facts(findings: Findings) -> dict[str, str]:
    """Return the content of the benchmark's card as text; empty if the benchmark is not available."""
    card = findings.facts.benchmark
    if not card:
        return {}
    spec, recipe, guide = _at(card, "source.spec"), card.get("recipe"), _mapping(_at(card, "renderer.guide"))
    members = guide.get("members")
    guides = [_mapping(member) for member in members] if isinstance(members, list) else [guide]
    steps, guidance = _at(card, "renderer.steps"), _at(card, "renderer.guidance")
    renderer = (
        _at(card, "renderer.renderer"),
        _at(card, "renderer.network.name"),
        f"{steps} steps" if steps else None,
        _at(card, "renderer.sampler"),
        f"{guidance} guidance" if guidance else None,
        _at(card, "renderer.precision"),
        card.get("device"),
    )
    weights = [value for key, value in _mapping(_at(card, "renderer.network")).items() if "sha256" in key and value]
    facts = {
        "Folder": findings.facts.root,
        "Source": f"{spec}, {plural(int(_at(card, 'source.scenes') or 0), 'scene')}",
        "SHA-256 of the scenes' ids": _at(card, "source.ids_sha256"),
        "Labels": _NEAREST if spec == "sample" else "",
        "Recipe": recipe.get("name") if isinstance(recipe, dict) else recipe,
        "Seed": f"{card.get('seed')}; {plural(card.get('runs') or 1, 'run')} of each random edit",
        "Framing": f"{card.get('frame')}, {card.get('size')} pixels",
        "Renderer": " · ".join(str(detail) for detail in renderer if detail),
        "Network's weights": next(iter(weights), ""),
        "Masks": _masks(card),
        "Object removal": _at(card, "removal.name"),
        "Guide of adversarial edits": " ".join(str(value) for member in guides for value in member.values() if value),
    }
    return {name: str(fact) for name, fact in facts.items() if fact and str(fact) != "None"}


def commands(findings: Findings, report_command: Sequence[str]) -> list[str]:
    """Return shell commands that build, evaluate and report the same, as far as the cards record it."""
    lines = []
    card = findings.facts.benchmark
    root = str(findings.facts.root) if findings.facts.root else "BENCH"
    spec = str(_at(card, "source.spec"))
    if card.get("kind") == "build":
        options = {"recipe": _at(card, "recipe.name"), "renderer": _at(card, "renderer.renderer", "paste")}
        kept = {name: _at(card, f"renderer.{name}") for name in ("steps", "sampler", "guidance")}
        options |= {name: value for name, value in kept.items() if value is not None}
        options |= {"guide": card["guide"]} if card.get("guide") else {}
        options |= {"removal": _at(card, "removal.spec", "patches"), "frame": card.get("frame")}
        options |= {"pixels": card.get("size"), "seed": card.get("seed"), "runs": card.get("runs")}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        scenes = f"{_at(card, 'source.scenes')} scenes whose ids hash to {str(_at(card, 'source.ids_sha256'))[:12]}…"
        lines.append(f"# {scenes}: add the --limit or --classes that chose them")
        lines.append(shlex.join(["unswayed", "build", spec, "-o", root, *words]))
    elif card.get("kind") == "import":
        lines.append(shlex.join(["unswayed", "import", spec, "-o", root]))
    named = {name: str(findings.facts.cards.get(name, {}).get("model", name)) for name in findings.models}
    specs = {findings.spec(name): evaluated for name, evaluated in named.items()}
    models = [spec if spec == name else f"{name}={spec}" for spec, name in sorted(specs.items())]
    given = [word for model in models for word in ("-m", model)]
    lines.append(shlex.join(["unswayed", "evaluate", root, *given, "-o", str(findings.predictions)]))
    lines.append(shlex.join(report_command))
    return lines


def _left_out(findings: Findings) -> Markup:
    """Return the edits that could not be made or failed, with their reasons and how often."""
    manifest = findings.facts.manifest
    if manifest is None or "status" not in manifest.columns:
        return paragraphs("The benchmark is not available, so it is not known which pictures could not be made.")
    total = plural(manifest.height, "picture")
    gone = manifest.filter(pl.col("status") != "ok")
    if gone.is_empty():
        return paragraphs(f"All {total} could be made.")
    # A photograph of which nothing could be made is one line, not one for each edit.
    whole = ~pl.col("source_id").is_in(manifest.filter(pl.col("status") == "ok")["source_id"].unique().implode())
    reasons = (
        gone.with_columns(edit=pl.when(whole).then(pl.lit("every edit")).otherwise("edit"))
        .group_by("edit", "status", "reason")
        .agg(n=pl.len().cast(pl.Int64))
        .sort("n", "reason", descending=[True, False], nulls_last=True)
        .group_by("edit", "status", maintain_order=True)
        .agg(pl.col("n").sum(), reason=pl.col("reason").first(), reasons=pl.len())
        .sort("n", "edit", descending=[True, False])
    )

    def reason(row: Row) -> str:
        others = f" (the most frequent of {row['reasons']} reasons)" if row["reasons"] > 1 else ""
        return f"{row['reason'] or 'no reason recorded'}{others}"

    caption = f"{gone.height:,} of {total} could not be made; no drop includes them."
    columns = [Column("edit"), Column("pictures, n", "n"), Column("status"), Column("reason", reason)]
    return Table(reasons, columns, caption).html("left-out-table")


def _model(findings: Findings, model: str) -> dict[str, object]:
    """Return the facts of a model's card."""
    card = findings.facts.cards.get(model, {})
    steps, originals = _mapping(card.get("transform")), _mapping(card.get("originals"))
    transform = ", ".join(f"{key} {_rounded(value)}" for key, value in steps.items() if value is not None)
    facts = {
        "Full name": Markup("<code>{}</code>").format(findings.spec(model)),
        "Accuracy on the originals": f"{percent(originals.get('accuracy'))} (n = {originals.get('n', '–')})",
        "SHA-256 of the weights": Markup("<code>{}</code>").format(card.get("weights_sha256", "–")),
        "Transform": transform or "–",
        "Precision": f"{card.get('precision', '–')}, {card.get('device', '–')}",
    }
    return {"name": model, "white_box": card.get("white_box"), "facts": facts}


def _masks(card: Mapping[str, object]) -> str:
    masks = _mapping(card.get("masks"))
    if not masks:
        return ""
    number, total = masks.get("automatic", 0), masks.get("of", 0)
    if not number:
        return f"None of the {plural(total, 'mask')} is recorded as automatic"
    text = f"{number:,} of {plural(total, 'mask')} {'was' if number == 1 else 'were'} made automatically"
    if masks.get("median_confidence") is None:
        return f"{text}, with unknown confidence"
    doubtful = f"{masks.get('below_limit', 0):,} below {LOOK_BELOW:g}"
    sure = f"a median confidence of {masks['median_confidence']:.2f}, {doubtful}"
    return f"{text}, with {sure}; {WORST_MASKS} in the benchmark's folder shows the worst"


def _rounded(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "/".join(_rounded(item) for item in value) if isinstance(value, list) else str(value)


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _at(card: object, path: str, default: object = None) -> Any:
    """Return what a card has at a path such as `renderer.steps`; the default if it has nothing there."""
    for name in path.split("."):
        if not isinstance(card, dict) or name not in card:
            return default
        card = card[name]
    return card
