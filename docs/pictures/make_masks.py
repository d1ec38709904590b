"""The contact sheet of docs/sources.md: GrabCut's least trusted masks of the sample and of one pet of each breed.

python docs/pictures/make_masks.py OXFORD-IIIT-PET
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from camera import keep
from PIL import Image

import unswayed


def main(pets: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        photos.mkdir()
        sample = unswayed.open_source("sample")
        for name in sample.ids:
            Image.fromarray(sample[name].image).save(photos / f"{name}.png")
        breeds = {path.stem.rpartition("_")[0]: path for path in sorted(pets.glob("**/images/*.jpg"), reverse=True)}
        for path in breeds.values():
            shutil.copy(path, photos)
        unswayed.masks(photos, Path(folder) / "masks", segmenter="grabcut")
        keep(Image.open(Path(folder) / "masks" / "worst.jpg"), "masks-sheet.jpg", quality=84)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
