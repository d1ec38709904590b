"""`unswayed repair` that kills its own process early in the repaired arm: python killed_repair.py OPTION…"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from unswayed.jobs.monitor import Monitor
from unswayed.repair import fine_tuning
from unswayed.views.cli import build_app


def main() -> None:
    fine_tuning.SAVE_EVERY = 0.0
    count = Monitor.count

    def count_and_kill(self: Monitor, done: int, total: int, *more: Any, note: str = "") -> None:
        count(self, done, total, *more, note=note)
        if note.startswith("repaired") and done == total // 2 + 2:
            os.kill(os.getpid(), signal.SIGKILL)

    Monitor.count = count_and_kill  # type: ignore[assignment]
    build_app()(sys.argv[1:])


if __name__ == "__main__":
    main()
