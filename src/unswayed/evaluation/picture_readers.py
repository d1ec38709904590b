"""Processes that read pictures for the threads of a GPU's evaluation.

A thread that decodes by itself waits for Python's lock most of the time: sixteen of them read 850 pictures a second,
sixteen processes several thousand. What a process reads lies in memory that both map.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import queue
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np

from unswayed.errors import BadPicture
from unswayed.jobs.processes import START, Processes, start_server
from unswayed.jobs.scheduling import Message
from unswayed.models.transforms import Geometry, cropped
from unswayed.sources.pictures import LARGE, read_mask, read_picture

PIECE = 8  # pictures that are read at a time
# For each picture of a piece its path and that of its mask, and what came of it: the share of the object that each crop
# shows, or None if it could not be read.
Piece = tuple[tuple[str, str | None], ...]
Answer = list[list[float] | None]


class PieceReader:
    """The function that the process calls with a piece: it writes the crops into the file `memory`."""

    imports = ("cv2",)

    def __init__(self, memory: str, geometries: Sequence[Geometry]) -> None:
        self.memory, self.geometries = memory, tuple(geometries)

    @cached_property
    def rooms(self) -> list[np.ndarray]:
        with open(self.memory, "r+b") as file:
            return _rooms(mmap.mmap(file.fileno(), 0), self.geometries)

    def __call__(self, piece: Piece) -> Answer:
        answers: Answer = []
        for index, (path, mask_path) in enumerate(piece):
            try:
                mask = None if mask_path is None else read_mask(mask_path)
                crops, survives = cropped(read_picture(path, LARGE), mask, self.geometries)
            except BadPicture:
                answers.append(None)
                continue
            for room, crop in zip(self.rooms, crops, strict=True):
                room[index] = crop
            answers.append(survives)
        return answers


def _rooms(memory: mmap.mmap, geometries: Sequence[Geometry]) -> list[np.ndarray]:
    """For each geometry the crops of one piece, (PIECE, crop, crop, 3) uint8."""
    rooms, first = [], 0
    for geometry in geometries:
        rooms.append(np.ndarray((PIECE, geometry.crop, geometry.crop, 3), np.uint8, memory, first))
        first += rooms[-1].nbytes
    return rooms


class PictureReader:
    """One process that reads pictures; `read` is called by one thread at a time."""

    def __init__(self, geometries: Sequence[Geometry]) -> None:
        self.handle = os.memfd_create("crops")
        os.ftruncate(self.handle, sum(PIECE * geometry.crop**2 * 3 for geometry in geometries))
        self.rooms = _rooms(mmap.mmap(self.handle, 0), geometries)
        reader = PieceReader(f"/proc/{os.getpid()}/fd/{self.handle}", geometries)
        self.crew, self.begun, self.ended = Processes(pickle.dumps(reader), [None]), False, False
        self.process: Any = None

    def start(self) -> None:
        self.process = self.crew.start(None)

    def read(self, piece: Piece) -> Answer | None:
        """The answer to a piece, whose crops are in `rooms` until the next one; None before it has started, and if it
        failed."""
        self.begun = self.begun or (self.process is not None and self.process.pipe.poll())
        if not self.begun or self.ended or not self._heard().wants:
            return None
        self.crew.send(self.process, (0, piece))
        return cast("Answer", self._heard().result)

    def _heard(self) -> Message:
        message = self.process.message()
        self.ended = message.ended
        return message


def prepare_readers() -> None:
    """Let the server of the processes import what they need while this process opens its models."""
    if START == "forkserver":
        start_server([PieceReader.__module__, *PieceReader.imports])


@contextlib.contextmanager
def picture_readers(count: int, geometries: Sequence[Geometry]) -> Iterator[queue.SimpleQueue[PictureReader | None]]:
    """One for each of `count` threads, to be taken and put back; None where there can be none."""
    free: queue.SimpleQueue[PictureReader | None] = queue.SimpleQueue()
    some = [PictureReader(geometries) for _ in range(count)] if geometries and START == "forkserver" else []
    for number in range(count):
        free.put(some[number] if some else None)
    leaving = threading.Event()

    def start() -> None:
        prepare_readers()
        for reader in some:
            if not leaving.is_set():
                reader.start()

    starting = threading.Thread(target=start, name="start readers")
    starting.start()
    try:
        yield free
    finally:
        leaving.set()
        starting.join()
        for reader in some:
            if reader.process is not None:
                reader.crew.stop([reader.process])
            os.close(reader.handle)
