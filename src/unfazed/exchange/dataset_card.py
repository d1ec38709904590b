"""The dataset card (README.md) of a published benchmark, and the credits of its photographs."""

from __future__ import annotations

import csv
import io
from collections import Counter
from typing import Any

from unfazed.benchmark.folder import Benchmark
from unfazed.benchmark.rows import OK

CREDITS = "CREDITS.csv"


def credits_file(benchmark: Benchmark) -> bytes | None:
    """The credits of the photographs: CREDITS.csv in the benchmark's folder, or those of the embedded sample."""
    path = benchmark.root / CREDITS
    if path.is_file():
        return path.read_bytes()
    if benchmark.card.get("source", {}).get("spec") != "sample":
        return None
    from unfazed.sources.sample import credits

    used = set(benchmark.manifest.column("source_id").to_pylist())
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("photograph", "author", "license", "source"))
    writer.writerows((one.id, one.author, one.license, one.source) for one in credits() if one.id in used)
    return text.getvalue().encode()


def dataset_card(benchmark: Benchmark, credited: bool) -> str:
    """README.md in the form that the Hugging Face Hub shows: settings on top, then the text."""
    rows = benchmark.manifest.to_pylist()
    made = Counter(row["edit"] for row in rows if row["status"] == OK)
    missing = Counter(row["edit"] for row in rows if row["status"] != OK)
    sources = {row["source_id"] for row in rows}
    table = [f"| {edit} | {made[edit]:,} | {missing[edit]:,} |" for edit in benchmark.edits]
    card = benchmark.card
    rights = (
        f"[{CREDITS}]({CREDITS}) names the author and the license of each photograph."
        if credited
        else "The rights of the photographs remain with their owners; check them before you pass the pictures on."
    )
    lines = [
        "---",
        "license: other",
        "task_categories: [image-classification]",
        f"size_categories: [{_size(sum(made.values()))}]",
        "tags: [unfazed, robustness, image-editing]",
        f"pretty_name: {_quoted(f'{benchmark.root.name}: edited photographs')}",
        "configs:",
        "- config_name: default",
        "  data_files: [{split: test, path: data/test-*.parquet}]",
        "---",
        "",
        f"# {benchmark.root.name}",
        "",
        f"{len(sources):,} photographs, each with edits that change one attribute of the object or its surroundings "
        f"and keep everything else. Classes: {benchmark.labels.name} ({len(benchmark.labels):,}). Made with "
        f"[unfazed](https://pypi.org/project/unfazed/) {card.get('versions', {}).get('unfazed', '')}.",
        "",
        "| edit | pictures | not made |",
        "| --- | ---: | ---: |",
        *table,
        "",
        "Compare a model's accuracy on an edit with its accuracy on `original`, photograph by photograph "
        "(`source_id`). `mask` is the object's mask in the edited picture; `parameters`, `values` and `seed` state how "
        "a picture was made, `sha256` is the hash of its file.",
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        'pictures = load_dataset("REPO_OR_FOLDER", split="test")',
        "```",
        "",
        "```sh",
        "unfazed import hf:REPO -o bench   # or the path of the downloaded folder",
        "unfazed evaluate bench -m timm:resnet50 -o predictions",
        "```",
        "",
        "## How it was made",
        "",
        *(f"- {name}: {_shown(card[name])}" for name in _FACTS if card.get(name) is not None),
        "",
        "`benchmark/benchmark.json` holds every setting and `benchmark/manifest.parquet` one row per picture, also for "
        "those that could not be made, with the reason.",
        "",
        "## Rights",
        "",
        rights,
        "",
    ]
    return "\n".join(lines)


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
