"""The readers of data sets and weights: COCO, VOC, Oxford-IIIT Pet, arrays, checkpoints, archives and pickles."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import pickle
import random
import tarfile

import numpy as np
from fuzzing import Reader, placed, small_png
from mutations import damaged, damaged_json
from PIL import Image

from unswayed.errors import UserError


def coco() -> Reader:
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
        _open_scenes(f"coco:{placed('coco/annotations.json', data)}?objects=all")

    return Reader([json.dumps(content).encode()], read, damaged_json)


def data_set(kind: str, files: dict[str, bytes]) -> Reader:
    """The reader of a data set in a folder, one file of which is damaged: the first byte of an input is its number."""

    def read(data: bytes) -> None:
        for number, (place, content) in enumerate(files.items()):
            root = placed(f"{kind}/{place}", data[1:] if number == data[0] else content)
        _open_scenes(f"{kind}:{str(root).removesuffix(place)}")

    inputs = [bytes([number]) + content for number, content in enumerate(files.values())]
    return Reader(inputs, read, lambda data, draw: data[:1] + damaged(data[1:], draw))


def voc() -> Reader:
    dog = "<name>dog</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>7</xmax><ymax>5</ymax></bndbox>"
    objects = Image.fromarray(np.ones((6, 8), np.uint8))
    return data_set(
        "voc",
        {
            "Annotations/a.xml": f"<annotation><object>{dog}</object></annotation>".encode(),
            "SegmentationObject/a.png": as_png(objects),
            "ImageSets/Segmentation/val.txt": b"a\n",
            "JPEGImages/a.jpg": small_png(),
        },
    )


def oxford_pet() -> Reader:
    trimap = Image.fromarray(np.repeat([[1], [3], [2]], 8, 1).astype(np.uint8))
    return data_set(
        "oxford-pet",
        {
            "annotations/test.txt": b"# list\npug_84 1 1 1\n",
            "annotations/trimaps/pug_84.png": as_png(trimap),
            "images/pug_84.jpg": small_png(3, 8),
        },
    )


def as_png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def _open_scenes(spec: str) -> None:
    """Open a source and each of its scenes, of which any may be refused."""
    from unswayed.sources import open_source

    source = open_source(spec)
    for scene_id in source.ids:
        with contextlib.suppress(UserError):
            source[scene_id]


def arrays() -> Reader:
    from unswayed.sources.pickles import parse_array

    files = []
    for array in (np.zeros((2, 18)), np.ones(18, bool), np.asfortranarray(np.ones((2, 18), ">i4"))):
        file = io.BytesIO()
        np.save(file, array)
        files.append(file.getvalue())
    return Reader(files, lambda data: parse_array(data, "labels.npy"))


def checkpoints() -> Reader:
    import torch
    from safetensors.torch import save

    from unswayed.models.weights import load_foreign, read_state

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
    from unswayed.benchmark.importing import open_release

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
    from unswayed.sources.pickles import parse_pickle

    content = {
        "wings": base64.b64encode(small_png()),
        "text": "x",
        "numbers": [1, 2.5, None, ("a", True)],
        "empty": b"",
    }
    return Reader([pickle.dumps(content, protocol) for protocol in range(6)], lambda data: parse_pickle(data, "a.pkl"))
