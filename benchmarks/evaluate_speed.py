"""Speed of `unswayed evaluate` against the plain way in the same run: a timm-validate-style loop, model after model.

    python benchmarks/evaluate_speed.py                    # CPU: EfficientNet-Lite 0, 1, 2
    python benchmarks/evaluate_speed.py --device cuda      # GPU: three ResNet-50 with random weights

Prints how quick one model is against its plain loop, and three models against three plain loops and against the sum
of their forward passes and one decoding pass. Photographs are JPEG files of ImageNet's usual size (500 × 375).

Each repeat times every way once and gives one ratio; the median of the ratios counts. Forward passes and decoding are
timed as `evaluate` runs them: same batches, threads, precision, layout, and freed memory kept from a cold start on.
The plain loop has a process of its own, as people run it: memory that `evaluate` has left behind would speed it up.
"""

from __future__ import annotations

import argparse
import csv
import functools
import os
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from unswayed.evaluation import EvaluateSettings, run_evaluation
from unswayed.evaluation.decoding import decode
from unswayed.evaluation.inputs import Pictures, open_pictures
from unswayed.jobs.resources import kept_heap
from unswayed.labels import imagenet
from unswayed.models import Classifier, open_model
from unswayed.models.foreign_transforms import from_timm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pictures", type=int, default=None, help="default: 256 on a CPU, 8192 on a GPU")
    parser.add_argument("--width", type=int, default=500)
    parser.add_argument("--workers", type=int, default=None, help="of the plain loop; default: one a core")
    parser.add_argument("--repeats", type=int, default=5, help="each way is timed so often, the median counts")
    options = parser.parse_args()
    cuda = options.device.startswith("cuda")
    count = options.pictures or (8192 if cuda else 256)
    cores = len(os.sched_getaffinity(0))
    workers = options.workers or cores
    batch = 256 if cuda else 32
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1) as elsewhere,
    ):
        elsewhere.submit(warm_models, options.device, batch).result()  # it forks now, before torch has threads here
        write_photographs(Path(folder) / "photos", count, options.width)
        pictures = open_pictures(f"images:{folder}/photos")
        models = warm_models(options.device, batch)
        print(
            f"{options.device}, {cores} cores, torch threads {torch.get_num_threads()}, {count} pictures, batch {batch}"
        )

        def ours(chosen: list[Classifier]) -> float:
            with tempfile.TemporaryDirectory() as output:
                start = time.perf_counter()
                done = run_evaluation(pictures, chosen, output, EvaluateSettings(batch_size=batch))
                taken = time.perf_counter() - start
                assert len(done.scored) == len(chosen), done.failed
                return taken

        ours(models[:1])  # what is imported on first use is not part of either way
        one, three, whole = [], [], []
        for _ in range(options.repeats):  # the ways take turns, so that a busy moment hits all of them
            loops = [
                elsewhere.submit(plain, options.device, number, pictures, batch, workers).result()
                for number in range(len(models))
            ]
            alone, together = ours(models[:1]), ours(models)
            one.append(loops[0] / alone)
            three.append(sum(loops) / together)
            print(f"plain {seconds(*loops)}; ours: one model {alone:.2f} s, three {together:.2f} s", end="", flush=True)
            if not cuda:
                with kept_heap():
                    passes = [forward_only(model, batch, count) for model in models]
                    decoding = decode_only(pictures, models, cores)
                whole.append(together / (sum(passes) + decoding))
                print(f"; forward {seconds(*passes)}, decoding {decoding:.2f} s: {whole[-1]:.3f} x their sum", end="")
            print(flush=True)
        print(f"one model:    {statistics.median(one):.2f} x as fast as a plain loop")
        print(f"three models: {statistics.median(three):.2f} x as fast as three plain loops")
        if whole:
            print(f"              {statistics.median(whole):.3f} x (the sum of the forward passes + one decoding pass)")


def seconds(*times: float) -> str:
    return f"{' + '.join(f'{one:.2f}' for one in times)} = {sum(times):.2f} s"


def write_photographs(root: Path, count: int, width: int) -> None:
    """`count` JPEG files in class folders, cut from the sample's photographs; every 512th is the same file."""
    sample = resources.files("unswayed.data") / "sample"
    with (sample / "CREDITS.csv").open(encoding="utf-8") as file:
        known = [(row["file"], imagenet().wnids[int(row["label"])]) for row in csv.DictReader(file)]
    size = (width, width * 3 // 4)

    def write(number: int) -> None:
        rng = np.random.default_rng(number)
        name, wnid = known[number % len(known)]
        image = Image.open(str(sample / f"{name}.jpg")).convert("RGB")
        left, top = int(rng.integers(0, image.width // 8)), int(rng.integers(0, image.height // 8))
        cut = image.crop((left, top, left + image.width * 7 // 8, top + image.height * 7 // 8))
        (root / wnid).mkdir(parents=True, exist_ok=True)
        cut.resize(size, Image.Resampling.BICUBIC).save(root / wnid / f"{number:06}.jpg", quality=92)

    distinct = min(count, 512)
    with ThreadPoolExecutor() as pool:
        list(pool.map(write, range(distinct)))
    for number in range(distinct, count):
        folder = root / known[number % distinct % len(known)][1]
        os.link(folder / f"{number % distinct:06}.jpg", folder / f"{number:06}.jpg")


@functools.cache
def warm_models(device: str, batch: int) -> list[Classifier]:
    """The three models, with weights hashed and kernels chosen; once a process."""
    torch.backends.cudnn.benchmark = True
    models = [resnet50(seed, device) for seed in range(3)] if device.startswith("cuda") else lite(device)
    for model in models:
        forward_only(model, batch, 2 * batch)
        _ = model.weights_hash
    return models


def resnet50(seed: int, device: str) -> Classifier:
    import timm
    from timm.data import resolve_model_data_config

    torch.manual_seed(seed)
    module = timm.create_model("resnet50", pretrained=False)
    transform = from_timm(resolve_model_data_config(module))
    return Classifier(module, transform, imagenet(), f"timm:resnet50 seed {seed}", device=device)


def lite(device: str) -> list[Classifier]:
    return [open_model(f"lite:{number}", device=device) for number in range(3)]


def plain(device: str, number: int, pictures: Pictures, batch: int, workers: int) -> float:
    """Seconds of the loop that timm's validate.py runs: its own loader, one model, top-1 and top-5."""
    from timm.data import create_loader

    model = warm_models(device, batch)[number]
    cuda = str(model.device).startswith("cuda")
    transform = model.transform
    start = time.perf_counter()
    loader = create_loader(
        _Files(pictures),
        input_size=(3, transform.crop, transform.crop),
        batch_size=batch,
        use_prefetcher=cuda,
        interpolation=transform.interpolation,
        mean=transform.mean,
        std=transform.std,
        num_workers=workers,
        crop_pct=transform.crop / transform.resize,
        pin_memory=cuda,
        device=torch.device(str(model.device)),
    )
    right = torch.zeros(2)
    with torch.inference_mode():
        for pixels, labels in loader:
            pixels = pixels.to(model.device).contiguous(memory_format=torch.channels_last)
            with torch.autocast("cuda" if cuda else "cpu", torch.bfloat16, enabled=cuda):
                logits = model.module(pixels)
            top = logits.float().topk(5, 1).indices == labels.to(logits.device)[:, None]
            right += torch.stack([top[:, :1].sum(), top.sum()]).cpu()
    return time.perf_counter() - start


class _Files(torch.utils.data.Dataset):
    """Pictures from files as timm's own dataset reads them."""

    def __init__(self, pictures: Pictures) -> None:
        self.rows = [(row.path, row.label) for row in pictures.rows]
        self.transform = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[object, int]:
        path, label = self.rows[index]
        image = Image.open(path).convert("RGB")
        return self.transform(image) if self.transform else image, label or 0


def forward_only(model: Classifier, batch: int, count: int) -> float:
    """Seconds of the forward passes alone, on batches that are there already."""
    side = model.transform.crop
    pixels = torch.rand(batch, 3, side, side, device=model.device).contiguous(memory_format=torch.channels_last)
    start = time.perf_counter()
    for done in range(0, count, batch):
        model.logits(pixels[: min(batch, count - done)])
    if str(model.device).startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


def decode_only(pictures: Pictures, models: list[Classifier], threads: int) -> float:
    """Seconds of one decoding pass: every file read and cropped for every model, with all cores."""
    geometries = list(dict.fromkeys(model.transform.geometry for model in models))
    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda row: decode(row, geometries), pictures.rows):
            pass
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
