"""What network_quality.py asks of another version of this package: to build a benchmark, and to fill holes.

Run with that version's src as PYTHONPATH, so that only what both versions have is imported:

    PYTHONPATH=OTHER/src python benchmarks/another_version.py build SOURCE FOLDER RECIPE LIMIT DEVICE
    PYTHONPATH=OTHER/src python benchmarks/another_version.py fill METHOD HOLES.npz DEVICE

LIMIT and DEVICE may be empty. fill reads `pictures` (N, S, S, 3) and `holes` (N, S, S), and adds `filled` to the file.
"""

from __future__ import annotations

import sys

import numpy as np

PART = 64  # pictures at once


def main() -> None:
    task, *arguments = sys.argv[1:]
    {"build": built, "fill": filled}[task](*arguments)


def built(source: str, folder: str, recipe: str, limit: str, device: str) -> None:
    from unswayed.benchmark import BuildSettings, build

    build(source, folder, BuildSettings(recipe=recipe, limit=int(limit) if limit else None, device=device or None))


def filled(method: str, path: str, device: str) -> None:
    try:
        from unswayed.rendering.removal import open_removal
    except ImportError:  # where it was before
        from unswayed.rendering.removal.methods import open_removal
    removal, given = open_removal(method, device or None), dict(np.load(path))
    masks = given["holes"].astype(np.float32)
    parts = [slice(first, first + PART) for first in range(0, len(masks), PART)]
    done = [removal.remove(list(given["pictures"][part]), list(masks[part]), range(len(masks))[part]) for part in parts]
    np.savez(path, **given, filled=np.concatenate([np.stack(some) for some in done]))


if __name__ == "__main__":
    main()
