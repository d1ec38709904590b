"""A made-up world of predictions: a benchmark of plain pictures and models that are wrong at known rates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image

from unswayed.files.whole import write_json

MODELS = ["plain", "worse"]
HOSTILE = "<script>window.hacked=1</script>"
CLASSES = [HOSTILE, "a & b", '"><img src=x onerror=window.hacked=2>', "$\\frac{"]

EDITS = ("original", "inversion", "background-random", "size-0.1", "size-0.08", "size-0.05", "reinsertion")
CONTROLS = {"background-random": "inversion", "size-0.1": "reinsertion", "size-0.08": "reinsertion",
            "size-0.05": "reinsertion"}  # fmt: skip
# accuracy of the best model under each edit; every further model is a little worse
RATES = {"original": 0.95, "inversion": 0.94, "background-random": 0.8, "size-0.1": 0.85, "size-0.08": 0.8,
         "size-0.05": 0.6, "reinsertion": 0.94}  # fmt: skip


def make_benchmark(root: Path, scenes: int, classes: Sequence[str], edits: Sequence[str] = EDITS, side: int = 64,
                   pictures: int | None = None) -> Path:  # fmt: skip
    """A benchmark whose pictures are noise.

    pictures: how many scenes have files of their own, which the others share; all by default, 0: there are none.
    """
    rng = np.random.default_rng(0)
    rows = []
    for number in range(scenes):
        for edit in edits:
            path = f"images/{edit}/scene{number % (pictures or scenes):05}.png"
            if pictures is None or number < pictures:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.integers(0, 255, (side, side, 3), dtype=np.uint8)).save(root / path)
            rows.append(
                {
                    "sample_id": f"scene{number:05}/{edit}/0",
                    "source_id": f"scene{number:05}",
                    "edit": edit,
                    "run": 0,
                    "label": number % len(classes),
                    "path": path,
                    "status": "ok",
                    "reason": None,
                    "control": CONTROLS.get(edit),
                    "guide": "guide" if edit == "background-random" else None,
                }
            )
    root.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(root / "manifest.parquet")
    recipe = {"name": "made up", "edits": [{"name": edit} for edit in edits]}
    labels = {"name": "made up", "classes": list(classes)}
    card = {"kind": "build", "recipe": recipe, "labels": labels, "seed": 7, "runs": 1, "frame": "object", "size": side,
            "source": {"spec": "folder:made-up", "scenes": scenes}, "versions": {"unswayed": "0"}}  # fmt: skip
    write_json(root / "benchmark.json", card)
    return root


def make_predictions(folder: Path, bench: Path, models: Sequence[str], classes: Sequence[str],
                     white_box: str | None = None) -> Path:  # fmt: skip
    """One Parquet file and card a model, in the layout of `unswayed evaluate`."""
    manifest = pl.read_parquet(bench / "manifest.parquet")
    folder.mkdir(parents=True, exist_ok=True)
    rates = manifest["edit"].replace_strict({edit: RATES.get(edit, 0.7) for edit in manifest["edit"].unique()})
    for number, model in enumerate(models):
        rng = np.random.default_rng(number + 1)
        right = rng.random(manifest.height) < rates.to_numpy() - 0.01 * number
        label = manifest["label"].to_numpy()
        predicted = np.where(right, label, (label + 1) % len(classes))
        frame = manifest.select("sample_id", "source_id", "edit", "run", "label").with_columns(
            model=pl.lit(model),
            file_name=pl.col("source_id") + ".png",
            predicted=pl.Series(predicted.astype(np.int32)),
            probability=pl.Series(rng.uniform(0.3, 1, manifest.height)),
            true_probability=pl.Series(np.where(right, 0.8, 0.1)),
            correct=pl.Series(right),
            object_survives=pl.Series(rng.uniform(0.4, 1, manifest.height)),
        )
        frame.write_parquet(folder / f"model{number:02}.parquet")
        card = {"model": model, "weights_sha256": "0" * 64, "labels": {"name": "made up", "classes": list(classes)},
                "benchmark": {"path": str(bench)}, "white_box": model == white_box,
                "originals": {"n": manifest["source_id"].n_unique(), "accuracy": 0.9},
                "versions": {"torch": "0"}}  # fmt: skip
        write_json(folder / f"model{number:02}.json", card)
    return folder
