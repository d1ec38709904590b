"""Photographs that end every process that reads them, as a bug in a decoder does."""

from __future__ import annotations

import subprocess
from pathlib import Path

from command_line import run_cli_process
from outside_package import path_with

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
    return run_cli_process(*arguments, env={"PYTHONPATH": path_with(folder)})
