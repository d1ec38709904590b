"""The readers of data sets and weights: COCO, numpy arrays, checkpoints, archives and pickles."""

from __future__ import annotations

import base64
import io
import json
import pickle
import random
import tarfile

import numpy as np
from fuzzing import Reader, placed, small_png
from mutations import damaged, damaged_json

from unfazed.errors import UserError


def coco() -> Reader:
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


def arrays() -> Reader:
    from unfazed.sources.arrays import parse_array

    files = []
    for array in (np.zeros((2, 18)), np.ones(18, bool), np.asfortranarray(np.ones((2, 18), ">i4"))):
        file = io.BytesIO()
        np.save(file, array)
        files.append(file.getvalue())
    return Reader(files, lambda data: parse_array(data, "labels.npy"))


def checkpoints() -> Reader:
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


def tars() -> Reader:
    from unfazed.benchmark.official import open_release

    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, data in (("005/a.png", small_png()), ("005/a.json", b'{"label": 3}'), ("labels.txt", b"a.png 7\n")):
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


def pickles() -> Reader:
    from unfazed.sources.pickles import parse_pickle

    content = {
        "wings": base64.b64encode(small_png()),
        "text": "x",
        "numbers": [1, 2.5, None, ("a", True)],
        "empty": b"",
    }
    return Reader([pickle.dumps(content, protocol) for protocol in range(6)], lambda data: parse_pickle(data, "a.pkl"))
