"""One folder of predictions: several processes, names that collide, parts that do not fit, places that cannot be."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import time
from pathlib import Path

import polars as pl
import pytest
import torch
from PIL import Image

import unswayed
from color_world import CLASSES
from unswayed.errors import UserError
from unswayed.evaluation import EvaluateSettings, cards, run_evaluation
from unswayed.evaluation.evaluation import record_failure
from unswayed.files.locks import Lock
from unswayed.models import Classifier, Transform
from unswayed.specs import slug_of

SLOW = """
import time

class Slow(Colour):
    def forward(self, x):
        time.sleep(0.2)
        return super().forward(x)

def slow(): return Classifier(Slow(), PLAIN, NAMES)
"""


def work(benchmark: Path, models: list[str], output: Path, answer) -> None:
    done = run_evaluation(benchmark, models, output, EvaluateSettings(device="cpu", batch_size=4), save_every=0)
    answer.put((done.scored, done.failed))


def test_two_processes_never_mix_their_answers(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text(Path(own_models.removeprefix("python:").removesuffix(":")).read_text() + SLOW)
    spec, out = f"python:{file}:slow", tmp_path / "out"
    start = multiprocessing.get_context("spawn")
    answer = start.Queue()
    one = start.Process(target=work, args=(benchmark, [spec], out, answer))
    one.start()
    lock = out / ".parts" / f"{slug_of(spec)}.lock"
    while not lock.exists():
        assert one.is_alive()
        time.sleep(0.05)
    done = run_evaluation(benchmark, [spec, own_models + "good"], out, EvaluateSettings(device="cpu"))
    assert done.scored == (own_models + "good",)
    assert "another process is evaluating it" in done.failed[spec]
    scored, failed = answer.get(timeout=120)
    one.join()
    assert (scored, failed) == ((spec,), {})
    assert {name: card["rows"] for name, card in cards(out).items()} == {spec: 48, own_models + "good": 48}
    assert not (out / ".parts").exists()
    assert not list(out.glob("*.failed.json"))


def test_a_model_in_a_process_of_its_own_is_counted_while_it_runs(
    benchmark: Path, own_models: str, tmp_path: Path
) -> None:
    file = tmp_path / "slow.py"
    file.write_text(Path(own_models.removeprefix("python:").removesuffix(":")).read_text() + SLOW)
    counts: list[int] = []
    settings = EvaluateSettings(device="cpu", batch_size=4)
    run_evaluation(
        benchmark, [f"python:{file}:slow"], tmp_path / "out", settings, progress=lambda now, total: counts.append(now)
    )
    assert counts == sorted(counts)
    assert counts[-1] == 48
    assert len({count for count in counts if 0 < count < 48}) > 1


def test_a_lock_is_one_processs_and_leaves_no_file(tmp_path: Path) -> None:
    one, other = Lock(tmp_path / "a" / "x.lock"), Lock(tmp_path / "a" / "x.lock")
    assert one.take()
    assert not other.take()
    one.release()
    assert not (tmp_path / "a" / "x.lock").exists()
    assert other.take()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refused)
    assert Lock(tmp_path / "x.lock").take()


def test_finished_predictions_need_no_writing(
    benchmark: Path, own_models: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_evaluation(benchmark, [own_models + "good"], tmp_path, EvaluateSettings(device="cpu"))

    def refuse(self: Lock) -> bool:
        raise UserError("cannot write: the file system is read-only")

    monkeypatch.setattr(Lock, "take", refuse)
    assert run_evaluation(benchmark, [own_models + "good"], tmp_path, EvaluateSettings(device="cpu")).skipped == (
        own_models + "good",
    )


def colours(name: str) -> Classifier:
    class Means(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.pad(x.mean((2, 3)), (0, 1))

    return Classifier(Means(), Transform(32, 28), list(CLASSES), name, device="cpu")  # type: ignore[arg-type]


def test_models_of_one_name_are_refused(benchmark: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"two models would be stored as own\.parquet"):
        unswayed.evaluate(benchmark, [colours("own"), colours("own")], tmp_path)
    with pytest.raises(UserError, match=r"two models would be stored as a-b\.parquet: 'a:b' and 'a/b'"):
        unswayed.evaluate(benchmark, [colours("a:b"), colours("a/b")], tmp_path)
    run_evaluation(benchmark, [colours("a:b")], tmp_path)
    done = run_evaluation(benchmark, [colours("a/b")], tmp_path)
    assert "belongs to the predictions of 'a:b'" in done.failed["a/b"]
    assert set(cards(tmp_path)) == {"a:b"}


def test_names_in_any_script_and_of_any_length_are_files_of_their_own(benchmark: Path, tmp_path: Path) -> None:
    names = ["модель", "образец", "x" * 400, "x" * 401]
    done = run_evaluation(benchmark, [colours(name) for name in names], tmp_path)
    assert done.scored == tuple(names)
    assert set(cards(tmp_path)) == set(names)
    assert slug_of("timm:resnet50.a1_in1k") == "timm-resnet50.a1_in1k"


def test_parts_that_do_not_fit_are_thrown_away_and_made_anew(benchmark: Path, tmp_path: Path) -> None:
    model = colours("means")
    with pytest.raises(KeyboardInterrupt):
        run_evaluation(benchmark, [model], tmp_path, EvaluateSettings(batch_size=4), save_every=0, progress=interrupt)
    (parts,) = (tmp_path / ".parts").glob("means-*-4")
    first = sorted(parts.glob("*.parquet"))[0]
    pl.read_parquet(first).head(1).write_parquet(first)
    done = run_evaluation(benchmark, [model], tmp_path, EvaluateSettings(batch_size=4))
    assert "contain 45 predictions for 48 pictures" in done.failed["means"]
    assert run_evaluation(benchmark, [model], tmp_path, EvaluateSettings(batch_size=4)).scored == ("means",)
    assert not list(tmp_path.glob("*.failed.json"))


def interrupt(now: int, total: int) -> None:
    if now >= 36:
        raise KeyboardInterrupt


def test_an_unfinished_run_goes_on_in_batches_of_its_own_size(benchmark: Path, tmp_path: Path) -> None:
    model = colours("means")
    with pytest.raises(KeyboardInterrupt) as kept:  # as a notebook keeps it, and with it every frame
        run_evaluation(benchmark, [model], tmp_path, EvaluateSettings(batch_size=4), save_every=0, progress=interrupt)
    assert kept.value is not None
    begun: list[int] = []
    run_evaluation(benchmark, [model], tmp_path, progress=lambda now, total: begun.append(now))
    assert min(filter(None, begun)) >= 24, begun
    assert cards(tmp_path)["means"]["rows"] == 48


def test_a_folder_without_a_readable_picture_is_a_failure(tmp_path: Path) -> None:
    folder = tmp_path / "val" / "n01440764"
    folder.mkdir(parents=True)
    (folder / "a.JPEG").write_bytes(b"\xff\xd8\xff" + bytes(30))
    done = run_evaluation(f"images:{tmp_path / 'val'}", ["lite:0"], tmp_path / "out", EvaluateSettings(device="cpu"))
    assert "none of the 1 pictures can be read" in done.failed["lite:0"]
    assert not (tmp_path / "out" / ".parts").exists()
    Image.new("RGB", (64, 64)).save(folder / "b.JPEG")
    done = run_evaluation(f"images:{tmp_path / 'val'}", ["lite:0"], tmp_path / "out", EvaluateSettings(device="cpu"))
    assert done.scored == ("lite:0",)


def test_a_failure_is_forgotten_once_the_model_is_there(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    spec = own_models + "good"
    run_evaluation(benchmark, [spec], tmp_path, EvaluateSettings(device="cpu"))
    record_failure(tmp_path, spec, UserError("its weights could not be read"))
    assert len(list(tmp_path.glob("*.failed.json"))) == 1
    assert run_evaluation(benchmark, [spec], tmp_path, EvaluateSettings(device="cpu")).skipped == (spec,)
    assert not list(tmp_path.glob("*.failed.json"))


def test_places_that_cannot_be_and_limits_are_refused(benchmark: Path, own_models: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for output in (tmp_path / "file", tmp_path / "file" / "x", Path("/proc/nowhere/x"), tmp_path / ("x" * 300)):
        with pytest.raises(UserError, match="cannot write"):
            run_evaluation(benchmark, [own_models + "good"], output)
    for limit in (0, -1):
        with pytest.raises(UserError, match=f"the setting limit is {limit}"):
            run_evaluation(benchmark, [own_models + "good"], tmp_path / "out", EvaluateSettings(limit=limit))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_neighbours_that_change_an_answer_are_found_in_small_batches(
    benchmark: Path, own_models: str, tmp_path: Path, size: int
) -> None:
    done = run_evaluation(
        benchmark, [own_models + "batch_statistics"], tmp_path, EvaluateSettings(device="cpu", batch_size=size)
    )
    assert "depend on the batch size" in done.failed[own_models + "batch_statistics"]
