"""How often right, rough and wrong masks are doubted, by scene and by set of scenes.

    python benchmarks/mask_fit.py sample "oxford-pet:data?breeds=all&split=all"

Wrong masks are brought to the size of the photograph, as if all photographs had one size.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict

import cv2
import numpy as np

from unswayed.masks.checks import SIDE, doubted_masks, mask_warnings
from unswayed.sources import open_source
from unswayed.sources.pictures import read_picture
from unswayed.sources.torchvision_sets import BACKGROUND, PET

SETS, DRAWS = (2, 4, 8, 20, 60), 1000
GRABBED = 60  # photographs for which GrabCut makes a mask from the object's box, since it takes long


def grown(mask: np.ndarray, by: int) -> np.ndarray:
    """by: in pixels for photographs whose longer side has 500."""
    radius = max(round(abs(by) * max(mask.shape) / 500), 1)
    disk = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1))
    return np.asarray((cv2.dilate if by > 0 else cv2.erode)(mask, disk))


def shifted(mask: np.ndarray, down: int, right: int) -> np.ndarray:
    scale = max(mask.shape) / 500
    return cv2.warpAffine(mask, np.array([[1, 0, right * scale], [0, 1, down * scale]], np.float32), mask.shape[::-1])


def rough(mask: np.ndarray) -> dict[str, np.ndarray]:
    """Masks of the right object by other means."""
    pieces = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)[0]
    x, y, wide, high = cv2.boundingRect(np.concatenate(pieces))
    outline = max(pieces, key=len)
    corners = outline[np.linspace(0, len(outline), 12, endpoint=False).astype(int)]
    center, axes = (x + wide // 2, y + high // 2), (wide // 2, high // 2)
    blank = np.zeros_like(mask)
    return {
        **{f"grown by {by}": grown(mask, by) for by in (-8, -4, -2, 2, 4, 8)},
        "polygon of 12 points": cv2.fillPoly(blank.copy(), [corners], 1),
        "convex hull": cv2.fillPoly(blank.copy(), [cv2.convexHull(np.concatenate(pieces))], 1),
        "box": cv2.rectangle(blank.copy(), (x, y), (x + wide - 1, y + high - 1), 1, -1),
        "ellipse": cv2.ellipse(blank.copy(), center, axes, 0, 0, 360, 1, -1),
    }


def grabbed(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    inner = np.zeros_like(mask)
    inner[2:-2, 2:-2] = grown(mask, 8)[2:-2, 2:-2]  # GrabCut needs some background around the box
    found, box = np.zeros_like(mask), cv2.boundingRect(inner)
    cv2.grabCut(image, found, box, np.zeros((1, 65)), np.zeros((1, 65)), 2, cv2.GC_INIT_WITH_RECT)
    return (found % 2).astype(np.uint8)


def wrong(mask: np.ndarray, other: np.ndarray) -> dict[str, np.ndarray]:
    turned = {"transposed": mask.T, "turned by 90 degrees": np.rot90(mask), "turned by 180 degrees": np.rot90(mask, 2)}
    found = {"of another photograph": other, "mirrored": mask[:, ::-1], "upside down": mask[::-1], **turned}
    found |= {"shifted right by 30": shifted(mask, 0, 30), "shifted down by 30": shifted(mask, 30, 0)}
    size = mask.shape[::-1]
    return {
        name: cv2.resize(np.ascontiguousarray(one), size, interpolation=cv2.INTER_NEAREST)
        for name, one in found.items()
    }


def small(picture: np.ndarray) -> np.ndarray:
    scale = SIDE / max(picture.shape[:2])
    size = round(picture.shape[1] * scale), round(picture.shape[0] * scale)
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--limit", type=int)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    warnings: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    seconds, count = 0.0, 0
    for spec in given.sources:
        source = open_source(spec, limit=given.limit)
        scenes = [(small(one.image), (small(one.mask) > 0.5).astype(np.uint8), one.id) for one in source]
        order = rng.permutation(len(scenes))
        after = dict(zip(order, np.roll(order, 1), strict=True))
        for number, (image, mask, scene_id) in enumerate(scenes):
            cases = {"right": mask, **rough(mask), **wrong(mask, scenes[after[number]][1])}
            if number < GRABBED:
                cases["GrabCut from a box"] = grabbed(image, mask)
            if spec.startswith("oxford-pet:"):
                trimap = read_picture(source.entry(scene_id).mask)[..., 0]
                parts = {"trimap without its border": trimap == PET, "trimap with its border": trimap != BACKGROUND}
                cases |= {name: small(part.astype(np.float32)) > 0.5 for name, part in parts.items()}
            for name, case in cases.items():
                start = time.process_time()
                warnings[name].append(mask_warnings(case.astype(np.float32), image))
                seconds, count = seconds + time.process_time() - start, count + 1
    print(f"{1000 * seconds / count:.1f} ms per mask")
    print("| masks | scenes |", " | ".join(f"sets of {size}" for size in SETS), "|")
    for name, found in warnings.items():
        doubted = []
        for size in SETS:
            drawn = (rng.choice(len(found), size, replace=len(found) < size) for _ in range(DRAWS))
            doubted.append(
                np.mean([doubted_masks({str(k): found[one] for k, one in enumerate(d)}) is not None for d in drawn])
            )
        rates = [np.mean([len(one) > 0 for one in found]), *doubted]
        print(f"| {name} ({len(found)}) |", " | ".join(f"{100 * rate:.1f} %" for rate in rates), "|", flush=True)


if __name__ == "__main__":
    main()
