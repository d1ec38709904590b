"""What a second worker process brings to a paste build, and what Ray costs on the same work.

    python benchmarks/scaling.py                       # 2 workers against 1
    python benchmarks/scaling.py --engines local ray   # needs ray

The variants take turns, and of each the best round counts, so that other work on the machine disturbs all of them in
the same way. Everything is measured from the first finished photograph to the last: without the start of the processes
and of Ray. Beside the pictures per second there are the CPU seconds of all processes, from which follows how fast two
idle cores would be: as fast as the busiest process, or as half of the sum. On a machine with other work only that is
meaningful.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from build_speed import copies
from unswayed.benchmark import BuildSettings, Progress, build

FASTER, DEARER = 1.7, 1.10
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Round:
    """One build: pictures per second, and for one picture the CPU seconds of all processes and of the busiest."""

    rate: float
    cpu: float
    busiest: float

    def idle(self, cores: int) -> float:
        """Seconds for one picture on that many cores that have nothing else to do."""
        return max(self.busiest, self.cpu / cores)


def measured(source: str, out: Path, workers: int, engine: str) -> Round:
    """Build once and measure."""
    moments: list[tuple[float, int, dict[int, float]]] = []

    def note(progress: Progress) -> None:
        moments.append((time.perf_counter(), progress.counts.get("ok", 0), cpu_seconds()))

    build(source, out, BuildSettings(renderer="paste", workers=workers, engine=engine, seed=7), progress=note)
    # The first call comes before the workers have started, the second with the first photograph.
    (first, had, before), (last, has, _) = moments[1], moments[-1]
    # A worker that has ended by now counts with what it had spent when it was last there.
    after = {process: seconds for _, _, found in moments for process, seconds in found.items()}
    spent = [seconds - before.get(process, 0.0) for process, seconds in after.items()]
    return Round((has - had) / (last - first), sum(spent) / (has - had), max(spent) / (has - had))


def cpu_seconds() -> dict[int, float]:
    """CPU seconds so far of this process and of all that descend from it, Ray's own among them."""
    parents, seconds = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        parents[int(folder.name)] = int(fields[1])
        seconds[int(folder.name)] = (int(fields[11]) + int(fields[12])) / TICKS
    ours = {os.getpid()}
    while more := {one for one, parent in parents.items() if parent in ours and one not in ours}:
        ours |= more
    return {one: seconds[one] for one in ours}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", nargs="+", default=["local"], choices=("local", "ray"))
    options = parser.parse_args()
    variants = [("local", 1), ("local", 2)] + ([("ray", 2)] if "ray" in options.engines else [])
    rounds: dict[tuple[str, int], list[Round]] = {variant: [] for variant in variants}
    with tempfile.TemporaryDirectory(prefix="unswayed-scaling-") as folder:
        source = copies(Path(folder) / "photos", options.scenes)
        for number in range(options.rounds):
            for engine, workers in variants:
                one = measured(source, Path(folder) / f"{engine}-{workers}-{number}", workers, engine)
                rounds[engine, workers].append(one)
                print(f"round {number + 1}: {engine}, workers {workers}: {one.rate:.1f} pictures/s, CPU time a picture "
                      f"{1e3 * one.cpu:.1f} ms ({1e3 * one.busiest:.1f} in the busiest process), load "
                      f"{os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    rate = {variant: max(one.rate for one in found) for variant, found in rounds.items()}
    idle = {variant: min(one.idle(variant[1]) for one in found) for variant, found in rounds.items()}
    one, two = ("local", 1), ("local", 2)
    print(f"2 workers are {rate[two] / rate[one]:.2f} times as fast as one, by CPU time {idle[one] / idle[two]:.2f} "
          f"times (target: {FASTER})")  # fmt: skip
    if (ray := ("ray", 2)) in rounds:
        print(f"on Ray the same work takes {rate[two] / rate[ray]:.2f} times as long, by CPU time "
              f"{idle[ray] / idle[two]:.2f} times (target: at most {DEARER:.2f})")  # fmt: skip


if __name__ == "__main__":
    main()
