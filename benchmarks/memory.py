"""Memory of long runs over time: 20,000 paste edits and 50,000 predictions must not grow by more than 15 %.

    python benchmarks/memory.py build --pictures 20000
    python benchmarks/memory.py evaluate --pictures 50000

Prints the memory of a run with all of its processes while the work goes on, and how far it is from its median at most,
in each twentieth of the work (by its median) and in each moment, without the first tenth, in which caches fill, and the
end, when the first workers have nothing left to do.
The photographs are the embedded sample's, linked again and again. A small untrained network classifies them, since only
the memory around a network is the question: batches, decoding, scoring and storing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np

from unswayed.edits.recipes import open_recipe
from unswayed.sources import open_source

TARGET = 0.15
NETWORK = """
import torch
from unswayed.labels import imagenet
from unswayed.models import Classifier
from unswayed.models.transforms import Transform
def network():
    layers = [torch.nn.Conv2d(3, 16, 7, 8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten()]
    torch.manual_seed(0)
    module = torch.nn.Sequential(*layers, torch.nn.Linear(256, 1000)).eval()
    return Classifier(module, Transform(256, 224), imagenet())
"""
BUILD = """
import sys
from unswayed.benchmark import BuildSettings, build
settings = BuildSettings(renderer="paste", recipe=sys.argv[3], quality="off", workers=int(sys.argv[4]))
build(sys.argv[1], sys.argv[2], settings, progress=lambda now: print(now.share, flush=True))
"""
EVALUATE = """
import sys
from unswayed.evaluation import run_evaluation
run_evaluation(sys.argv[1], [sys.argv[3]], sys.argv[2], progress=lambda done, all: print(done / all, flush=True))
"""


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


def watched(command: list[str]) -> np.ndarray:
    """Run a command that prints which share of its work is done; return (n, 3) seconds, share and MiB."""
    started, found, shares = time.perf_counter(), [], [0.0]

    def follow(lines: Iterable[str]) -> None:
        for line in lines:
            shares[0] = float(line)

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=follow, args=(process.stdout,), daemon=True)
        reader.start()
        shown = -1
        while process.poll() is None:
            found.append((time.perf_counter() - started, shares[0], memory(process.pid)))
            if int(20 * shares[0]) > shown:
                shown = int(20 * shares[0])
                print("{:6.0f} s {:6.1%} {:8.0f} MiB".format(*found[-1]), flush=True)
            time.sleep(0.5)
        reader.join()
    if process.returncode:
        raise SystemExit(f"the command ended with {process.returncode}")
    return np.array(found[:-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("build", "evaluate"))
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--recipe", default="size=0.02:0.5:40", help="of the build [default: %(default)s]")
    parser.add_argument("--workers", type=int, default=2, help="of the build [default: %(default)s]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="unswayed-memory-") as temporary:
        folder = Path(temporary)
        photographs, output = folder / "photographs", str(folder / "out")
        if options.what == "build":
            made = sum("network" not in item.needs for item in open_recipe(options.recipe).items)
            linked(photographs, -(-options.pictures // made), masks=True)
            command = [BUILD, f"folder:{photographs}", output, options.recipe, str(options.workers)]
        else:
            linked(photographs, options.pictures, masks=False)
            (folder / "small.py").write_text(NETWORK)
            command = [EVALUATE, f"images:{photographs}", output, f"small=python:{folder / 'small.py'}:network"]
        seconds, share, used = watched([sys.executable, "-c", *command]).T
    steady = used[(share > 0.1) & (share < 0.95)]  # the first workers end when no task is left
    middle = float(np.median(steady))
    moments = float(np.abs(steady / middle - 1).max())
    parts = [float(np.median(part)) for part in np.array_split(steady, 17) if len(part)]
    apart = max(abs(part / middle - 1) for part in parts)
    first, last = (float(np.median(part)) for part in (steady[: len(steady) // 5], steady[-len(steady) // 5 :]))
    print(f"{options.pictures:,} pictures in {seconds[-1]:.0f} s, load {os.getloadavg()[0]:.1f}: median {middle:.0f} "
          f"MiB, first fifth {first:.0f}, last fifth {last:.0f} ({last / first - 1:+.1%})")  # fmt: skip
    print(f"every twentieth of the work stays within {apart:.1%} of the median (target: {TARGET:.0%}), every moment "
          f"within {moments:.1%}")  # fmt: skip


if __name__ == "__main__":
    main()
