"""build-time.png: where the time of the process with the network goes, before and after 2026-11-18's work on it.

The seconds are shares of the samples of py-spy (`py-spy record -- python benchmarks/build_speed.py --renderer diffusion
--photographs PETS --limit 180`, one H200, 2,610 pictures) times the seconds for which that process rendered.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt

PARTS = ("removing objects", "taking new pictures", "choosing kernels for the guide", "finished pictures", "passes",
         "guidance")  # fmt: skip
COLORS = ("#4c78a8", "#f58518", "#9d9da1", "#54a24b", "#b279a2", "#e45756")
SECONDS = {"before": (20.0, 20.9, 3.6, 4.5, 2.2, 1.5), "after": (9.3, 5.6, 2.6, 2.1, 1.5, 0.7)}


def main() -> None:
    figure, axes = plt.subplots(figsize=(8, 2.4), layout="constrained")
    for name, seconds in SECONDS.items():
        left = 0.0
        for part, color, width in zip(PARTS, COLORS, seconds, strict=True):
            axes.barh(name, width, left=left, color=color, label=part if name == "before" else None)
            left += width
        axes.text(left + 0.5, name, f"{left:.0f} s", va="center")
    axes.invert_yaxis()
    axes.set_xlim(0, 60)
    axes.set_xlabel("seconds for 2,610 pictures")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(Path(__file__).with_name("build-time.png"), dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
