"""Decode a picture once for all models, into one 8-bit crop for each distinct geometry.

On a CPU, the thread that classifies a batch decodes it first. With a GPU, threads decode the next batches in advance,
each with the help of a process.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from unswayed.errors import BadPicture, TooLarge
from unswayed.jobs.scheduling import counting_waits
from unswayed.models.transforms import Geometry, cropped
from unswayed.sources.pictures import LARGE, MOST_PIXELS, read_mask, read_picture

from .model_cards import REPEAT, Picture

if TYPE_CHECKING:
    from unswayed.models.opening import Model

    from .judging import Truth
    from .picture_readers import Answer, PictureReader

AHEAD = 2  # batches that threads decode in advance
MOST_THREADS = 16
_ALONE = threading.Lock()  # held while a large picture is read


@dataclass(frozen=True, eq=False)
class Batch:
    """A decoded batch.

    index: its place in the plan; kept: positions of the readable ones among its rows; crops: for each geometry,
    (n, crop, crop, 3) uint8; survives: for each geometry, (n,) share of the object inside the crop, NaN without a
    mask; unreadable: sample_id and reason of the others. prepared: for each model that answers about whole pictures,
    what it has made of them; truths: what is known about them, if there is such a model.
    """

    index: int
    kept: np.ndarray
    crops: tuple[torch.Tensor, ...]
    survives: tuple[np.ndarray, ...]
    unreadable: tuple[tuple[str, str], ...]
    prepared: tuple[list[Any], ...] = ()
    truths: list[Truth | None] = field(default_factory=list)


class Decoder:
    """Decodes the batches of the plan: `plan[i]` are the rows of batch i.

    threads: how many decode in advance; with 0, each batch is decoded when it is requested. skipped: pictures that are
    not read, with the reason; before: called with each picture before it is read. asked: models that prepare whole
    pictures themselves.
    """

    def __init__(
        self,
        rows: Sequence[Picture],
        plan: Sequence[Sequence[int]],
        geometries: Sequence[Geometry],
        threads: int,
        skipped: Mapping[str, str] = MappingProxyType({}),
        before: Callable[[str, str], None] | None = None,
        asked: Sequence[Model] = (),
    ):
        self.rows, self.plan, self.geometries, self.threads = rows, plan, tuple(geometries), threads
        self.skipped, self.before, self.asked = dict(skipped), before, asked

    def batch(self, index: int) -> Batch:
        """Return one batch, decoded in this thread."""
        room = self._room(index)
        return self._filled(room, [self._decode(room, position) for position in range(len(self.plan[index]))])

    def batches(self, indices: Sequence[int]) -> Iterator[Batch]:
        """Yield the batches with these indices, in order."""
        return counting_waits(self._in_advance(indices)) if self.threads else map(self.batch, indices)

    def _in_advance(self, indices: Sequence[int]) -> Iterator[Batch]:
        from .picture_readers import PIECE, picture_readers

        waiting: deque[tuple[Batch, list[Future[list[tuple[str, str] | None]]]]] = deque()
        with (
            picture_readers(self.threads, () if self.asked or self.before else self.geometries) as free,
            ThreadPoolExecutor(self.threads, thread_name_prefix="decode") as pool,
        ):
            try:
                for index in indices:
                    room = self._room(index, pinned=torch.cuda.is_available())
                    positions = range(len(self.plan[index]))
                    pieces = [positions[start : start + PIECE] for start in positions[::PIECE]]
                    waiting.append((room, [pool.submit(self._decode_piece, room, piece, free) for piece in pieces]))
                    if len(waiting) > AHEAD:
                        yield self._arrived(*waiting.popleft())
                for room, decoded in waiting:
                    yield self._arrived(room, decoded)
            finally:
                pool.shutdown(cancel_futures=True)

    def _arrived(self, room: Batch, decoded: Sequence[Future[list[tuple[str, str] | None]]]) -> Batch:
        return self._filled(room, [reason for future in decoded for reason in future.result()])

    def _decode_piece(
        self, room: Batch, positions: range, free: queue.SimpleQueue[PictureReader | None]
    ) -> list[tuple[str, str] | None]:
        """What became of each picture of a piece; what a reader could not read is read here, for the reason."""
        rows = [self.rows[self.plan[room.index][position]] for position in positions]
        reader = free.get()
        answers: Answer = [None] * len(rows)
        try:
            if reader is not None and not any(row.sample_id in self.skipped for row in rows):
                answers = reader.read(tuple((row.path, row.mask) for row in rows)) or answers
            for index, (position, shares) in enumerate(zip(positions, answers, strict=True)):
                if reader is not None and shares is not None:
                    for number, crops in enumerate(reader.rooms):
                        room.crops[number].numpy()[position] = crops[index]
                        room.survives[number][position] = shares[number]
        finally:
            free.put(reader)
        return [
            None if shares is not None else self._decode(room, position)
            for position, shares in zip(positions, answers, strict=True)
        ]

    def _room(self, index: int, pinned: bool = False) -> Batch:
        """A batch to be filled, in pinned memory for a GPU."""
        count = len(self.plan[index])
        shapes = [(count, geometry.crop, geometry.crop, 3) for geometry in self.geometries]
        crops = tuple(torch.empty(shape, dtype=torch.uint8, pin_memory=pinned) for shape in shapes)
        survives = tuple(np.empty(count, np.float32) for _ in shapes)
        prepared = tuple([None] * count for _ in self.asked)
        return Batch(index, np.arange(count), crops, survives, (), prepared, [None] * count)

    def _decode(self, room: Batch, position: int) -> tuple[str, str] | None:
        """Write one picture into its place; its sample_id and the reason if it cannot be read."""
        picture = self.rows[self.plan[room.index][position]]
        if picture.sample_id in self.skipped:
            return picture.sample_id, self.skipped[picture.sample_id]
        if self.before is not None:
            self.before("picture", picture.sample_id)
        try:
            try:
                self._put(room, position, picture, LARGE)
            except TooLarge:
                with _ALONE:
                    self._put(room, position, picture, MOST_PIXELS)
        except BadPicture as error:
            return picture.sample_id, str(error)
        return None

    def _put(self, room: Batch, position: int, picture: Picture, most: int) -> None:
        """Put what the models see of a picture into its place; raise BadPicture if it cannot be read."""
        image = read_picture(picture.path, most)
        mask = None if picture.mask is None else read_mask(picture.mask)
        crops, survives = cropped(image, mask, self.geometries)
        for number, crop in enumerate(crops):
            room.crops[number].numpy()[position] = crop
            room.survives[number][position] = survives[number]
        if not self.asked:
            return
        from unswayed.models.questions import Shown

        from .judging import Truth

        room.truths[position] = Truth.read(picture.label, mask, picture.objects, picture.sample_id)
        for model, prepared in zip(self.asked, room.prepared, strict=True):
            shown = prepared[position] = model.prepare(image)
            if picture.edit == REPEAT and isinstance(shown, Shown):  # a stored answer is not taken for a new one
                prepared[position] = replace(shown, repeat=picture.run + 1)

    def _filled(self, room: Batch, reasons: Sequence[tuple[str, str] | None]) -> Batch:
        """The batch without its unreadable pictures."""
        unreadable = tuple(reason for reason in reasons if reason is not None)
        if not unreadable:
            return room
        kept = np.array([position for position, reason in enumerate(reasons) if reason is None], np.int64)
        crops = tuple(crop[torch.from_numpy(kept)] for crop in room.crops)
        prepared = tuple([inputs[number] for number in kept] for inputs in room.prepared)
        truths = [room.truths[number] for number in kept]
        shown = tuple(shares[kept] for shares in room.survives)
        return Batch(room.index, kept, crops, shown, unreadable, prepared, truths)


def thread_count(device: str, asked: int | None, share: int = 1) -> int:
    """Return the number of decoding threads: 0 for a CPU, one per core (16 at most) for a GPU.

    share: how many processes share the cores.
    """
    if asked is not None or torch.device(device).type == "cpu":
        return max(0, asked or 0)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores // share, MOST_THREADS))
