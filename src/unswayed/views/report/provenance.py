"""How the results were made: recipe, seeds, hashes, versions, and the commands that reproduce them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from markupsafe import Markup

from unswayed.benchmark.rows import WORST_MASKS
from unswayed.scene import LOOK_BELOW
from unswayed.views.tables import Cell, Column, Row, Table
from unswayed.views.text import joined, percent, plural, tag

from .findings import Findings
from .section import Section, paragraphs

_NEAREST = "the most similar ImageNet class; some of these animals have no class (a chameleon is labeled as an agama)"


def made_section(findings: Findings, report_command: Sequence[str], whole: Sequence[str] | None = None) -> Section:
    """Return the section; whole: one command that reproduces everything."""
    lines = [shlex.join(whole)] if whole else commands(findings, report_command)
    parts = [
        _facts("The benchmark", benchmark_facts(findings)),
        _left_out(findings),
        _models(findings),
        tag("h3", "How to reproduce it"),
        tag("pre", tag("code", "\n".join(lines)), tabindex=0, aria_label="Commands"),
    ]
    return Section("made", "How it was made", joined(parts))


def benchmark_facts(findings: Findings) -> dict[str, str]:
    """Return the content of the benchmark's card as text; empty if the benchmark is not available."""
    card = findings.facts.benchmark
    if not card:
        return {}
    renderer = _mapping(card.get("renderer"))
    network = _mapping(renderer.get("network"))
    source = _mapping(card.get("source"))
    recipe = card.get("recipe")
    name = recipe.get("name") if isinstance(recipe, dict) else recipe
    guide = _mapping(renderer.get("guide"))
    facts = {
        "Folder": str(findings.facts.root),
        "Source": f"{source.get('spec')}, {plural(int(source.get('scenes') or 0), 'scene')}",
        "SHA-256 of the scenes' ids": str(source.get("ids_sha256") or ""),
        "Labels": _NEAREST if source.get("spec") == "sample" else "",
        "Recipe": str(name),
        "Seed": f"{card.get('seed')}; {card.get('runs')} run(s) of each random edit",
        "Framing": f"{card.get('frame')}, {card.get('size')} pixels",
        "Renderer": " · ".join(
            str(detail)
            for detail in (
                renderer.get("renderer"),
                network.get("name"),
                f"{renderer['steps']} steps" if renderer.get("steps") else None,
                renderer.get("sampler"),
                f"{renderer['guidance']} guidance" if renderer.get("guidance") else None,
                renderer.get("precision"),
                card.get("device"),
            )
            if detail
        ),
        "Network's weights": next((str(value) for key, value in network.items() if "sha256" in key and value), ""),
        "Masks": _masks(card),
        "Object removal": str(_mapping(card.get("removal")).get("name") or ""),
        "Guide of adversarial edits": " ".join(str(value) for value in guide.values() if value),
        "Versions": _versions(card),
    }
    return {key: value for key, value in facts.items() if value and value != "None"}


def commands(findings: Findings, report_command: Sequence[str]) -> list[str]:
    """Return shell commands that build, evaluate and report the same, as far as the cards record it."""
    lines = []
    card = findings.facts.benchmark
    root = str(findings.facts.root) if findings.facts.root else "BENCH"
    if card.get("kind") == "build":
        renderer = _mapping(card.get("renderer"))
        recipe = _mapping(card.get("recipe")).get("name")
        source = _mapping(card.get("source"))
        parts = ["unswayed", "build", str(source.get("spec")), "-o", root, "--recipe", str(recipe)]
        parts += ["--renderer", str(renderer.get("renderer", "paste"))]
        for option in ("steps", "sampler", "guidance"):
            if renderer.get(option) is not None:
                parts += [f"--{option}", str(renderer[option])]
        if card.get("guide"):
            parts += ["--guide", str(card["guide"])]
        parts += ["--removal", str(_mapping(card.get("removal")).get("spec", "patches"))]
        for option, name in (("frame", "frame"), ("pixels", "size"), ("seed", "seed"), ("runs", "runs")):
            parts += [f"--{option}", str(card.get(name))]
        scenes = f"{source.get('scenes')} scenes whose ids hash to {str(source.get('ids_sha256'))[:12]}…"
        lines += [f"# {scenes}: add the --limit or --classes that chose them", shlex.join(parts)]
    elif card.get("kind") == "import":
        lines.append(shlex.join(["unswayed", "import", str(_mapping(card.get("source")).get("spec")), "-o", root]))
    named = {name: str(findings.facts.cards.get(name, {}).get("model", name)) for name in findings.models}
    specs = {findings.spec(name): evaluated for name, evaluated in named.items()}
    options = [spec if spec == name else f"{name}={spec}" for spec, name in sorted(specs.items())]
    models = [part for option in options for part in ("-m", option)]
    lines.append(shlex.join(["unswayed", "evaluate", root, *models, "-o", str(findings.predictions)]))
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
    caption = f"{gone.height:,} of {total} could not be made; no drop includes them."
    columns = [Column("edit"), Column("pictures, n", "n"), Column("status"), Column("reason", _reasons)]
    return Table(reasons, columns, caption).html("left-out-table")


def _reasons(row: Mapping[str, Any]) -> str:
    """Return the most frequent reason of an edit's line, and how many others there are."""
    others = f" (the most frequent of {row['reasons']} reasons)" if row["reasons"] > 1 else ""
    return f"{row['reason'] or 'no reason recorded'}{others}"


def _models(findings: Findings) -> Markup:
    def card(row: Row) -> Mapping[str, Any]:
        return findings.facts.cards.get(row["model"], {})

    def accuracy(row: Row) -> str:
        originals = _mapping(card(row).get("originals"))
        return f"{percent(originals.get('accuracy'))} (n = {originals.get('n', '–')})"

    columns = [
        Column("model", lambda row: Cell(row["model"], note="white-box" if card(row).get("white_box") else None)),
        Column("full name", lambda row: tag("code", findings.spec(row["model"]))),
        Column("accuracy on originals", accuracy),
        Column("SHA-256 of the weights", lambda row: tag("code", str(card(row).get("weights_sha256", "–")))),
        Column("transform", lambda row: _transform(_mapping(card(row).get("transform")))),
        Column("precision", lambda row: f"{card(row).get('precision', '–')}, {card(row).get('device', '–')}"),
    ]
    frame = pl.DataFrame({"model": findings.models}, schema={"model": pl.String})
    table = Table(frame, columns, "The models, from their cards.").html("models-table")
    versions = dict.fromkeys(_versions(findings.facts.cards.get(name, {})) for name in findings.models)
    return joined([table, paragraphs(*(f"Evaluated with {version}." for version in versions if version))])


def _masks(card: Mapping[str, Any]) -> str:
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


def _versions(card: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in _mapping(card.get("versions")).items())


def _transform(transform: Mapping[str, Any]) -> str:
    if not transform:
        return "–"
    return ", ".join(f"{key} {_rounded(value)}" for key, value in transform.items() if value is not None)


def _rounded(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "/".join(_rounded(item) for item in value) if isinstance(value, list) else str(value)


def _facts(title: str, facts: Mapping[str, str]) -> Markup:
    if not facts:
        return paragraphs("The benchmark is not available: use --benchmark BENCH to show how it was built.")
    return joined([tag("h3", title), tag("dl", *(joined([tag("dt", k), tag("dd", v)]) for k, v in facts.items()))])


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
