"""Pictures a second that `unswayed build` makes at 256×256, and what it waits for.

    python benchmarks/build_speed.py                                             # paste, on all cores
    python benchmarks/build_speed.py --renderer diffusion --photographs PETS     # the embedded network on a GPU

Builds `imagenet-e` of the embedded photographs, or of a folder with NAME.jpg and NAME.png (masks, or trimaps with the
values 1 to 3), repeated up to --limit. Prints pictures a second before and after the first one, CPU seconds a picture
outside the network, how busy the GPU (by nvidia-smi) and the cores are, and on a GPU what the network alone can make.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import json
import os
import pstats
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import cv2
import numpy as np

TABBY = "n02123045"  # every photograph gets a label, which adversarial backgrounds need


def photographs(folder: Path, given: Path | None, count: int) -> str:
    """A folder source of the photographs and masks, repeated up to `count`."""
    sample = given or Path(str(resources.files("unswayed.data").joinpath("sample")))
    pictures = [path for path in sorted(sample.glob("*.jpg")) if path.with_suffix(".png").exists()]
    lines = ["file,label"]
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True)
    for number in range(count):
        picture = pictures[number % len(pictures)]
        name = f"{number:05}-{picture.stem}"
        shutil.copyfile(picture, folder / f"images/{name}.jpg")
        mask = cv2.imread(str(picture.with_suffix(".png")), cv2.IMREAD_GRAYSCALE)
        if mask.max() <= 3:  # 1: the pet, 2: its surroundings, 3: its outline
            mask = np.where(mask == 2, 0, 255).astype(np.uint8)
        cv2.imwrite(str(folder / f"masks/{name}.png"), mask)
        lines.append(f"{name}.jpg,{TABBY}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return f"folder:{folder}?space=imagenet-1k"


def since_start() -> float:
    """Seconds since this process was started."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def machine_cpu() -> float:
    """CPU seconds of the whole machine so far."""
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def gpu_samples() -> Iterator[list[tuple[float, float]]]:
    """(moment, percent) of the GPU's own counter of its use, five times a second; empty without nvidia-smi."""
    samples: list[tuple[float, float]] = []
    if shutil.which("nvidia-smi") is None:
        yield samples
        return
    query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200", "-i", "0"]
    process = subprocess.Popen(query, stdout=subprocess.PIPE, text=True)

    def read() -> None:
        for line in process.stdout or ():
            with contextlib.suppress(ValueError):
                samples.append((time.monotonic(), float(line)))

    threading.Thread(target=read, daemon=True).start()
    try:
        yield samples
    finally:
        process.terminate()
        process.wait()


def network_alone(steps: int | None, passes: float) -> None:
    """Print what the network makes in full batches, without anything around it."""
    import torch

    from unswayed.rendering.diffusion import open_diffusion

    renderer = open_diffusion("compact", steps, device="cuda", compile=False)
    network, slots, size = renderer.network, renderer.batch_size, renderer.size
    x, known = (torch.zeros(slots, channels, size, size, device="cuda") for channels in (3, 4))
    times = torch.full((slots,), 500.0, device="cuda")

    def run(count: int) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        with torch.no_grad():
            for _ in range(count):
                network(x, times, None, known)
        torch.cuda.synchronize()
        return time.perf_counter() - began

    run(3)
    each = run(50) / 50
    rate = slots / each / passes
    print(f"network alone: {1000 * each:.1f} ms for a pass of {slots}, {rate:.0f} pictures/s at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--renderer", default="paste", choices=["paste", "diffusion"])
    parser.add_argument("--photographs", type=Path, help="a folder of NAME.jpg and NAME.png")
    parser.add_argument("--limit", type=int, default=60, help="how many photographs")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--recipe", default="imagenet-e")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--device")
    parser.add_argument("--profile", action="store_true", help="where the time of the main thread goes; slows it down")
    options = parser.parse_args()

    from unswayed.benchmark import BuildSettings, Progress, build
    from unswayed.benchmark.rows import read_manifest

    names = ("renderer", "steps", "recipe", "workers", "batch_size", "device")
    settings = BuildSettings(seed=7, **{name: getattr(options, name) for name in names})
    moments: list[tuple[float, int]] = []

    def note(progress: Progress) -> None:
        if progress.summary is not None:
            moments.append((time.monotonic(), progress.counts.get("ok", 0)))

    profile = cProfile.Profile() if options.profile else None
    with tempfile.TemporaryDirectory(prefix="unswayed-build-speed-") as folder, gpu_samples() as samples:
        source = photographs(Path(folder) / "photos", options.photographs, options.limit)
        imported, before, began = since_start(), machine_cpu(), time.monotonic()
        own = time.process_time()
        with profile or contextlib.nullcontext():
            built = build(source, Path(folder) / "bench", settings, progress=note)
        ended, own, all_cpu = time.monotonic(), time.process_time() - own, machine_cpu() - before
        measures = [row for row in read_manifest(Path(folder) / "bench", ["measures"])["measures"].to_pylist() if row]
    pictures, (first, had), cores = built.counts["ok"], moments[0], os.cpu_count() or 1
    print(f"{built.sources} photographs, {pictures} pictures, {built.counts['skipped']} skipped; {settings.renderer}")
    print(f"start: {imported:.1f} s until build is called, {first - began:.1f} s until the first photograph is done")
    rate = (pictures - had) / max(1e-9, ended - first)
    print(f"{rate:.1f} pictures/s after that, {pictures / (ended - began):.1f} in all")
    print(f"CPU seconds a picture: workers {built.cpu / pictures:.4f}, this process {own / pictures:.4f}")
    print(f"whole machine {all_cpu / pictures:.4f}: {all_cpu / (ended - began) / cores:.0%} of {cores} cores")
    busy = [percent for moment, percent in samples if first <= moment <= ended]
    if busy:
        print(f"GPU: {np.mean(busy):.0f} % busy after the first photograph ({len(busy)} samples)")
    spent = sum(built.stages.values())
    for stage, seconds in sorted(built.stages.items(), key=lambda pair: -pair[1]):
        print(f"{STAGES.get(stage, stage):>42} {seconds / spent:6.1%} {1000 * seconds / pictures:8.1f} ms a picture")
    passes = sum(json.loads(text).get("passes", 0) for text in measures)
    if settings.has_network and samples:
        network_alone(options.steps, passes / pictures)
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)


STAGES = {
    "decode": "decoding and framing",
    "compose": "composing (with object removal)",
    "render": "rendering (of a network: until it answers)",
    "judge": "validity and measures",
    "encode": "PNG encoding",
    "write": "writing and syncing",
}


if __name__ == "__main__":
    main()
