"""Files that are made to run code, to crash the process, or to take all memory or time; and who opens them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

# What Python's own unpickler makes of each: gigabytes for the memo, a hash that takes 2**60 steps, a stack overflow.
BOMBS = {
    "a large memo": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "a key that is nested twice over": b"(" + b"".join(b"2\x86" for _ in range(100)) + b"}N\x85s.",
    "tuples in tuples as a key": b"\x80\x02})" + b"".join(b"q%cq\x00h\x00\x86" % n for n in range(60)) + b"Ns.",
    "a deep key": b"\x80\x02}" + b")" + b"\x85" * 50_000 + b"Ns.",
    "deep lists": b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b".",
    "a container in itself": b"\x80\x02]q\x00h\x00a.",
    "a number of a million digits": b"I" + b"9" * 1_000_000 + b"\n.",
    "a string of four gigabytes": b"\x80\x02X\xff\xff\xff\xffabc.",
    "a million operations": b"\x80\x02]" + b"Na" * 500_000 + b".",
    "a text that is written a thousand times": b"\x80\x02c_codecs\nencode\nq\x00X\x40\x42\x0f\x00"
    + b"a" * 1_000_000
    + b"q\x01X\x06\x00\x00\x00latin1q\x02]("
    + b"h\x00h\x01h\x02\x86R" * 900
    + b"e.",
}
# A picture of 640 x 480: run lengths whose sum is right in 64 bits and writes outside the mask, a mask of 53 GiB,
# polygons that take minutes, and compressed run lengths that took quadratic time.
SEGMENTATIONS: dict[str, Any] = {
    "run lengths that wrap": {"size": [480, 640], "counts": [2**62] * 3 + [2**62 + 640 * 480]},
    "a mask of 53 GiB": {"size": [240_000, 240_000], "counts": [240_000**2]},
    "a polygon with NaN": [[float("nan"), 1, 6, 1, 6, 4]],
    "a polygon of 1e300": [[1e300, 1, 6, 1e300, -1e300, 4]],
    "a thousand polygons that cover the picture": [[0, 0, 640, 0, 640, 480, 0, 480]] * 1000,
    "a polygon that crosses itself in every row": [[0, 0, 640, 480] * 50_000],
    "compressed run lengths without end": {"size": [480, 640], "counts": "o" * 2_000_000},
}


@dataclass(frozen=True)
class Case:
    """arguments: of `unswayed`; reason: a part of what it must print; mark: a file that exists only if code ran."""

    arguments: list[str]
    reason: str
    mark: Path


def cases() -> dict[str, Callable[[Path], Case]]:
    """Every case by name: a function that writes its files into an empty folder."""
    found: dict[str, Callable[[Path], Case]] = {
        "report PREDICTIONS: model python:": report_with_code,
        "evaluate -m head:FOLDER: base python:": head_with_code,
        "edit --replay RECORD: guide python:": record_with_code,
        "report PREDICTIONS: a text in a million rows": repeated_text,
    }
    for name in SEGMENTATIONS:
        found[f"build coco: {name}"] = lambda folder, name=name: coco(folder, SEGMENTATIONS[name])  # type: ignore[misc]
    for name in BOMBS:
        found[f"build rival10: {name}"] = lambda folder, name=name: rival10(folder, BOMBS[name])  # type: ignore[misc]
    return found


def payload(folder: Path) -> tuple[str, Path]:
    """The name of a model whose code leaves a mark when it runs, and the mark."""
    mark = folder / "the-code-ran"
    (folder / "payload.py").write_text(f"open({str(mark)!r}, 'w')\ndef model():\n    raise ValueError('it ran')\n")
    return f"python:{folder / 'payload.py'}:model", mark


def report_with_code(folder: Path) -> Case:
    from report_world import make_benchmark, make_predictions

    name, mark = payload(folder)
    bench = make_benchmark(folder / "bench", 12, ["a", "b"], side=16)
    predictions = make_predictions(folder / "predictions", bench, [name], ["a", "b"])
    return Case(["report", str(predictions), "-o", str(folder / "r.html")], "is a program", mark)


def head_with_code(folder: Path) -> Case:
    name, mark = payload(folder)
    (folder / "head.json").write_text(json.dumps({"base": name, "base_weights_sha256": "0", "labels": {}}))
    arguments = ["evaluate", "sample", "-m", f"head:{folder}", "-o", str(folder / "predictions")]
    return Case(arguments, "can run code", mark)


def record_with_code(folder: Path) -> Case:
    import base64

    from unswayed.rendering.photograph import Request, chain_of

    name, mark = payload(folder)
    photograph = str(resources.files("unswayed.data").joinpath("sample", "dog.jpg"))
    request = Request(chain_of({"background": "adversarial"}), guide=name, label=207)
    record = {"request": request.to_json(), "id": "dog", "notes": []}
    record |= {"image": {"path": photograph, "sha256": "0"}, "files": {}, "picture_sha256": "0"}
    record |= {"mask_png": base64.b64encode(_png(8, 6)).decode(), "rendered_by": {}, "versions": {}}
    (folder / "record.json").write_text(json.dumps(record))
    arguments = ["edit", "--replay", str(folder / "record.json"), "-o", str(folder / "again.png")]
    return Case(arguments, "can run code", mark)


def repeated_text(folder: Path) -> Case:
    """A Parquet file of 100 kB whose table takes a gigabyte: one text of a thousand letters in a million rows."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    everywhere = pa.array(np.zeros(10**6, np.int32))
    texts = {"model": "x" * 1000, "sample_id": "a/original/0", "source_id": "a", "edit": "original"}
    columns: dict[str, Any] = {name: pa.DictionaryArray.from_arrays(everywhere, [one]) for name, one in texts.items()}
    columns |= dict.fromkeys(("run", "label", "predicted"), everywhere)
    columns |= {"probability": everywhere.cast("float"), "correct": everywhere.cast("bool")}
    parquet.write_table(pa.table(columns), folder / "predictions.parquet", store_schema=False)
    arguments = ["report", str(folder / "predictions.parquet"), "-o", str(folder / "r.html")]
    return Case(arguments, "holds a table of", folder / "no-code")


def coco(folder: Path, segmentation: Any) -> Case:
    (folder / "a.png").write_bytes(_png(640, 480))
    annotation = {"id": 1, "image_id": 1, "category_id": 1, "iscrowd": 0, "segmentation": segmentation}
    content = {
        "images": [{"id": 1, "file_name": "a.png", "height": 480, "width": 640}],
        "categories": [{"id": 1, "name": "dog"}],
        "annotations": [annotation],
    }
    (folder / "annotations.json").write_text(json.dumps(content))
    return _build(f"coco:{folder / 'annotations.json'}", folder)


def rival10(folder: Path, pickled: bytes) -> Case:
    pictures = folder / "RIVAL10" / "test" / "ordinary"
    pictures.mkdir(parents=True)
    (pictures / "n01531178_12.JPEG").write_bytes(_png(224, 224, "JPEG"))
    (pictures / "n01531178_12_attr_dict.pkl").write_bytes(pickled)
    np.save(pictures / "n01531178_12_attr_labels.npy", np.zeros((2, 18)))
    return _build(f"rival10:{folder / 'RIVAL10'}", folder)


def _build(source: str, folder: Path) -> Case:
    return Case(["build", source, "-o", str(folder / "bench")], "no scene of", folder / "no-code")


def _png(wide: int, high: int, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((high, wide, 3), 200, np.uint8)).save(file, kind)
    return file.getvalue()
