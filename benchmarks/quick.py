"""Every speed that matters on a machine without a GPU, in under five minutes on two idle cores, as one table of ratios.

    python benchmarks/quick.py        # or: make bench-quick

Runs the other benchmarks with small settings, each in a process of its own, and shows the line that compares ours with
a peer or a limit. Run a benchmark itself for figures worth quoting.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

# What is measured, the script with its options, and what its output says about it.
MEASURED = (
    ("build, paste: pictures/s once it runs", "build_speed.py --limit 40", r"([\d.]+) pictures/s after that"),
    ("build, paste: CPU seconds a picture", "build_speed.py --limit 40", r"CPU seconds a picture: workers ([\d.]+)"),
    (
        "evaluate, one model: x the throughput of a plain loop",
        "evaluate_speed.py --repeats 1",
        r"one model:\s+([\d.]+) x",
    ),
    (
        "evaluate, three models: x the time of three passes + decoding",
        "evaluate_speed.py --repeats 1",
        r"([\d.]+) x the time of three passes",
    ),
    ("drop table: times faster than a group-by", "analysis_speed.py --models 60 --resamples 200", r"ratio: ([\d.]+)"),
    ("sensitivity: x as fast as the published way", "sensitivity_speed.py --scenes 4", r"ratio\s+([\d.]+)"),
    ("report: share of its time limit", "report_speed.py --models 8", r"seconds: ([\d.]+) of the limit"),
    ("embedded network: share of a matrix product's speed", "network_speed.py --passes 6", r"([\d.]+) of a matrix"),
)


def main() -> None:
    began, outputs = time.perf_counter(), dict[str, str]()
    for title, command, pattern in MEASURED:
        if command not in outputs:
            script, *options = command.split()
            line = [sys.executable, str(Path(__file__).with_name(script)), *options]
            done = subprocess.run(line, capture_output=True, text=True)
            outputs[command] = done.stdout
            if done.returncode:
                print(f"{script} failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}", flush=True)
        value = re.search(pattern, outputs[command])
        print(f"{title:<66} {value[1] if value else 'not measured':>12}", flush=True)
    print(f"{time.perf_counter() - began:.0f} s in all")


if __name__ == "__main__":
    main()
