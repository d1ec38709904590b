"""The dataset card (README.md) of a published benchmark, and the credits of its photographs."""

from __future__ import annotations

from collections import Counter
from importlib import resources
from typing import Any

import polars as pl
from jinja2 import StrictUndefined, Template

from unswayed.benchmark.folder import Benchmark
from unswayed.benchmark.rows import OK
from unswayed.files.text_tables import csv_text
from unswayed.files.whole import MOST_TEXT, read_file

CREDITS = "CREDITS.csv"


def credits_file(benchmark: Benchmark) -> bytes | None:
    """The credits of the photographs: CREDITS.csv in the benchmark's folder, or those of the embedded sample."""
    path = benchmark.root / CREDITS
    if path.is_file():
        return read_file(path, MOST_TEXT)
    if benchmark.card.get("source", {}).get("spec") != "sample":
        return None
    from unswayed.sources.sample import credits

    used = set(benchmark.manifest.column("source_id").to_pylist())
    rows = [(one.id, one.author, one.license, one.source) for one in credits() if one.id in used]
    return csv_text(pl.DataFrame(rows, ("photograph", "author", "license", "source"), orient="row")).encode()


def dataset_card(benchmark: Benchmark, credited: bool) -> str:
    """README.md in the form that the Hugging Face Hub shows: settings on top, then the text."""
    rows = benchmark.manifest.to_pylist()
    made = Counter(row["edit"] for row in rows if row["status"] == OK)
    missing = Counter(row["edit"] for row in rows if row["status"] != OK)
    card = benchmark.card
    return _template().render(
        benchmark=benchmark,
        photographs=len({row["source_id"] for row in rows}),
        size=_size(sum(made.values())),
        pretty_name=_quoted(f"{benchmark.root.name}: edited photographs"),
        version=card.get("versions", {}).get("unswayed", ""),
        edits=[(edit, made[edit], missing[edit]) for edit in benchmark.edits],
        facts={name: _shown(card[name]) for name in _FACTS if card.get(name) is not None},
        credits=CREDITS if credited else None,
    )


def _template() -> Template:
    text = resources.files("unswayed.benchmark.exchange").joinpath("dataset_card.md").read_text(encoding="utf-8")
    return Template(text, trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)


_FACTS = ("source", "recipe", "renderer", "removal", "frame", "size", "seed", "runs", "versions")


def _shown(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{name} {one}" for name, one in value.items() if not isinstance(one, dict | list))


def _size(pictures: int) -> str:
    """The Hub's name for a range of sizes.

    >>> _size(12), _size(4_000)
    ('n<1K', '1K<n<10K')
    """
    bounds = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
    return next((name for most, name in bounds if pictures < most), "1M<n<10M")


def _quoted(text: str) -> str:
    """Text as a YAML string: JSON's are."""
    import json

    return json.dumps(text, ensure_ascii=False)
