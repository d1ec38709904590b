"""Speed of `unswayed evaluate` against a plain loop, for one and for three models, each in a new process.

    python benchmarks/evaluate_speed.py                                    # CPU: EfficientNet-Lite 0, 1, 2
    python benchmarks/evaluate_speed.py BENCH --device cuda --pictures 5000   # GPU: ResNets with random weights

BENCH is a benchmark; by default, the photographs of the sample are classified. `--pictures N` repeats them. The plain
loop is what people write: a thread for each core decodes with OpenCV, one batch ahead of the network, and the top
classes are counted; it reads no masks and stores nothing. Throughput is that after the first batch. The last lines
compare three models with their passes and one decoding pass, each timed alone in the way of `evaluate`.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

BEGUN = time.perf_counter()
NETWORKS = ("resnet18", "resnet34", "resnet50")  # on a GPU, with random weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", help="a benchmark; default: the photographs of the sample")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pictures", type=int, default=None, help="default: 256 on a CPU, 5000 on a GPU")
    parser.add_argument("--repeats", type=int, default=3, help="each way is timed so often, the median counts")
    parser.add_argument("--random", action="store_true", help="ResNets with random weights also on a CPU")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        request = json.loads(options.child)
        print(json.dumps(WAYS[request.pop("way")](**request)))
        return
    cuda = options.device.startswith("cuda")
    count, cores = options.pictures or (5000 if cuda else 256), len(os.sched_getaffinity(0))
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans become ours, so that their CPU time is counted
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        spec = made_benchmark(options.source, root / "pictures", count)
        models = random_networks(root) if cuda or options.random else [f"lite:{number}" for number in range(3)]
        shared = {"spec": spec, "device": options.device, "batch": 256 if cuda else 32}
        print(f"{options.device}, {cores} cores, {count} pictures of {options.source or 'the sample'}")
        rows: dict[str, list[dict[str, float]]] = {}
        for _ in range(options.repeats):  # the ways take turns, so that a busy moment hits all of them
            for number, model in enumerate(models):
                rows.setdefault(f"plain {number}", []).append(timed(way="plain", models=[model], **shared))
            rows.setdefault("one", []).append(timed(way="ours", models=models[:1], **shared))
            rows.setdefault("three", []).append(timed(way="ours", models=models, **shared))
            rows.setdefault("parts", []).append(timed(way="parts", models=models, **shared))
    report(
        {
            name: {key: statistics.median(row[key] for row in timings) for key in timings[0]}
            for name, timings in rows.items()
        },
        count,
    )


def report(rows: dict[str, dict[str, float]], count: int) -> None:
    print(f"{'':<22}{'first batch':>12}{'whole':>9}{'a second':>10}{'CPU s each':>12}")
    plain = [rows[f"plain {number}"] for number in range(3)]
    for name, row in rows.items():
        if name != "parts":
            each = f"{row['first']:>10.1f} s{row['whole']:>7.1f} s{row['rate']:>10.1f}{row['cpu'] / count:>12.4f}"
            print(f"{name if name.startswith('plain') else f'evaluate, {name}':<22}{each}")
    parts, three = rows["parts"], count / rows["three"]["rate"]
    passes = [parts[f"pass {number}"] for number in range(3)]
    loops = sum(count / row["rate"] for row in plain)
    alone = [max(seconds, parts["decoding"]) for seconds in passes]
    print(f"one model:    {rows['one']['rate'] / plain[0]['rate']:.2f} x the throughput of a plain loop")
    print(f"three models: {loops / three:.2f} x as fast as three plain loops")
    print(f"              {three / (sum(passes) + parts['decoding']):.2f} x the time of three passes + decoding once")
    print(
        f"              {three / (max(alone) + parts['decoding']):.2f} x the time of the slowest alone + decoding once"
    )
    print(f"first batch:  {rows['one']['first']:.1f} s after the command, {plain[0]['first']:.1f} s in a plain loop")


def timed(**request: Any) -> dict[str, float]:
    """What a new process measures, and its CPU seconds with all processes that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, __file__, "--child", json.dumps(request)], stdout=subprocess.PIPE, text=True, check=True
    )
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**json.loads(done.stdout.splitlines()[-1]), "cpu": cpu}


def made_benchmark(source: str | None, folder: Path, count: int) -> str:
    """The spec of `count` pictures: a benchmark whose rows are repeated, or links to the sample's photographs.

    They have their true labels: with others, `evaluate` looks for the transform that is wrong, by classifying the
    first pictures with five more.
    """
    if source is None:
        from unswayed.sources import open_source

        sample = open_source("sample")
        for number in range(count):
            entry = sample.entries[number % len(sample.entries)]
            place = folder / sample.labels.wnids[entry.label]
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{number:06}.jpg").symlink_to(entry.image)
        return f"images:{folder}"
    given = Path(source)
    import pyarrow as pa
    import pyarrow.parquet as parquet

    folder.mkdir()
    for name in ("benchmark.json", "images", "masks"):
        (folder / name).symlink_to((given / name).resolve())
    rows = [row for row in parquet.read_table(given / "manifest.parquet").to_pylist() if row["status"] == "ok"]
    table = parquet.read_schema(given / "manifest.parquet")
    repeated = []
    for number in range(count):
        row, again = rows[number % len(rows)], number // len(rows)
        name = f"{row['source_id']}-{again}"
        repeated.append({**row, "source_id": name, "sample_id": f"{name}/{row['edit']}/{row['run']}"})
    parquet.write_table(pa.Table.from_pylist(repeated, table), folder / "manifest.parquet")
    return str(folder)


def random_networks(folder: Path) -> list[str]:
    """Models with random weights, each in a file of its own: a GPU machine may be without a network."""
    import timm
    import torch

    specs = []
    for name in NETWORKS:
        torch.manual_seed(len(specs))
        file = folder / f"{name}.pth"
        torch.save(timm.create_model(name, pretrained=False).state_dict(), file)
        specs.append(f"timm:{name}?checkpoint={file}&checked=yes")
    return specs


def ours(spec: str, models: list[str], device: str, batch: int) -> dict[str, float]:
    """What the command does, in its order."""
    from unswayed.evaluation.settings import EvaluateSettings
    from unswayed.models.opening import import_early

    settings = EvaluateSettings(device=device, batch_size=batch)
    import_early(models, settings, "unswayed.evaluation.evaluator")
    from unswayed.evaluation import run_evaluation

    seen: list[tuple[float, int]] = []

    def show(done: int, _: int) -> None:
        if done:
            seen.append((time.perf_counter() - BEGUN, done))

    with tempfile.TemporaryDirectory() as output:
        done = run_evaluation(spec, models, output, settings, progress=show)
    assert not done.failed, done.failed
    whole, pictures = time.perf_counter() - BEGUN, done.pictures
    (first, before), (last, after) = seen[0], seen[-1]
    rate = (after - before) / len(models) / (last - first) if last > first else pictures / whole
    return {"first": first, "whole": whole, "rate": rate}


def plain(spec: str, models: list[str], device: str, batch: int) -> dict[str, float]:
    """The loop that people write."""
    import cv2
    import torch

    from unswayed.evaluation.inputs import open_pictures

    cv2.setNumThreads(1)
    (model,) = opened(models, device)
    transform, cuda = model.transform, device.startswith("cuda")
    mean, std = (torch.tensor(values, device=device).view(1, 3, 1, 1) for values in (transform.mean, transform.std))
    how = cv2.INTER_CUBIC if transform.interpolation == "bicubic" else cv2.INTER_LINEAR

    def decode(path: str) -> Any:
        image = cv2.imread(path, cv2.IMREAD_COLOR_RGB)
        high, wide = image.shape[:2]
        scale = transform.resize / min(high, wide)
        image = cv2.resize(image, (round(wide * scale), round(high * scale)), interpolation=how)
        top, left = ((side - transform.crop) // 2 for side in image.shape[:2])
        return torch.from_numpy(image[top : top + transform.crop, left : left + transform.crop].copy())

    pictures = open_pictures(spec)
    rows = [pictures.rows[start : start + batch] for start in range(0, len(pictures), batch)]
    right, first = torch.zeros(2), 0.0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool, torch.inference_mode():
        coming = [pool.submit(decode, row.path) for row in rows[0]]
        for number, some in enumerate(rows):
            pixels = torch.stack([future.result() for future in coming])
            coming = [pool.submit(decode, row.path) for row in (rows[number + 1] if number + 1 < len(rows) else ())]
            pixels = pixels.to(device, non_blocking=True).permute(0, 3, 1, 2).float().div_(255).sub_(mean).div_(std)
            with torch.autocast("cuda" if cuda else "cpu", torch.bfloat16, enabled=cuda):
                logits = model.module(pixels.contiguous(memory_format=torch.channels_last))
            labels = torch.tensor([row.label or 0 for row in some], device=device)
            top = logits.float().topk(5, 1).indices == labels[:, None]
            right += torch.stack([top[:, :1].sum(), top.sum()]).cpu()
            first = first or time.perf_counter() - BEGUN
    whole = time.perf_counter() - BEGUN
    return {"first": first, "whole": whole, "rate": (len(pictures) - len(rows[0])) / (whole - first)}


def parts(spec: str, models: list[str], device: str, batch: int) -> dict[str, float]:
    """Seconds of each model's passes on batches that are there already, and of one decoding pass for all of them."""
    import torch

    from unswayed.evaluation.decoding import Decoder
    from unswayed.evaluation.inputs import open_pictures
    from unswayed.jobs.resources import copies, in_lanes, kept_heap

    classifiers, pictures = opened(models, device), open_pictures(spec)
    count, cores = len(pictures), len(os.sched_getaffinity(0))
    lanes = cores if device == "cpu" else 1
    seconds = {}
    with kept_heap(device):
        for number, model in enumerate(classifiers):
            side = model.transform.crop
            crops = torch.randint(0, 255, (batch, side, side, 3), dtype=torch.uint8, pin_memory=device != "cpu")
            copied, work = copies(model, lanes, lanes, 0), partial(passed, crops=crops)
            list(in_lanes(work, copied, [batch] * 2 * lanes))
            sizes = [min(batch, count - done) for done in range(0, count, batch)]
            seconds[f"pass {number}"] = elapsed(in_lanes(work, copied, sizes), device)
    geometries = list(dict.fromkeys(model.transform.geometry for model in classifiers))
    plan = [list(range(start, min(start + batch, count))) for start in range(0, count, batch)]
    decoder = Decoder(pictures.rows, plan, geometries, cores)
    seconds["decoding"] = elapsed(decoder.batches(range(len(plan))), device)
    return seconds


def opened(models: list[str], device: str) -> list[Any]:
    from unswayed.models import open_model

    return [open_model(model, device=device) for model in models]


def passed(model: Any, size: int, crops: Any) -> None:
    model.classify(crops[:size], size)


def elapsed(work: Iterable[object], device: str) -> float:
    import torch

    start = time.perf_counter()
    for _ in work:
        pass
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


WAYS = {"ours": ours, "plain": plain, "parts": parts}

if __name__ == "__main__":
    main()
