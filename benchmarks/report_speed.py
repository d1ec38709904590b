"""How long the report of many models takes and how much memory: 50 models × 12 edits × 4,352 photographs.

    PYTHONPATH=src python benchmarks/report_speed.py                      # limits: 60 s and 2 GB on 2 cores
    PYTHONPATH=src python benchmarks/report_speed.py --profile top.txt    # where the time goes

The predictions are drawn at random (every column that `unswayed evaluate` writes, the edits, controls and sweeps of the
recipe imagenet-e); the pictures of the benchmark are the framed photographs of the sample, which many rows share. A
fresh process then writes the report, without heat maps, which need networks.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

TIMED = """
import cProfile, json, pstats, resource, sys, time
profile = cProfile.Profile() if sys.argv[3] else None
if profile:
    profile.enable()
start = time.perf_counter()
from unswayed.views.report.page import write_report
from unswayed.views.report import ReportSettings
written = write_report(sys.argv[1], sys.argv[2], ReportSettings())
seconds = time.perf_counter() - start
if profile:
    profile.disable()
    with open(sys.argv[3], "w") as file:
        pstats.Stats(profile, stream=file).sort_stats("cumulative").print_stats(80)
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"seconds": seconds, "cpu": usage.ru_utime + usage.ru_stime, "gigabytes": usage.ru_maxrss / 2**20,
                  "megabytes": written.size / 1e6, "rows": written.drops.height, "flips": written.flips}))
"""
LIMITS = {"seconds": 60.0, "gigabytes": 2.0}


def write_benchmark(root: Path, photographs: int) -> list[tuple[str, str, int]]:
    """Write a benchmark's manifest, card and a few pictures; return (source_id, edit, label) of each row."""
    import cv2

    from unswayed.benchmark.rows import Row, write_manifest
    from unswayed.edits.edit import as_json
    from unswayed.edits.recipes import named_recipe
    from unswayed.files.whole import write_json
    from unswayed.labels import imagenet, imagenet_e_classes
    from unswayed.scene import frame
    from unswayed.sources import open_source

    (root / "images").mkdir(parents=True)
    scenes = [frame(scene).image for scene in open_source("sample")]
    for number, image in enumerate(scenes):
        small = cv2.resize(image, (256, 256), interpolation=cv2.INTER_AREA)
        cv2.imwrite(str(root / "images" / f"{number}.png"), small[..., ::-1])
    items = named_recipe("imagenet-e").items
    classes, rng = list(imagenet_e_classes()), np.random.default_rng(0)
    rows = [
        Row(
            source_id=f"ILSVRC2012_val_{index:08d}", edit=item.name, label=int(classes[index % len(classes)]),
            path=f"images/{index % len(scenes)}.png", attribute=item.attribute, control=item.control,
            level=f"{item.level:g}" if isinstance(item.level, float) else item.level,
            parameters={"chain": [as_json(edit) for edit in item.chain]}, validity=float(rng.random() ** 0.2),
            guide="lite:2" if "guide" in item.needs else None,
        )
        for index in range(photographs)
        for item in items
    ]  # fmt: skip
    write_manifest(root, rows)
    recipe = {"name": "imagenet-e", "edits": [{"name": item.name} for item in items]}
    card = {"kind": "build", "recipe": recipe, "labels": imagenet().to_json(), "seed": 0, "runs": 1, "frame": "object",
            "size": 256, "source": {"spec": "synthetic", "scenes": photographs}}  # fmt: skip
    write_json(root / "benchmark.json", card)
    return [(row.source_id, row.edit, int(row.label or 0)) for row in rows]


def write_predictions(folder: Path, bench: Path, rows: list[tuple[str, str, int]], models: int) -> None:
    """One Parquet file and card per made-up model, in the layout of `unswayed evaluate`."""
    import pyarrow
    import pyarrow.parquet

    from unswayed.evaluation.model_cards import SCHEMA
    from unswayed.files.whole import write_json
    from unswayed.labels import imagenet

    folder.mkdir()
    sources, edits, labels = map(np.array, zip(*rows, strict=True))
    names, which = np.unique(edits, return_inverse=True)
    photographs, photograph = np.unique(sources, return_inverse=True)
    difficulty = np.random.default_rng(0).normal(0, 1, len(photographs))[photograph]
    fixed = {
        "sample_id": [f"{source}/{edit}/0" for source, edit in zip(sources, edits, strict=True)],
        "source_id": sources, "file_name": [f"{source}.png" for source in sources],
        "run": np.zeros(len(rows), np.int32), "label": labels,
        "picture": [f"{number:016x}" for number in range(len(rows))],
        "edit": pyarrow.array(edits).dictionary_encode(),
    }  # fmt: skip
    for number in range(models):
        rng = np.random.default_rng(number + 1)
        cost = np.where(names == "original", 0, rng.uniform(0.1, 1.6, len(names)))[which]
        correct = 2.2 - 0.03 * number - cost + difficulty + rng.logistic(0, 0.5, len(rows)) > 0
        predicted = np.where(correct, labels, (labels + rng.geometric(0.1, len(rows))) % 1000)  # a few similar classes
        true = np.where(correct, rng.uniform(0.4, 1, len(rows)), rng.uniform(0, 0.3, len(rows)))
        model = f"timm:some_architecture_with_a_long_name_{number:02}.in1k"
        columns = {
            **fixed, "model": pyarrow.array([model] * len(rows)).dictionary_encode(), "predicted": predicted,
            "probability": np.where(correct, true, rng.uniform(0.3, 1, len(rows))), "true_probability": true,
            "correct": correct, "rank": np.where(correct, 1, 3), "energy": rng.normal(10, 2, len(rows)),
            "top5": list(np.stack([predicted] * 5, 1)), "top5_probabilities": list(rng.random((len(rows), 5))),
            "object_survives": rng.uniform(0.4, 1, len(rows)), "subset_correct": correct,
        }  # fmt: skip
        columns["task"] = pyarrow.array(["classify"] * len(rows)).dictionary_encode()
        arrays = [
            pyarrow.nulls(len(rows), field.type) if field.name not in columns
            else columns[field.name] if isinstance(columns[field.name], pyarrow.Array)
            else pyarrow.array(columns[field.name]).cast(field.type)
            for field in SCHEMA
        ]  # fmt: skip
        table = pyarrow.Table.from_arrays(arrays, schema=SCHEMA)
        pyarrow.parquet.write_table(table, folder / f"model-{number:03}.parquet", compression="zstd")
        right = float(correct[edits == "original"].mean())
        card = {"model": model, "spec": model, "weights_sha256": "0" * 64, "labels": imagenet().to_json(),
                "benchmark": {"path": str(bench)}, "white_box": False,
                "originals": {"n": len(photographs), "accuracy": right}}  # fmt: skip
        write_json(folder / f"model-{number:03}.json", card)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=50)
    parser.add_argument("--photographs", type=int, default=4352)
    parser.add_argument("--folder", type=Path, help="keep the synthetic predictions here and use them again")
    parser.add_argument("--profile", default="", help="write the functions that take longest to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "predictions").is_dir():
            rows = write_benchmark(folder / "bench", options.photographs)
            write_predictions(folder / "predictions", folder / "bench", rows, options.models)
        paths = [str(folder / "predictions"), str(folder / "report.html"), options.profile]
        command = [sys.executable, "-c", TIMED, *paths]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    print(f"{options.models} models, {options.photographs:,} photographs, {found['rows']:,} rows of drops")
    print(f"{found['seconds']:.1f} s ({found['cpu']:.1f} s of CPU time), {found['gigabytes']:.2f} GB at most, "
          f"{found['megabytes']:.1f} MB of HTML")  # fmt: skip
    for name, limit in LIMITS.items():
        print(f"{name}: {found[name] / limit:.2f} of the limit of {limit:g}")


if __name__ == "__main__":
    main()
