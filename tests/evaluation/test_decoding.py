"""Decoding in advance and decoding when a batch is requested are the same, bad pictures included."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from unswayed.evaluation import decoding
from unswayed.evaluation.decoding import MOST_THREADS, Decoder, thread_count
from unswayed.evaluation.model_cards import Picture
from unswayed.evaluation.picture_readers import picture_readers
from unswayed.jobs.scheduling import seconds_waited
from unswayed.models.transforms import Transform

PIECE = 12
BAD = (3, PIECE, PIECE + 9, 2 * PIECE + 1)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Picture]:
    folder = tmp_path_factory.mktemp("pictures")
    made = []
    for number in range(3 * PIECE + 5):
        path, mask = folder / f"{number}.png", folder / f"{number}.mask.png"
        noise = np.random.default_rng(number).integers(0, 256, (40, 30, 3), dtype=np.uint8)
        Image.fromarray(noise).save(path)
        Image.fromarray(np.where(noise[..., 0] > 128, 255, 0).astype(np.uint8)).save(mask)
        if number in BAD:
            Path(path).write_bytes(b"no picture")
        made.append(Picture(f"{number}", f"{number}", path.name, "original", 0, 1, str(path), str(mask)))
    return made


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_decode_in_advance_what_is_decoded_here(rows: list[Picture], threads: int) -> None:
    everything = list(range(len(rows)))
    # two batches with unreadable pictures, one without, and one of which nothing can be read
    plan = [everything[: 2 * PIECE + 3], everything[2 * PIECE + 3 :], list(BAD), everything[4:9]]
    geometries = [Transform(resize=32, crop=28).geometry, Transform(resize=24, crop=24).geometry]
    here, waited = list(Decoder(rows, plan, geometries, 0).batches([2, 0, 1, 3])), seconds_waited()
    there = list(Decoder(rows, plan, geometries, threads).batches([2, 0, 1, 3]))
    assert seconds_waited() > waited
    assert [batch.index for batch in there] == [2, 0, 1, 3]
    for one, other in zip(here, there, strict=True):
        assert one.index == other.index
        assert np.array_equal(one.kept, other.kept)
        assert one.unreadable == other.unreadable
        assert all(torch.equal(a, b) for a, b in zip(one.crops, other.crops, strict=True))
        assert all(np.array_equal(a, b) for a, b in zip(one.survives, other.survives, strict=True))
    assert [name for name, _ in there[1].unreadable] == [str(number) for number in BAD]
    assert len(there[0].kept) == 0 and there[0].crops[0].shape == (0, 28, 28, 3)


def test_a_reader_reads_a_piece_and_one_that_died_leaves_it_to_the_thread(rows: list[Picture]) -> None:
    geometries = [Transform(resize=32, crop=28).geometry, Transform(resize=24, crop=24).geometry]
    piece = tuple((row.path, row.mask) for row in rows[:5])
    whole = Decoder(rows, [list(range(5))], geometries, 0).batch(0)
    with picture_readers(1, geometries) as free:
        reader = free.get()
        assert reader is not None
        while (answers := reader.read(piece)) is None:
            assert not reader.ended
            time.sleep(0.05)
        assert [place for place, shares in enumerate(answers) if shares is None] == [3]
        for room, crops, shares in zip(reader.rooms, whole.crops, whole.survives, strict=True):
            assert np.array_equal(room[[0, 1, 2, 4]], crops.numpy())
            assert len(shares) == 4
        shown = np.array([shares for shares in answers if shares is not None], np.float32)
        assert np.array_equal(shown.T, whole.survives)
        reader.process.process.kill()
        reader.process.process.join()
        assert reader.read(piece) is None and reader.read(piece) is None


def test_large_pictures_are_read_one_at_a_time(rows: list[Picture], monkeypatch: pytest.MonkeyPatch) -> None:
    """Four of 169 megapixels that are read at once take two gigabytes."""
    plan, geometries = [list(range(len(rows)))], [Transform(resize=24, crop=24).geometry]
    [expected] = Decoder(rows, plan, geometries, 0).batches([0])
    read, alone = decoding.read_picture, []
    monkeypatch.setattr(decoding, "LARGE", 1000)  # all of these have more

    def reading(path: str, most: int) -> np.ndarray:
        found = read(path, most)
        alone.append(decoding._ALONE.locked())
        return found

    monkeypatch.setattr(decoding, "read_picture", reading)
    [batch] = Decoder(rows, plan, geometries, 0).batches([0])
    assert alone == [True] * (len(rows) - len(BAD))
    assert torch.equal(batch.crops[0], expected.crops[0]) and batch.unreadable == expected.unreadable


def test_leaving_early_ends_the_threads(rows: list[Picture]) -> None:
    plan = [[row] for row in range(len(rows)) if row not in BAD]
    batches = Decoder(rows, plan, [Transform(resize=24, crop=24).geometry], 2).batches(range(len(plan)))
    assert next(iter(batches)).index == 0
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("decode")]


def test_a_gpu_has_a_thread_for_each_core() -> None:
    assert thread_count("cpu", None) == 0
    assert thread_count("cuda", 3) == thread_count("cpu", 3) == 3
    assert 1 <= thread_count("cuda", None) <= MOST_THREADS
    assert thread_count("cuda", None, share=10**6) == 1
