"""Quality of masks that nobody drew: IoU of each segmenter, and whether confidence tells good masks from bad ones.

    python benchmarks/mask_quality.py sample "oxford-pet:data?breeds=all" --segmenter sam2 --segmenter grabcut --degrade

The trimaps of Oxford-IIIT Pet leave a band around the animal unclassified. The IoU is that of masks that divide it
along its middle, as the source does; a second figure ignores the band, as the data set's own definition suggests.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.metrics import roc_auc_score

from unswayed.errors import BadPicture
from unswayed.masks.confidence import mask_confidence
from unswayed.masks.sam2 import overlap
from unswayed.masks.segment import open_segmenter, with_agreement
from unswayed.sources import open_source
from unswayed.sources.pictures import read_picture
from unswayed.sources.torchvision_sets import BORDER


def degraded(image: np.ndarray, seed: int) -> np.ndarray:
    """The photograph blurred, darkened, with noise: as a bad camera at night would take it."""
    import cv2

    rng = np.random.default_rng(seed)
    soft = cv2.GaussianBlur(image, (0, 0), rng.uniform(1, 3)).astype(np.float32)
    return np.clip(soft * rng.uniform(0.4, 0.8) + rng.normal(0, rng.uniform(5, 20), image.shape), 0, 255).astype(
        np.uint8
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--segmenter", action="append", default=[])
    parser.add_argument("--degrade", action="store_true", help="also a degraded copy of every photograph")
    parser.add_argument("--limit", type=int)
    given = parser.parse_args()
    for text in given.segmenter or ["auto"]:
        segmenter = open_segmenter(text)
        pooled: list[tuple[float, float]] = []
        for spec in given.sources:
            for bad in (False, True) if given.degrade else (False,):
                found, without, start = [], [], time.perf_counter()
                source = open_source(spec, limit=given.limit)
                for number, scene in enumerate(source):
                    image = degraded(scene.image, number) if bad else scene.image
                    try:
                        mask, agreement = with_agreement(segmenter, image, None)
                        found.append((overlap(mask, scene.mask), mask_confidence(image, mask, agreement).value))
                    except BadPicture:
                        mask = np.zeros_like(scene.mask)
                        found.append((0.0, 0.0))
                    if spec.startswith("oxford-pet:"):
                        known = read_picture(source.entry(scene.id).mask)[..., 0] != BORDER
                        without.append(overlap(mask * known, scene.mask * known))
                overlaps = np.array([one for one, _ in found])
                seconds = (time.perf_counter() - start) / len(found)
                name = f"{text}, {spec}{', degraded' if bad else ''}"
                band = f" ({np.mean(without):.3f} without the unclassified band)" if without else ""
                print(f"{name}: n = {len(found)}, mean IoU {overlaps.mean():.3f}{band}, worst {overlaps.min():.3f}, "
                      f"{seconds:.2f} s each", flush=True)  # fmt: skip
                pooled += found
        good = np.array([one > 0.8 for one, _ in pooled])
        if 0 < good.sum() < len(good):
            area = roc_auc_score(good, [value for _, value in pooled])
            print(
                f"{text}: confidence separates IoU > 0.8 ({good.sum()} of {len(good)}) with AUROC {area:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
