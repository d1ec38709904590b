"""The picture of docs/factors.md: `python docs/pictures/make_factors.py FOLDER`.

FOLDER holds the published predictions DINO.csv and ResNet50.csv of ImageNet-X (CC BY-NC 4.0); the annotations are those
of the installed package imagenet-x.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(predictions: str) -> None:
    program = [sys.executable, "-c", "from unswayed.views.cli import main; main()"]
    figure = Path(__file__).with_name("factor-profile.png")
    subprocess.run([*program, "factors", predictions, "--figure", str(figure)], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(sys.argv[1])
