"""Every reader of files from outside: valid files to start from, and the reader as a function of the file's bytes.

python tests/fuzz/fuzz_readers.py --inputs 1000000        (`make fuzz`); prints the inputs, the time and the escapes
"""

from __future__ import annotations

import argparse
import atexit
import base64
import functools
import io
import json
import os
import pickle
import random
import shutil
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

sys.path.insert(0, str(Path(__file__).parent))
from mutations import HOSTILE, damaged, damaged_json

from unfazed.errors import UserError

FOUND = Path(__file__).parent / "found"  # <reader>-….bin: inputs that once escaped


@dataclass(frozen=True)
class Reader:
    """files: valid inputs; read: raises UserError or returns; mutate: makes a hostile input from one of `files` or of
    `hostile`, inputs that are refused."""

    files: list[bytes]
    read: Callable[[bytes], object]
    mutate: Callable[[bytes, random.Random], bytes] = damaged
    hostile: tuple[bytes, ...] = ()


@functools.cache
def folder() -> Path:
    """A folder in memory, of this process alone."""
    memory = Path("/dev/shm")
    made = tempfile.mkdtemp(prefix="unfazed-fuzz-", dir=memory if memory.is_dir() else None)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def placed(name: str, data: bytes) -> Path:
    path = folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _png(high: int = 6, wide: int = 8) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.full((high, wide), 255, np.uint8)).save(file, "PNG")
    return file.getvalue()


def _as_parquet(columns: dict[str, Any], **options: Any) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table(columns), file, **options)
    return file.getvalue()


def _other_columns(data: bytes, draw: random.Random) -> bytes:
    """The table with a column gone, renamed, of another type or with hostile values; or damaged bytes."""
    if draw.random() < 0.5:
        return damaged(data, draw)
    table = parquet.read_table(io.BytesIO(data))
    place = draw.randrange(table.num_columns)
    name, kind = table.column_names[place], draw.random()
    if kind < 0.2:
        table = table.drop_columns(name)
    elif kind < 0.3:
        table = table.rename_columns(
            [
                str(draw.choice(HOSTILE)).encode("utf-8", "replace").decode() if one == name else one
                for one in table.column_names
            ]
        )
    else:
        values: list[Any] = table[name].to_pylist()
        hostile = draw.choice(
            [
                one
                for one in HOSTILE
                if not isinstance(one, (dict, int)) or abs(one if isinstance(one, int) else 0) < 2**63
            ]
        )
        values = [hostile if draw.random() < 0.7 else None for _ in values]
        if hostile == "\ud800" or isinstance(hostile, (list, dict)):
            values = [b"\xff\xfe" for _ in values]
        table = table.set_column(place, name, pa.array(values))
    file = io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()


def _predictions() -> Reader:
    from unfazed.predictions.frames import common_predictions, in_memory
    from unfazed.predictions.storage import SCHEMA

    rows = 4
    columns: dict[str, Any] = {
        "model": ["m"] * rows,
        "sample_id": [f"s/{edit}/0" for edit in ("original", "size-0.1") for _ in range(2)],
        "source_id": ["a", "b"] * 2,
        "file_name": ["a.jpg", "b.jpg"] * 2,
        "edit": ["original", "original", "size-0.1", "size-0.1"],
        "run": [0] * rows,
        "label": [1, None, 1, None],
        "predicted": [1, 2, 3, 4],
        "probability": [0.5] * rows,
        "true_probability": [0.5] * rows,
        "correct": [True, None, False, None],
        "rank": [0] * rows,
        "top5": [[1, 2]] * rows,
        "top5_probabilities": [[0.5, 0.1]] * rows,
        "energy": [1.0] * rows,
        "object_survives": [1.0] * rows,
        "picture": ["p"] * rows,
    }
    columns |= {name: [None] * rows for name in SCHEMA.names if name not in columns}
    table = pa.Table.from_pydict(columns, schema=SCHEMA)
    file = io.BytesIO()
    parquet.write_table(table, file, compression="zstd")

    def read(data: bytes) -> None:
        path = placed("predictions/m.parquet", data)
        common_predictions(path.parent)
        in_memory(path.parent, list(columns))

    return Reader([file.getvalue(), _as_parquet(columns)], read, _other_columns)


def _manifest() -> Reader:
    from unfazed.benchmark.folder import Benchmark
    from unfazed.benchmark.rows import Row, read_manifest, record, row_of, schema
    from unfazed.predictions.facts import Facts, _with_manifest
    from unfazed.predictions.frames import polars_table

    rows = [Row("dog", edit, path=f"images/{edit}/dog.png", label=1, notes=["n"]) for edit in ("original", "size-0.1")]
    file = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist([record(row) for row in rows], schema=schema()), file)
    placed("benchmark/benchmark.json", b'{"labels": {"name": "imagenet-1k"}}')

    def read(data: bytes) -> Facts:
        root = placed("benchmark/manifest.parquet", data).parent
        facts = _with_manifest(polars_table(read_manifest(root, (), outside=True)), {}, frozenset(), {})
        assert isinstance(facts.descriptions, dict)
        for row in Benchmark(root).manifest.to_pylist():
            row_of(row)
        return facts

    return Reader([file.getvalue()], read, _other_columns)


def _sidecar() -> Reader:
    from unfazed.models.deployed import read_sidecar
    from unfazed.specs import Spec

    transform = {
        "resize": 256,
        "crop": 224,
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
        "interpolation": "bicubic",
    }
    whole = {"transform": transform, "labels": ["cat", "dog"], "label_offset": 1, "layout": "NCHW", "output": "y"}
    named = {"transform": transform, "labels": {"name": "own", "classes": ["cat", "dog"]}}

    def read(data: bytes) -> None:
        path = placed("model.onnx.json", data).with_suffix("")
        transform, *_ = read_sidecar(path, Spec.parse(f"onnx:{path}"))
        assert transform.geometry.window(300, 400)

    return Reader([json.dumps(one).encode() for one in (whole, named)], read, damaged_json)


def _rows() -> Reader:
    from dataclasses import asdict

    from unfazed.benchmark.rows import Row, read_rows, record

    row = asdict(Row("dog", "size-0.1", parameters={"chain": [{"edit": "size", "rate": 0.1}]}, path="images/a.png"))

    def read(data: bytes) -> None:
        root = placed("benchmark/rows/dog.json", data).parent.parent
        for one in read_rows(root, "dog"):
            record(one)

    return Reader([json.dumps({"source_id": "dog", "rows": [row, row]}).encode()], read, damaged_json)


def _labels() -> Reader:
    from unfazed.models.options import read_labels
    from unfazed.sources.labeled import label_space, name_remarks, read_table

    def read(data: bytes) -> None:
        kind = data[:1]
        if kind == b"J":
            read_labels(str(placed("labels.json", data[1:])))
            return
        rows = read_table(placed("labels.csv" if kind == b"C" else "labels.txt", data[1:]))
        name_remarks(label_space(row.label for row in rows))

    def mutate(data: bytes, draw: random.Random) -> bytes:
        change = damaged_json if data[:1] == b"J" else damaged
        return data[:1] + change(data[1:], draw)

    files = [b"Cfile,label,mask\na.jpg,cat,m.png\nb.jpg,207,\n", b"Ta.jpg\tn02510455\nb.jpg 12\n", b'J["cat", "dog"]']
    return Reader([*files, b'J{"name": "own", "classes": ["cat", "dog"]}'], read, mutate)


def _edit_records() -> Reader:
    from unfazed.benchmark.photograph import Request, chain_of, read_record
    from unfazed.sources.pictures import read_mask

    requests = [
        Request(chain_of({"size": "0.1", "background": "random"}), renderer="paste"),
        Request(chain_of({"background": "adversarial"}), guide="lite:0", steps=5, label=3),
    ]
    files = []
    for request in requests:
        record = {"request": request.to_json(), "id": "dog", "image": {"path": "dog.jpg", "sha256": "0"}, "files": {}}
        record |= {"mask_png": base64.b64encode(_png()).decode(), "rendered_by": {}, "versions": {}, "notes": ["n"]}
        files.append(json.dumps({**record, "picture_sha256": "0"}).encode())

    def read(data: bytes) -> None:
        read_mask(read_record(placed("record.json", data))[2])

    return Reader(files, read, damaged_json)


def _coco() -> Reader:
    from PIL import Image

    from unfazed.sources import open_source

    picture = placed("coco/a.jpg", b"")
    Image.fromarray(np.zeros((6, 8, 3), np.uint8)).save(picture)
    content = {
        "images": [{"id": 1, "file_name": "a.jpg", "height": 6, "width": 8}],
        "categories": [{"id": 3, "name": "dog"}],
        "annotations": [
            {"id": 5, "image_id": 1, "category_id": 3, "area": 4, "iscrowd": 0, "segmentation": [[1, 1, 6, 1, 6, 4]]},
            {"id": 6, "image_id": 1, "category_id": 3, "segmentation": {"size": [6, 8], "counts": [10, 20, 18]}},
            {"id": 7, "image_id": 1, "category_id": 3, "segmentation": {"size": [6, 8], "counts": "Z1d0"}},
        ],
    }

    def read(data: bytes) -> None:
        source = open_source(f"coco:{placed('coco/annotations.json', data)}?objects=all")
        for scene_id in source.ids:
            try:
                source[scene_id]
            except UserError:
                continue

    return Reader([json.dumps(content).encode()], read, damaged_json)


def _arrays() -> Reader:
    from unfazed.sources.arrays import parse_array

    files = []
    for array in (np.zeros((2, 18)), np.ones(18, bool), np.asfortranarray(np.ones((2, 18), ">i4"))):
        file = io.BytesIO()
        np.save(file, array)
        files.append(file.getvalue())
    return Reader(files, lambda data: parse_array(data, "labels.npy"))


def _benchmark_card() -> Reader:
    from unfazed.benchmark.card import decisive, differences, read_card
    from unfazed.labels import LabelSpace
    from unfazed.predictions.facts import _classes, _is_official, _listed
    from unfazed.predictions.inputs import guides_of

    recipe = {"name": "r", "edits": [{"name": "size-0.1", "parameters": {"chain": [{"edit": "size"}], "folder": "x"}}]}
    card = {"kind": "build", "source": {"spec": "sample", "scenes": 3}, "recipe": recipe, "frame": "centre", "runs": 1}
    card |= {"labels": {"name": "own", "classes": ["cat", "dog"]}, "removal": {"spec": "opencv", "name": "opencv-1"}}
    card |= {"renderer": {"guide": {"name": "lite:0"}}, "grown": [{"runs": 1}], "seed": 0, "size": 256}

    def read(data: bytes) -> None:
        found = read_card(placed("card/benchmark.json", data).parent)
        LabelSpace.from_json(found["labels"])
        guides_of(found)
        differences(decisive(found), decisive(card))
        _listed(found), _is_official(found), _classes({}, found)

    return Reader([json.dumps(card).encode()], read, damaged_json)


def _model_cards() -> Reader:
    from unfazed.predictions.facts import _benchmarks, _classes
    from unfazed.predictions.frames import read_cards
    from unfazed.predictions.identity import identity_differences, identity_in

    identity = {"sha256": "0", "settings": {"seed": 1}, "labels": "x", "edits": {"size-0.1": "y"}}
    identity |= {"photographs": {"count": 1, "sha256": "z"}, "pictures": {"count": 2, "sha256": "z"}}
    card = {"model": "m", "spec": "lite:0", "weights_sha256": "0", "labels": {"name": "own", "classes": ["cat"]}}
    card |= {"benchmark": {"path": "bench", "identity": identity}, "white_box": False, "fingerprint": "f", "rows": 1}
    card |= {"originals": {"n": 1, "accuracy": 0.5}, "transform": {"crop": 224}, "versions": {"torch": "2"}}
    placed("cards/m.parquet", _as_parquet({"model": ["m"]}))

    def read(data: bytes) -> None:
        found = read_cards(placed("cards/m.json", data).parent)
        _benchmarks(found, None), _classes(found)
        for one in found.values():
            identity_differences(identity_in(one), identity, ("there", "now"))

    return Reader([json.dumps(card).encode()], read, damaged_json)


def _checkpoints() -> Reader:
    import torch
    from safetensors.torch import save

    from unfazed.models.weights import load_foreign, read_state

    module = torch.nn.Linear(3, 2)
    state = module.state_dict()
    files = [b"S" + save(state)]
    for content in (state, {"state_dict": {f"module.{name}": one for name, one in state.items()}, "epoch": 3}):
        for modern in (True, False):
            file = io.BytesIO()
            torch.save(content, file, _use_new_zipfile_serialization=modern)
            files.append(b"P" + file.getvalue())

    def read(data: bytes) -> None:
        path = placed("weights.safetensors" if data[:1] == b"S" else "weights.pt", data[1:])
        load_foreign(module, read_state(path), str(path))

    return Reader(files, read, lambda data, draw: data[:1] + damaged(data[1:], draw))


def _tars() -> Reader:
    from unfazed.benchmark.official import open_release

    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, data in (("005/a.png", _png()), ("005/a.json", b'{"label": 3}'), ("labels.txt", b"a.png 7\n")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    negative = tarfile.TarInfo("005/b.png")
    header = bytearray(negative.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 10 + (-1024 & 0xFFFF).to_bytes(2, "big")  # base 256: a size of -1024
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)

    def read(data: bytes) -> None:
        with open_release(placed("shard.tar", data)) as release:
            for piece in release.pieces:
                piece.read()

    def mutate(data: bytes, draw: random.Random) -> bytes:
        """Damaged bytes, in half of the cases with a right checksum of the damaged header."""
        changed = bytearray(damaged(data, draw))
        start = 512 * draw.randrange(max(1, len(changed) // 512))
        if draw.random() < 0.5 and len(changed) >= start + 512:
            changed[start + draw.randrange(100, 345)] = draw.randrange(256)
            changed[start + 148 : start + 156] = b" " * 8
            changed[start + 148 : start + 156] = b"%06o\0 " % (sum(changed[start : start + 512]) & 0o777777)
        return bytes(changed)

    return Reader([file.getvalue()], read, mutate, (bytes(header) + file.getvalue(),))


def _pickles() -> Reader:
    from unfazed.sources.pickles import parse_pickle

    content = {"wings": base64.b64encode(_png()), "text": "x", "numbers": [1, 2.5, None, ("a", True)], "empty": b""}
    return Reader([pickle.dumps(content, protocol) for protocol in range(6)], lambda data: parse_pickle(data, "a.pkl"))


def _recipes() -> Reader:
    from unfazed.edits.recipes import open_recipe

    text = 'name = "r"\nedits = ["size=0.02:0.5:4", "size=0.05,0.1 x direction=-20,20"]\n'
    text += '[[item]]\nname = "a"\nchain = [{edit = "size", rate = 0.05}, {edit = "position", x = 1, y = 0}]\n'
    return Reader([text.encode()], lambda data: open_recipe(str(placed("recipe.toml", data))))


READERS: dict[str, Callable[[], Reader]] = {
    "predictions": _predictions,
    "manifest": _manifest,
    "sidecar": _sidecar,
    "rows": _rows,
    "labels": _labels,
    "edit-records": _edit_records,
    "coco": _coco,
    "arrays": _arrays,
    "benchmark-card": _benchmark_card,
    "model-cards": _model_cards,
    "checkpoints": _checkpoints,
    "tars": _tars,
    "pickles": _pickles,
    "recipes": _recipes,
}


def known(name: str) -> list[bytes]:
    """The inputs that escaped from this reader before."""
    return [path.read_bytes() for path in sorted(FOUND.glob(f"{name}-*.bin"))]


def fuzz(name: str, inputs: int, seed: int = 0) -> list[tuple[bytes, BaseException]]:
    """The inputs, of so many, for which the reader raised something else than UserError; at most ten."""
    warnings.simplefilter("ignore")
    reader, draw = READERS[name](), random.Random(f"{name}/{seed}")
    escapes: list[tuple[bytes, BaseException]] = []
    for data in reader.files:
        reader.read(data)
    for _ in range(inputs):
        data = reader.mutate(draw.choice([*reader.files, *reader.hostile]), draw)
        try:
            reader.read(data)
        except UserError:
            pass
        except Exception as error:
            escapes.append((data, error))
            if len(escapes) == 10:
                break
    return escapes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="inputs for each reader")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop each reader after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the inputs that escape")
    parser.add_argument("readers", nargs="*", help=f"of {', '.join(READERS)}")
    given = parser.parse_args()
    total = escaped = 0
    for name in given.readers or READERS:
        begun, done = time.monotonic(), 0
        while done < given.inputs and time.monotonic() - begun < given.seconds:
            piece = min(2000, given.inputs - done)
            for data, error in fuzz(name, piece, given.seed + done):
                escaped += 1
                print(f"{name}: {type(error).__name__}: {str(error)[:200]}")
                if given.keep is not None:
                    given.keep.mkdir(parents=True, exist_ok=True)
                    (given.keep / f"{name}-{escaped}.bin").write_bytes(data)
            done += piece
        total += done
        print(f"{name}: {done:,} inputs in {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{total:,} inputs, {escaped} escapes")
    sys.exit(escaped > 0)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
