"""Photographs that end every process that reads them, as a bug in a decoder does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Python runs this when a process starts.
CUSTOMIZE = """
import os, signal, sys

def end(event, given):
    if event == "open" and str(given[0]).endswith(("deadly.jpg", "deadly.png")):
        os.kill(os.getpid(), signal.SIGSEGV)

sys.addaudithook(end)
"""


def unswayed(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command where files named `deadly` are such photographs; folder: with further modules for Python."""
    (folder / "sitecustomize.py").write_text(CUSTOMIZE)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", "from unswayed.views.cli import main; main()", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
