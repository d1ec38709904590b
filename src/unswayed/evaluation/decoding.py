"""Decode a picture once for all models, into one 8-bit crop for each distinct geometry.

On a CPU, the thread that classifies a batch decodes it first. With a GPU, worker processes decode in advance.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from unswayed.errors import BadPicture
from unswayed.jobs.scheduling import counting_waits
from unswayed.models.transforms import Geometry
from unswayed.sources.pictures import read_mask, read_picture

from .model_cards import Picture

PIECE = 32  # pictures that a worker decodes at a time


@dataclass(frozen=True, eq=False)
class Batch:
    """A decoded batch.

    index: its place in the plan; kept: positions of the readable ones among its rows; crops: for each geometry,
    (n, crop, crop, 3) uint8; survives: for each geometry, (n,) share of the object inside the crop, NaN without a
    mask; unreadable: sample_id and reason of the others.
    """

    index: int
    kept: np.ndarray
    crops: tuple[torch.Tensor, ...]
    survives: tuple[np.ndarray, ...]
    unreadable: tuple[tuple[str, str], ...]


def decode(picture: Picture, geometries: Sequence[Geometry]) -> tuple[list[np.ndarray], list[float]] | str:
    """Return the picture's crops and the object's share in each, or the reason why it cannot be read."""
    try:
        image = read_picture(picture.path)
        crops = [geometry.apply(image) for geometry in geometries]
        if picture.mask is None:
            return crops, [float("nan")] * len(crops)
        mask = read_mask(picture.mask)
        return crops, [geometry.survives(mask) for geometry in geometries]
    except BadPicture as error:
        return str(error)


class Decoder:
    """Decodes the batches of the plan: `plan[i]` are the rows of batch i.

    workers: the number of processes that decode in advance; with 0, each batch is decoded when it is requested.
    skipped: pictures that are not read, with the reason; before: called with each picture before it is read.
    """

    def __init__(
        self,
        rows: Sequence[Picture],
        plan: Sequence[Sequence[int]],
        geometries: Sequence[Geometry],
        workers: int,
        skipped: Mapping[str, str] = MappingProxyType({}),
        before: Callable[[str, str], None] | None = None,
    ):
        self.rows, self.plan, self.geometries, self.workers = rows, plan, tuple(geometries), workers
        self.skipped, self.before = dict(skipped), before

    def batch(self, index: int) -> Batch:
        """Return one batch, decoded in this thread."""
        return self.pack(index, self.plan[index], [self.decode(row) for row in self.plan[index]])

    def decode(self, row: int) -> tuple[list[np.ndarray], list[float]] | str:
        """Return what `decode` does for a row, or the reason why it is skipped."""
        picture = self.rows[row]
        if picture.sample_id in self.skipped:
            return self.skipped[picture.sample_id]
        if self.before is not None:
            self.before("picture", picture.sample_id)
        return decode(picture, self.geometries)

    def batches(self, indices: Sequence[int]) -> Iterator[Batch]:
        """Yield the batches with these indices, in order."""
        if self.workers == 0 or sum(len(self.plan[index]) for index in indices) <= PIECE:
            yield from map(self.batch, indices)
            return
        pieces = [(index, start) for index in indices for start in range(0, len(self.plan[index]), PIECE)]
        loader = torch.utils.data.DataLoader(
            _Pieces(self, pieces),
            batch_size=None,
            num_workers=min(self.workers, len(pieces)),
            prefetch_factor=2,
            collate_fn=_as_it_is,
        )
        arriving = counting_waits(loader)
        for index in indices:
            count = -(-len(self.plan[index]) // PIECE)
            yield _joined(index, list(itertools.islice(arriving, count)))

    def pack(self, index: int, rows: Sequence[int], answers: Sequence[Any]) -> Batch:
        """Return the results of `decode` for these rows as one batch."""
        good = [place for place, answer in enumerate(answers) if not isinstance(answer, str)]
        crops, survives = [], []
        for number, geometry in enumerate(self.geometries):
            pixels = np.empty((len(good), geometry.crop, geometry.crop, 3), np.uint8)
            for place, source in enumerate(good):
                pixels[place] = answers[source][0][number]
            crops.append(torch.from_numpy(pixels))
            survives.append(np.array([answers[source][1][number] for source in good], np.float32))
        unreadable = tuple(
            (self.rows[row].sample_id, answer)
            for row, answer in zip(rows, answers, strict=True)
            if isinstance(answer, str)
        )
        return Batch(index, np.array(good, np.int64), tuple(crops), tuple(survives), unreadable)


class _Pieces(torch.utils.data.Dataset):
    """A dataset whose items are parts of a batch, so that workers share each batch and the first one is ready soon."""

    def __init__(self, decoder: Decoder, pieces: Sequence[tuple[int, int]]) -> None:
        self.decoder, self.pieces = decoder, pieces

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, number: int) -> Batch:
        index, start = self.pieces[number]
        rows = self.decoder.plan[index][start : start + PIECE]
        return self.decoder.pack(index, rows, [self.decoder.decode(row) for row in rows])


def _joined(index: int, pieces: Sequence[Batch]) -> Batch:
    """Return the batch of these pieces, in pinned memory if there is a GPU."""
    pinned = torch.cuda.is_available()
    crops = []
    for parts in zip(*(piece.crops for piece in pieces), strict=True):
        shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
        crops.append(torch.empty(shape, dtype=torch.uint8, pin_memory=pinned))
        # Not torch.cat: its threads would wait for cores that are busy decoding.
        np.concatenate([part.numpy() for part in parts], out=crops[-1].numpy())
    return Batch(
        index,
        np.concatenate([piece.kept + place * PIECE for place, piece in enumerate(pieces)]),
        tuple(crops),
        tuple(np.concatenate(shares) for shares in zip(*(piece.survives for piece in pieces), strict=True)),
        tuple(reason for piece in pieces for reason in piece.unreadable),
    )


def _as_it_is(item: Any) -> Any:
    return item


def worker_count(device: str, asked: int | None, picture_bytes: int, share: int = 1) -> int:
    """Return the number of decoding processes: 0 for a CPU, one per core (16 at most) for a GPU with enough memory.

    share: how many such processes share the cores.
    """
    if asked is not None:
        return max(0, asked)
    if torch.device(device).type == "cpu":
        return 0
    workers = min(_cores() // share, 16)
    try:
        shared = os.statvfs("/dev/shm")
        # Every worker keeps up to three pieces in shared memory; a container may have little of it.
        workers = min(workers, int(0.8 * shared.f_bavail * shared.f_frsize / (3 * PIECE * max(1, picture_bytes))))
    except OSError:
        pass
    return max(0, workers)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
