"""Made-up predictions whose right answers are known: frames, and folders as `unswayed evaluate` writes them."""

import json

import numpy as np
import polars as pl


def frame(answers, model="m", label=None):
    """Predictions from edit -> list of answers (0 or 1) a photograph, or list of runs of such lists."""
    rows = []
    for edit, given in answers.items():
        runs = given if isinstance(given[0], (list, np.ndarray)) else [given]
        for run, column in enumerate(runs):
            for index, right in enumerate(column):
                if right is None:
                    continue
                source = f"image-{index:04d}"
                rows.append(
                    {
                        "model": model,
                        "sample_id": f"{source}/{edit}/{run}",
                        "source_id": source,
                        "edit": edit,
                        "run": run,
                        "label": index % 3 if label is None else label(index),
                        "correct": bool(right),
                    }
                )
    return pl.DataFrame(rows)


def random_answers(seed, n, shares):
    """edit -> n answers that are right with that edit's chance, photographs alike over edits; or (chance, runs)."""
    rng = np.random.default_rng(seed)
    hard = rng.random(n)
    found = {}
    for edit, share in shares.items():
        chance, runs = share if isinstance(share, tuple) else (share, 1)
        columns = [(0.6 * hard + 0.4 * rng.random(n) < chance).astype(int) for _ in range(runs)]
        found[edit] = columns if runs > 1 else columns[0]
    return found


def folder(path, models, cards=None):
    """A predictions folder of model -> frame, with cards."""
    path.mkdir(parents=True, exist_ok=True)
    for name, predictions in models.items():
        slug = name.replace(":", "-")
        predictions.with_columns(model=pl.lit(name)).write_parquet(path / f"{slug}.parquet")
        card = {"model": name, "weights_sha256": name, "labels": {"name": "imagenet-1k"}, **(cards or {}).get(name, {})}
        (path / f"{slug}.json").write_text(json.dumps(card))
    return path


def benchmark(path, edits, images, **columns):
    """A benchmark's card and manifest: edit -> {attribute, level, control, guide}; columns: name -> f(source, edit)."""
    path.mkdir(parents=True, exist_ok=True)
    rows = []
    for index in range(images):
        for edit, facts in edits.items():
            source = f"image-{index:04d}"
            row = {"sample_id": f"{source}/{edit}/0", "source_id": source, "edit": edit, "run": 0, "label": index % 3}
            row |= {name: facts.get(name) for name in ("attribute", "level", "control", "guide")}
            rows.append(row | {name: make(index, edit) for name, make in columns.items()})
    text = dict.fromkeys(("attribute", "level", "control", "guide"), pl.String)
    pl.DataFrame(rows, schema_overrides=text).write_parquet(path / "manifest.parquet")
    card = {"kind": "build", "recipe": {"edits": [{"name": edit} for edit in edits]}, "labels": {"name": "imagenet-1k"}}
    (path / "benchmark.json").write_text(json.dumps(card))
    return path


def row(table, **where):
    """The one row of a table that these columns name."""
    found = table.filter(**where)
    assert found.height == 1
    return found.row(0, named=True)
