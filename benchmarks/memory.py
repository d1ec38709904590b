"""Memory of long runs over time: 20,000 paste edits and 50,000 predictions must not grow by more than 15 %.

    python benchmarks/memory.py build --pictures 20000
    python benchmarks/memory.py evaluate --pictures 50000

Prints the memory of the command with all of its processes while the work goes on, and how far it is from its median at
most, without the first tenth of the time, in which libraries are loaded and caches fill, and the last twentieth, in
which processes end. The photographs are the embedded sample's, linked again and again. A small untrained network
classifies them, since only the memory around a network is the question: batches, decoding, scoring and storing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np

from unfazed.edits.recipes import open_recipe
from unfazed.sources import open_source

TARGET = 0.15
PAGE = 30.0  # seconds between two printed lines
NETWORK = """
import torch
from unfazed.labels import imagenet
from unfazed.models import Classifier
from unfazed.models.transforms import Transform
def network():
    layers = [torch.nn.Conv2d(3, 16, 7, 8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten()]
    torch.manual_seed(0)
    module = torch.nn.Sequential(*layers, torch.nn.Linear(256, 1000)).eval()
    return Classifier(module, Transform(256, 224), imagenet())
"""
COMMAND = [sys.executable, "-c", "from unfazed.cli import main; main()"]


def linked(folder: Path, count: int, masks: bool) -> None:
    """A folder source of `count` links to the sample's photographs at 256 pixels, with their masks or with a class."""
    kinds = {"images": ".jpg", "masks": ".png"} if masks else {"n02123045": ".jpg"}
    pool = folder.with_name("pool")
    for where in (pool, *(folder / kind for kind in kinds)):
        where.mkdir(parents=True)
    names = []
    for scene in open_source("sample"):
        names.append(scene.id)
        small = cv2.resize(scene.image, (256, 256), interpolation=cv2.INTER_AREA)
        cv2.imwrite(str(pool / f"{scene.id}.jpg"), small[..., ::-1])
        cv2.imwrite(str(pool / f"{scene.id}.png"), 255 * (cv2.resize(scene.mask, (256, 256)) > 0.5).astype(np.uint8))
    for number in range(count):
        name = names[number % len(names)]
        for kind, suffix in kinds.items():
            os.link(pool / f"{name}{suffix}", folder / kind / f"{number:06}-{name}{suffix}")


def memory(pid: int) -> float:
    """MiB of a process and its descendants; pages that several share count once."""
    total, waiting = 0.0, [pid]
    while waiting:
        one = waiting.pop()
        try:
            fields = Path(f"/proc/{one}/smaps_rollup").read_text().split()
            total += int(fields[fields.index("Pss:") + 1]) / 1024
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (OSError, ValueError):
            continue  # it has just ended
    return total


def watched(command: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Run a command; return seconds and MiB of every second."""
    started, shown, found = time.perf_counter(), -PAGE, []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            now = time.perf_counter() - started
            found.append((now, memory(process.pid)))
            if now - shown >= PAGE:
                shown = now
                print(f"{now:6.0f} s {found[-1][1]:8.0f} MiB", flush=True)
            time.sleep(1)
    if process.returncode:
        raise SystemExit(f"the command ended with {process.returncode}")
    return np.array(found[:-1]).T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("build", "evaluate"))
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--recipe", default="imagenet-e")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="unfazed-memory-") as temporary:
        folder = Path(temporary)
        if options.what == "build":
            made = sum(not item.needs for item in open_recipe(options.recipe).items)  # what needs a network is skipped
            linked(folder / "photos", -(-options.pictures // made), masks=True)
            settings = ["--renderer", "paste", "--recipe", options.recipe, "--workers", str(options.workers)]
            command = [*COMMAND, "build", f"folder:{folder / 'photos'}", "-o", str(folder / "bench"), *settings]
        else:
            linked(folder / "photos", options.pictures, masks=False)
            (folder / "small.py").write_text(NETWORK)
            command = [*COMMAND, "evaluate", f"images:{folder / 'photos'}", "-o", str(folder / "predictions")]
            command += ["-m", f"small=python:{folder / 'small.py'}:network"]
        seconds, used = watched(command)
    steady = used[(seconds > 0.1 * seconds[-1]) & (seconds < 0.95 * seconds[-1])]
    middle = float(np.median(steady))
    apart = float(np.abs(steady / middle - 1).max())
    first, last = (float(np.median(part)) for part in (steady[: len(steady) // 5], steady[-len(steady) // 5 :]))
    print(f"{options.pictures:,} pictures in {seconds[-1]:.0f} s, load {os.getloadavg()[0]:.1f}: median {middle:.0f} "
          f"MiB, first fifth {first:.0f}, last fifth {last:.0f} ({last / first - 1:+.1%})")  # fmt: skip
    print(f"memory stays within {apart:.1%} of its median (target: {TARGET:.0%})")


if __name__ == "__main__":
    main()
