"""A fine-tune that kills its own process in the middle: python killed_run.py PHOTOS FOLDER STEP."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from small_runs import small_run
from unswayed.repair import fine_tuning
from unswayed.repair.fine_tuning import Progress


def main() -> None:
    photos, folder, step = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    fine_tuning.SAVE_EVERY = 0.0

    def report(now: Progress) -> None:
        if now.step == step:
            os.kill(os.getpid(), signal.SIGKILL)

    small_run(photos, folder, report)


if __name__ == "__main__":
    main()
