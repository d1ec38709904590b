"""Gives hostile files to the commands that open them, and prints how fast and in how much memory each is refused.

python tests/hostile/refusals.py        one line per case; exit code 1 if one is not refused, or takes too much
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from hostile_files import Case, cases

MOST_SECONDS, MOST_MEMORY = 1.0, 300  # MB
REFUSED = 2  # the exit code
# The process writes its own peak of memory: what the system reports about it includes its parent's.
PROGRAM = """
import atexit, os
atexit.register(lambda: open(os.environ["STATUS_FILE"], "w").write(open("/proc/self/status").read()))
from unswayed.views.cli import main
main()
"""


@dataclass(frozen=True)
class Outcome:
    """seconds: until the command ended; cpu: CPU time in seconds; memory: the most resident memory, in MB; said: the
    first line that the command printed; refused: with the right reason, and without running any code."""

    seconds: float
    cpu: float
    memory: float
    said: str
    refused: bool


def outcome(case: Case) -> Outcome:
    """Run the command of a case in a process of its own."""
    command = [sys.executable, "-c", PROGRAM, *case.arguments]
    with tempfile.TemporaryFile() as log, tempfile.NamedTemporaryFile("r") as status_file:
        begun = time.monotonic()
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, "COLUMNS": "300", "STATUS_FILE": status_file.name}
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begun
        log.seek(0)
        text = log.read().decode(errors="replace")
        peak = next((line.split()[1] for line in status_file if line.startswith("VmHWM")), "inf")
    refused = os.waitstatus_to_exitcode(status) == REFUSED and case.reason in text and not case.mark.exists()
    first = next((line for line in text.splitlines() if case.reason in line), text[:200])
    return Outcome(seconds, used.ru_utime + used.ru_stime, float(peak) / 1024, first.strip(), refused)


def main() -> None:
    failed = False
    print(f"{'case':<52} {'seconds':>7} {'CPU':>5} {'MB':>4}  answer")
    for name, make in cases().items():
        with tempfile.TemporaryDirectory() as folder:
            found = outcome(make(Path(folder)))
        # On two idle cores a command takes less time than CPU time; on busy ones more.
        fast = min(found.seconds, found.cpu) < MOST_SECONDS
        good = found.refused and fast and found.memory < MOST_MEMORY
        failed |= not good
        said = found.said.replace(folder, "…")
        print(f"{name:<52} {found.seconds:7.2f} {found.cpu:5.2f} {found.memory:4.0f}  {'' if good else 'BAD: '}{said}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
