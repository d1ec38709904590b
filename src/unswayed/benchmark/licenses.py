"""The licenses of a benchmark: of the photographs it shows, and of the networks and models that took part in making it.

    licenses("bench").redistributable     # True, False, or None where a license is not stated or not known here

A file CREDITS.csv in the benchmark's folder, with the columns `photograph` and `license`, states them photograph by
photograph; otherwise they are those of the source, as far as its publisher states them for all of its photographs.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from unswayed.errors import UserError
from unswayed.files.downloads import KNOWN
from unswayed.files.text_tables import csv_text
from unswayed.files.whole import MOST_TEXT, read_file, sha256
from unswayed.masks.checks import mask_origins
from unswayed.models.opening import MODELS
from unswayed.sources import SOURCES
from unswayed.specs import Spec, split_specs

from .folder import Benchmark

CREDITS = "CREDITS.csv"
NOT_STATED = "not stated"
# What the license of a photograph allows to somebody who publishes a changed copy: the first pattern that matches in
# its name, in lower case with hyphens for spaces; whether it may be published, and on which condition.
_NAMED, _NO_COMMERCE = "its author is named", "nobody earns money with it"
_TERMS: tuple[tuple[str, bool, tuple[str, ...]], ...] = (
    (r"-nd\b|no-?deriv|all-rights-reserved|imagenet", False, ()),
    (r"public-domain|\bcc-?0|\bpdm\b|unlicense", True, ()),
    (r"by-nc-sa", True, (_NAMED, _NO_COMMERCE, "the picture has the same license")),
    (r"by-nc", True, (_NAMED, _NO_COMMERCE)),
    (r"by-sa", True, (_NAMED, "the picture has the same license")),
    (r"\bcc-by\b|apache|\bmit\b|\bbsd\b", True, (_NAMED,)),
)


@dataclass(frozen=True)
class License:
    """One license of a benchmark; part: `photographs`, `masks`, `network` or `guide`; name: what has it;
    count: of photographs or masks; redistributable, conditions: of the photographs only, None where not known."""

    part: str
    name: str
    license: str
    count: int | None = None
    redistributable: bool | None = None
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Licenses:
    """Every license; redistributable: whether all photographs may be published as changed here, None if not known.

    Networks and models decide nothing: the benchmark contains their pictures, but not their weights.
    """

    rows: tuple[License, ...]

    @property
    def photographs(self) -> list[License]:
        return [row for row in self.rows if row.part == "photographs"]

    @property
    def redistributable(self) -> bool | None:
        allowed = {row.redistributable for row in self.photographs}
        return False if False in allowed else None if None in allowed or not allowed else True

    @property
    def verdict(self) -> str:
        """The answer in one line, with the licenses that decide it."""
        if self.redistributable:
            conditions = [(row, " and ".join(row.conditions)) for row in self.photographs if row.conditions]
            listed = "; ".join(f"{condition} ({row.license}: {row.count})" for row, condition in conditions)
            return f"yes, if {listed}" if listed else "yes, without conditions"
        decisive = [row for row in self.photographs if row.redistributable is self.redistributable]
        answer = "not known" if self.redistributable is None else "no"
        return f"{answer}: {', '.join(f'{row.license} ({row.count})' for row in decisive) or 'it has no photographs'}"


def licenses(benchmark: str | Path) -> Licenses:
    """The licenses of the photographs, masks, network and guide of a built or imported benchmark."""
    opened = Benchmark(benchmark)
    rendered = opened.card.get("renderer") or {}
    network, guide = rendered.get("network"), rendered.get("guide")
    rows = [*_photographs(opened), *_masks(opened)]
    if network:
        rows.append(License("network", str(network.get("name")), _of_network(network)))
    for name in split_specs(str(guide.get("name"))) if guide else ():
        rows.append(License("guide", name, _of_model(name)))
    return Licenses(tuple(rows))


def credits_csv(benchmark: Benchmark) -> bytes | None:
    """The credits of the photographs: CREDITS.csv in the benchmark's folder, or those of the embedded sample."""
    path = benchmark.root / CREDITS
    if path.is_file():
        return read_file(path, MOST_TEXT)
    if benchmark.card.get("source", {}).get("spec") != "sample":
        return None

    import polars as pl

    from unswayed.sources.sample import credits

    used = set(benchmark.manifest.column("source_id").to_pylist())
    rows = [(credit.id, credit.author, credit.license, credit.source) for credit in credits() if credit.id in used]
    return csv_text(pl.DataFrame(rows, ("photograph", "author", "license", "source"), orient="row")).encode()


def _photographs(benchmark: Benchmark) -> list[License]:
    names = dict.fromkeys(benchmark.manifest.column("source_id").to_pylist())
    spec = str(benchmark.card.get("source", {}).get("spec") or benchmark.root)
    credits = credits_csv(benchmark)
    if credits is None:
        kind = Spec.parse(spec).kind
        facts = SOURCES.part(kind).facts if SOURCES.is_own(kind) else {}
        stated = dict.fromkeys(names, str(facts.get("license") or NOT_STATED))
    else:
        lines = credits.decode("utf-8", errors="replace").removeprefix("\ufeff").splitlines()
        table = list(csv.DictReader(lines))
        if table and not {"photograph", "license"} <= table[0].keys():
            columns = ", ".join(map(str, table[0]))
            raise UserError(f"{benchmark.root / CREDITS} has the columns {columns}", allowed="photograph, license, …")
        known = {row["photograph"]: (row["license"] or "").strip() or NOT_STATED for row in table}
        stated = {name: known.get(name, NOT_STATED) for name in names}
    counted = Counter(stated.values()).most_common()
    return [License("photographs", spec, license, count, *terms(license)) for license, count in counted]


def terms(license: str) -> tuple[bool | None, tuple[str, ...]]:
    """Whether a changed photograph under this license may be published (None: not known here), and the conditions.

    >>> terms("CC BY-SA 4.0"), terms("CC BY-NC-ND 2.0")[0], terms("Flickr")[0]
    ((True, ('its author is named', 'the picture has the same license')), False, None)
    """
    name = re.sub(r"[\s_]+", "-", license.strip().lower())
    for pattern, allowed, conditions in _TERMS:
        if re.search(pattern, name):
            return allowed, conditions
    return None, ()


def _masks(benchmark: Benchmark) -> list[License]:
    """The networks of automatic masks; masks that came with the photographs have the license of their source."""
    columns = [name for name in ("source_id", "values") if name in benchmark.manifest.column_names]
    origins = mask_origins(benchmark.manifest.select(columns).to_pylist()).values()
    made = Counter(origin.segmenter for origin in origins)
    weights = {"sam2": "sam2-tiny-encoder", "silueta": "silueta"}
    return [
        License("masks", by, KNOWN[weights[by]].license if by in weights else NOT_STATED, count)
        for by, count in made.most_common()
        if by != "grabcut"
    ]


def _of_network(network: dict[str, object]) -> str:
    """The license of a diffusion network: the embedded one is known by its weights, others by their names."""
    name = str(network.get("name"))
    if name == "compact":
        embedded = resources.files("unswayed.data").joinpath("network/network.safetensors")
        return "Apache-2.0" if sha256(Path(str(embedded))) == network.get("weights_sha256") else NOT_STATED
    return (KNOWN[name].license if name in KNOWN else "") or NOT_STATED


def _of_model(name: str) -> str:
    """The license that a model's package or library states for its weights."""
    spec = Spec.parse(name)
    if spec.kind == "timm" and not spec.options:
        from timm.models import get_pretrained_cfg

        stated = getattr(get_pretrained_cfg(spec.name, allow_unregistered=True), "license", None)
        return str(stated or NOT_STATED)
    return str(MODELS.part(spec.kind).facts.get("license") or NOT_STATED) if MODELS.is_own(spec.kind) else NOT_STATED
