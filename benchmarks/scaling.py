"""What a second worker process brings to a paste build, and what Ray costs on the same work.

    python benchmarks/scaling.py                       # 2 workers against 1
    python benchmarks/scaling.py --engines local ray   # needs ray
    python benchmarks/scaling.py --rounds 5            # the fastest round of each counts

The variants take turns, and of each the fastest round counts, so that other work on the machine disturbs all of them in
the same way. Pictures a second are from the first finished photograph to the last: without the start of the processes
and of Ray.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from build_speed import copies
from unfazed.benchmark import BuildSettings, Progress, build

TARGETS = {"2 workers": 1.7, "ray": 1.10}


def rate(source: str, out: Path, workers: int, engine: str) -> float:
    """Pictures a second of one build."""
    moments: list[tuple[float, int]] = []
    settings = BuildSettings(renderer="paste", workers=workers, engine=engine, seed=7)
    build(source, out, settings, progress=lambda now: moments.append(moment(now)))
    # The first call comes before the workers have started, the second with the first photograph.
    (first, had), (last, has) = moments[1], moments[-1]
    return (has - had) / (last - first)


def moment(progress: Progress) -> tuple[float, int]:
    return time.perf_counter(), progress.counts.get("ok", 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", nargs="+", default=["local"], choices=("local", "ray"))
    options = parser.parse_args()
    variants = [("local", 1), ("local", 2)] + ([("ray", 2)] if "ray" in options.engines else [])
    best = dict.fromkeys(variants, 0.0)
    with tempfile.TemporaryDirectory(prefix="unfazed-scaling-") as folder:
        source = copies(Path(folder) / "photos", options.scenes)
        for number in range(options.rounds):
            for engine, workers in variants:
                found = rate(source, Path(folder) / f"{engine}-{workers}-{number}", workers, engine)
                best[engine, workers] = max(best[engine, workers], found)
                print(f"round {number + 1}: {engine}, {workers} workers: {found:.1f} pictures/s, "
                      f"load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    second = best["local", 2] / best["local", 1]
    print(f"2 workers are {second:.2f} times as fast as one (target: {TARGETS['2 workers']})")
    if ("ray", 2) in best:
        overhead = best["local", 2] / best["ray", 2]
        print(f"on Ray the same work takes {overhead:.2f} times as long (target: at most {TARGETS['ray']:.2f})")


if __name__ == "__main__":
    main()
