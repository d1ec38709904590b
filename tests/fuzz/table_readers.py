"""The readers of tables: Parquet and CSV files."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
from fuzzing import Reader, placed
from mutations import as_parquet, damaged_csv, damaged_json, damaged_lines, other_columns


def predictions() -> Reader:
    from unswayed.evaluation.model_cards import SCHEMA
    from unswayed.evaluation.predictions import common_predictions, in_memory

    rows = 4
    columns: dict[str, Any] = {
        "model": ["m"] * rows,
        "sample_id": [f"s/{edit}/0" for edit in ("original", "size-0.1") for _ in range(2)],
        "source_id": ["a", "b"] * 2,
        "file_name": ["a.jpg", "b.jpg"] * 2,
        "edit": ["original", "original", "size-0.1", "size-0.1"],
        "run": [0] * rows,
        "label": [1, None, 1, None],
        "predicted": [1, 2, 3, 4],
        "probability": [0.5] * rows,
        "true_probability": [0.5] * rows,
        "correct": [True, None, False, None],
        "rank": [0] * rows,
        "top5": [[1, 2]] * rows,
        "top5_probabilities": [[0.5, 0.1]] * rows,
        "energy": [1.0] * rows,
        "object_survives": [1.0] * rows,
        "picture": ["p"] * rows,
    }
    columns |= {name: [None] * rows for name in SCHEMA.names if name not in columns}
    table = pa.Table.from_pydict(columns, schema=SCHEMA)
    file = io.BytesIO()
    parquet.write_table(table, file, compression="zstd")

    def read(data: bytes) -> None:
        path = placed("predictions/m.parquet", data)
        in_memory(common_predictions(path.parent), list(columns))

    return Reader([file.getvalue(), as_parquet(columns)], read, other_columns)


def manifest() -> Reader:
    import polars as pl

    from unswayed.benchmark.folder import Benchmark
    from unswayed.benchmark.rows import Row, read_manifest, record, row_of, schema
    from unswayed.evaluation.facts import Facts, _with_manifest

    rows = [Row("dog", edit, path=f"images/{edit}/dog.png", label=1, notes=["n"]) for edit in ("original", "size-0.1")]
    file = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist([record(row) for row in rows], schema=schema()), file)
    placed("benchmark/benchmark.json", b'{"labels": {"name": "imagenet-1k"}}')

    def read(data: bytes) -> Facts:
        root = placed("benchmark/manifest.parquet", data).parent
        if len(data) % 2:
            return _with_manifest(Facts(), pl.DataFrame(read_manifest(root, (), outside=True)))
        for row in (table := Benchmark(root).manifest).to_pylist():
            row_of(row)
        return _with_manifest(Facts(), pl.DataFrame(table))

    return Reader([file.getvalue()], read, other_columns)


def answers() -> Reader:
    """Predictions for ImageNet-X as CSV, and tables of groups, strengths and confidences."""
    import numpy as np
    import polars as pl

    from unswayed.analyses.drops.groups import read_model_groups
    from unswayed.analyses.factors.answers import read_answers
    from unswayed.sources.folder import read_confidences
    from unswayed.sources.imagenet_x import FACTORS, Annotations

    few = np.zeros(3, np.int16)
    keys = pl.Series([f"ILSVRC2012_val_0000000{one}" for one in range(3)])
    annotations = Annotations("top", "val", keys, np.zeros((3, len(FACTORS)), bool), few, few, few, few[:, None])
    files = [
        b"Afile_name,predicted_class,predicted_probability\nILSVRC2012_val_00000001.JPEG,1,0.5\nx.JPEG,2,\n",
        b"Amodel,file_name,edit,predicted\nm,ILSVRC2012_val_00000001.JPEG,original,1\n'=n,x.JPEG,size-0.1,2\n",
        b'Gmodel,architecture,training\nm,cnn,plain\nn,vit,"a, b"\n',
        b"Cpicture,confidence,agreement,edge,size\ndog/1.jpg,0.5,1.0,0.25,\n",
    ]

    def read(data: bytes) -> None:
        path = placed("answers/m.csv", data[1:])
        if data[:1] == b"A":
            list(read_answers(path, annotations))
        else:
            (read_model_groups if data[:1] == b"G" else read_confidences)(path)

    return Reader(files, read, lambda data, draw: data[:1] + damaged_csv(data[1:], draw))


def factors() -> Reader:
    """The annotation files of ImageNet-X."""
    import numpy as np

    from unswayed.sources import imagenet_x as read_files
    from unswayed.sources.imagenet_x import FACTORS

    row = {"file_name": "ILSVRC2012_val_00000001.JPEG", "class": 3, **dict.fromkeys(FACTORS, 0), "one_word": "x"}
    lines = [json.dumps({**row, "file_name": f"{one}.JPEG"}) for one in range(3)]
    files = [("\n".join(lines) + "\n").encode(), b"file_name\na.JPEG\nb.JPEG\n", b"[[1, 2], [], [999]]"]
    files.append("\n".join(["wnid,name,metaclass", *[f"n{one},dog,{one % 100}" for one in range(1000)]]).encode())

    def read(data: bytes) -> None:
        kind, data = data[:1], data[1:]
        if kind == b"0":
            read_files.parse_factors(placed("annotations/imagenet_x_val_top_factor.jsonl", data))
        elif kind == b"1":
            read_files.read_prototypes(placed("annotations/prototypical_paths.csv", data).parent)
        elif kind == b"2":
            read_files.read_real_labels(placed("annotations/imagenet_real_labels.jsonl", data).parent, np.arange(3))
        else:
            root = placed("annotations/imagenet_1k_classes_to_100_metaclasses.csv", data).parent
            read_files.read_metaclasses(root)

    def mutate(data: bytes, draw: random.Random) -> bytes:
        change = {b"0": damaged_lines, b"2": damaged_json}.get(data[:1], damaged_csv)
        return data[:1] + change(data[1:], draw)

    return Reader([str(kind).encode() + data for kind, data in enumerate(files)], read, mutate)


def result_tables() -> Reader:
    """The published result tables of ImageNet-X."""
    from unswayed.analyses.factors.answers import read_results, result_files
    from unswayed.sources.imagenet_x import FACTORS

    header = ",".join(["model", *FACTORS, "average"])
    numbers = ",".join(["0.5"] * (len(FACTORS) + 1))
    files = [f"{header}\nresnet50,{numbers}\nvit,{numbers}\n".encode()]

    def read(data: bytes) -> None:
        path = placed("results/set.csv", data)
        if found := result_files(path):
            read_results(found)

    return Reader(files, read, damaged_csv)


def report_tables() -> Reader:
    """The CSV files of other commands that the report shows: sensitivity and distribution checks."""
    from unswayed.views.report.extras import distribution_table, sensitivity_table

    files = [
        b"rfs.model,norm,level,n,accuracy_background,accuracy_foreground,rfs,rfs_low,rfs_high\nm,linf,60,2,0.5,1,0,-1,1\n",
        b"verdicts.model,set,sentence\nm,size-0.1,It is in distribution.\n",
        b"histograms.model,set,score,low,high,share,reference_share\nm,a,energy,-1.5,0,0.5,0.25\n",
        b"auroc.model,set,auroc\nm,a,0.5\nn,b,\n",
    ]

    def read(data: bytes) -> None:
        name, _, data = data.partition(b".")
        path = placed(f"tables/{name.decode()}.csv", data)
        if name == b"rfs":
            sensitivity_table(path.parent)
        else:
            distribution_table(path)

    def mutate(data: bytes, draw: random.Random) -> bytes:
        name, _, data = data.partition(b".")
        return name + b"." + damaged_csv(data, draw)

    return Reader(files, read, mutate)


def probes() -> Reader:
    """The rows of `sensitivity` as a second run reads them again, and the cards beside them."""
    from unswayed.analyses import sensitivity as measures
    from unswayed.evaluation.noise import SCHEMA
    from unswayed.evaluation.probes import read_probe
    from unswayed.evaluation.settings import SensitivitySettings
    from unswayed.evaluation.study import _require_same

    rows: list[dict[str, Any]] = []
    for source_id in ("a", "b"):
        for norm, level, region in (
            ("clean", None, "none"),
            ("linf", 60.0, "foreground"),
            ("linf", 60.0, "background"),
        ):
            row = {"model": "m", "source_id": source_id, "label": 0, "norm": norm, "level": level, "region": region}
            row |= {"seed": 0, "predicted": 1, "probability": 0.5, "true_probability": 0.2, "correct": False}
            rows.append({**row, "notes": None})
    file = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), file)
    card = json.dumps({"settings": {"frame": "object", "levels": {"linf": [60.0]}}, "failures": {}}).encode()
    folder = placed("probes/noise/m.json", card).parent.parent

    def read(data: bytes) -> None:
        if data[:1] == b"P":
            table = read_probe(placed("probes/noise/m.parquet", data[1:]).parent.parent, "noise", ["m"], SCHEMA)
            measures.instance_sensitivity(table)
            measures.region_drops(table, 10)
        else:
            placed("probes/noise/m.json", data[1:])
            _require_same(folder, SensitivitySettings())

    def mutate(data: bytes, draw: random.Random) -> bytes:
        return data[:1] + (other_columns if data[:1] == b"P" else damaged_json)(data[1:], draw)

    return Reader([b"P" + file.getvalue(), b"C" + card], read, mutate)
