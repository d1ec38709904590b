"""Whether detection rates are those of a plain evaluation of the same boxes by pycocotools.

    unswayed build 'coco:instances.json?objects=all&least=0.03' -o bench --renderer paste
    unswayed evaluate bench -m detector:yolox_nano.onnx -o predictions
    python benchmarks/detectors.py bench predictions [--edit original]

Prints one line for each detector: its rate in the predictions, its rate by COCO's evaluation of the stored boxes at IoU
0.5, and how many objects the two judge differently. The truth is read from the benchmark's masks and manifest alone.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from PIL import Image
from pycocotools import mask as run_lengths
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval


def objects_of(bench: Path, picture: dict[str, Any]) -> list[tuple[int, list[float]]]:
    """The class and the box (left, top, width, height) of the edited object, and of the others."""
    own = np.asfortranarray(np.asarray(Image.open(bench / picture["mask_path"])) > 127, dtype=np.uint8)
    others = json.loads(picture["objects"] or "[]")
    boxes = [(picture["label"], run_lengths.toBbox(run_lengths.encode(own)).tolist())]
    for other in others:
        left, top, right, bottom = other["box"]
        boxes.append((other["label"], [left, top, right - left, bottom - top]))
    return [(label, box) for label, box in boxes if label is not None]


def found_objects(bench: Path, pictures: list[dict[str, Any]], rows: dict[str, Any], least: float) -> list[bool]:
    """Whether COCO's evaluation gives each picture's edited object a box of its class with at least this score."""
    truths, answers, own = [], [], []
    for image, picture in enumerate(pictures, 1):
        own.append(len(truths) + 1)
        for label, box in objects_of(bench, picture):
            truths.append({"id": len(truths) + 1, "image_id": image, "category_id": label, "bbox": box,
                           "area": box[2] * box[3], "iscrowd": 0})  # fmt: skip
        row = rows[picture["sample_id"]]
        boxes = np.array(row["boxes"], float).reshape(-1, 4)
        for box, score, label in zip(boxes, row["box_scores"], row["box_classes"], strict=True):
            if score >= least:
                sides = [*box[:2], *(box[2:] - box[:2])]
                answers.append({"image_id": image, "category_id": label, "bbox": sides, "score": score})
    if not answers:
        return [False] * len(pictures)
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "images": [{"id": image} for image in range(1, len(pictures) + 1)],
            "annotations": truths,
            "categories": [{"id": label} for label in sorted({entry["category_id"] for entry in truths})],
        }
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(answers), "bbox")
        evaluation.params.iouThrs, evaluation.params.maxDets = np.array([0.5]), [100]
        evaluation.params.areaRng, evaluation.params.areaRngLbl = [[-1e10, 1e10]], ["all"]
        evaluation.evaluate()
    matched = set()
    for image in filter(None, evaluation.evalImgs):
        matched |= {int(number) for number, match in zip(image["gtIds"], image["gtMatches"][0], strict=True) if match}
    return [number in matched for number in own]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=Path)
    parser.add_argument("predictions", type=Path)
    parser.add_argument("--edit", default="original")
    options = parser.parse_args()
    manifest = pl.read_parquet(options.bench / "manifest.parquet").filter(edit=options.edit, status="ok")
    pictures = {picture["sample_id"]: picture for picture in manifest.to_dicts()}
    for file in sorted(options.predictions.glob("*.parquet")):
        table = pl.read_parquet(file)
        if table["task"][0] != "detect":
            continue
        card = json.loads(file.with_suffix(".json").read_text())
        rows = {row["sample_id"]: row for row in table.filter(edit=options.edit).to_dicts()}
        asked = [pictures[name] for name in rows]
        right = [row["correct"] for row in rows.values()]
        plain = found_objects(options.bench, asked, rows, card["transform"]["score"])
        differ = sum(one != two for one, two in zip(right, plain, strict=True))
        print(f"{card['model']}: {len(asked)} objects, detection rate {100 * np.mean(right):.1f} %, "
              f"by pycocotools {100 * np.mean(plain):.1f} %, {differ} judged differently")  # fmt: skip


if __name__ == "__main__":
    main()
