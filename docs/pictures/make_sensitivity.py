"""The pictures of docs/sensitivity.md, from the commands of that page on the sample.

python docs/pictures/make_sensitivity.py demo/sensitivity
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from camera import HERE, camera, keep, shot
from PIL import Image

COMMAND = "sensitivity sample -m lite:0 -m lite:1 -m lite:2 --seeds 2 --saliency layercam --spurious --channels heat"


def main(work: Path) -> None:
    program = [sys.executable, "-c", "from unswayed.views.cli import main; main()"]
    subprocess.run([*program, *COMMAND.split(), "-o", str(work)], check=True, stdout=subprocess.DEVNULL)
    Image.open(work / "rfs.png").convert("P", palette=Image.Palette.ADAPTIVE).save(
        HERE / "sensitivity-rfs.png", optimize=True
    )
    keep(Image.open(work / "channels" / "lite-0.png").convert("RGB"), "sensitivity-channel.jpg", width=1100)
    with camera(1100, 900) as page:
        page.goto((work / "spurious" / "lite-0" / "gallery.html").resolve().as_uri())
        keep(shot(page, full_page=True), "sensitivity-beside.jpg")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
