"""Packages that other people install beside unswayed: modules on the path, and the metadata that names their parts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, entry_points: Mapping[str, Mapping[str, str]], **modules: str) -> None:
    """Write what an installer writes: modules by name with their code, and entry points by group, name and object."""
    for name, code in modules.items():
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    about = folder / "outside-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
        for group, points in entry_points.items()
    ]
    (about / "entry_points.txt").write_text("\n".join(groups))


def path_with(*folders: Path) -> str:
    """PYTHONPATH for a process that sees these folders, and the modules that tests share."""
    return os.pathsep.join([*map(str, folders), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
