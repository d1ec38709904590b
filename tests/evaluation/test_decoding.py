"""Decoding in processes and decoding here are the same, bad pictures included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from unswayed.evaluation.decoding import PIECE, Decoder, worker_count
from unswayed.evaluation.model_cards import Picture
from unswayed.jobs.scheduling import seconds_waited
from unswayed.models.transforms import Transform

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


@pytest.mark.parametrize("workers", [1, 3])
def test_processes_decode_as_threads_do(rows: list[Picture], workers: int) -> None:
    everything = list(range(len(rows)))
    # batches of three and of two pieces, and one of which nothing can be read
    plan = [everything[: 2 * PIECE + 3], everything[2 * PIECE + 3 :], list(BAD)]
    geometries = [Transform(resize=32, crop=28).geometry, Transform(resize=24, crop=24).geometry]
    here, waited = list(Decoder(rows, plan, geometries, 0).batches([2, 0, 1])), seconds_waited()
    there = list(Decoder(rows, plan, geometries, workers).batches([2, 0, 1]))
    assert seconds_waited() > waited
    assert [batch.index for batch in there] == [2, 0, 1]
    for one, other in zip(here, there, strict=True):
        assert one.index == other.index
        assert np.array_equal(one.kept, other.kept)
        assert one.unreadable == other.unreadable
        assert all(torch.equal(a, b) for a, b in zip(one.crops, other.crops, strict=True))
        assert all(np.array_equal(a, b) for a, b in zip(one.survives, other.survives, strict=True))
    assert [name for name, _ in there[1].unreadable] == [str(number) for number in BAD]
    assert len(there[0].kept) == 0 and there[0].crops[0].shape == (0, 28, 28, 3)


def test_a_machine_with_little_shared_memory_gets_fewer_processes() -> None:
    assert worker_count("cpu", None, 150_000) == 0
    assert worker_count("cuda", 3, 10**15) == 3
    assert worker_count("cuda", None, 10**15) == 0
    assert 1 <= worker_count("cuda", None, 3 * 32 * 32) <= 16
