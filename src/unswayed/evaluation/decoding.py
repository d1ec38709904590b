"""Decode a picture once for all models, into one 8-bit crop for each distinct geometry.

On a CPU, the thread that classifies a batch decodes it first. With a GPU, worker processes decode in advance.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch

from unswayed.errors import BadPicture
from unswayed.jobs.scheduling import counting_waits
from unswayed.models.transforms import Geometry, cropped
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

    def batch(self, index: int, start: int = 0, count: int | None = None) -> Batch:
        """Return one batch, or the piece of it with `count` rows from `start` on, decoded in this thread."""
        rows = self.plan[index][start : None if count is None else start + count]
        kept: list[int] = []
        decoded: list[tuple[list[np.ndarray], list[float]]] = []
        unreadable: list[tuple[str, str]] = []
        for position, picture in enumerate([self.rows[row] for row in rows]):
            if picture.sample_id in self.skipped:
                unreadable.append((picture.sample_id, self.skipped[picture.sample_id]))
                continue
            if self.before is not None:
                self.before("picture", picture.sample_id)
            try:
                image = read_picture(picture.path)
                mask = None if picture.mask is None else read_mask(picture.mask)
                decoded.append(cropped(image, mask, self.geometries))
                kept.append(position)
            except BadPicture as error:
                unreadable.append((picture.sample_id, str(error)))
        crops, survives = [], []
        for number, geometry in enumerate(self.geometries):
            pixels = np.array([crop[number] for crop, _ in decoded], np.uint8)
            crops.append(torch.from_numpy(pixels.reshape(len(kept), geometry.crop, geometry.crop, 3)))
            survives.append(np.array([share[number] for _, share in decoded], np.float32))
        return Batch(index, np.array(kept, np.int64), tuple(crops), tuple(survives), tuple(unreadable))

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
            collate_fn=_unchanged,
        )
        arriving = counting_waits(loader)
        for index in indices:
            count = -(-len(self.plan[index]) // PIECE)
            yield _joined(index, list(itertools.islice(arriving, count)))


class _Pieces(torch.utils.data.Dataset):
    """A dataset whose items are parts of a batch, so that workers share each batch and the first one is ready soon."""

    def __init__(self, decoder: Decoder, pieces: Sequence[tuple[int, int]]) -> None:
        self.decoder, self.pieces = decoder, pieces

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, number: int) -> Batch:
        return self.decoder.batch(*self.pieces[number], PIECE)


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


def _unchanged(piece: object) -> object:
    return piece


def worker_count(device: str, asked: int | None, picture_bytes: int, share: int = 1) -> int:
    """Return the number of decoding processes: 0 for a CPU, one per core (16 at most) for a GPU with enough memory.

    share: how many such processes share the cores.
    """
    if asked is not None:
        return max(0, asked)
    if torch.device(device).type == "cpu":
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(cores // share, 16)
    try:
        shared = os.statvfs("/dev/shm")
        # Every worker keeps up to three pieces in shared memory; a container may have little of it.
        workers = min(workers, int(0.8 * shared.f_bavail * shared.f_frsize / (3 * PIECE * max(1, picture_bytes))))
    except OSError:
        pass
    return max(0, workers)
