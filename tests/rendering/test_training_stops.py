"""Training that is killed, stopped or given what cannot be: nothing saved is lost, and every mistake is named."""

import json
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import dying_run
from command_line import refused, run_cli
from dying_run import SMALL, small_recipe
from unswayed.errors import UserError
from unswayed.rendering.training import loop
from unswayed.rendering.training.photos import load_photos, read_photos


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for number in range(4):
        coarse = Image.fromarray(rng.integers(0, 255, (6, 6, 3), np.uint8))
        coarse.resize((256, 256), Image.Resampling.BICUBIC).save(folder / f"{number}.png")
    return folder


@pytest.fixture(scope="module", autouse=True)
def small_network():
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "CompactConfig", lambda: SMALL)
        yield


@pytest.fixture(scope="module")
def whole(photos, tmp_path_factory):
    """The folder of a run that nothing stopped; not to be written to."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(photos, folder)
    return folder


def train(photos, folder, **changes):
    return loop.train([photos], folder, small_recipe(), **{"device": "cpu", "compiled": False} | changes)


def state(folder):
    return json.loads((folder / "state.json").read_text())


def network(folder):
    return (folder / "network.safetensors").read_bytes()


@pytest.mark.parametrize(("when", "step"), [("after", 3), ("between", 2)])
def test_a_killed_run_goes_on_from_its_last_whole_state(photos, whole, tmp_path, when, step):
    script = [sys.executable, dying_run.__file__, str(photos), str(tmp_path / "run"), when]
    died = subprocess.run(script, capture_output=True, text=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert state(tmp_path / "run")["step"] == step
    train(photos, tmp_path / "run")
    assert network(tmp_path / "run") == network(whole)
    assert [file.name for file in (tmp_path / "run").glob("*state-*")] == ["state-6.safetensors"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_finishes_its_step_and_saves(photos, whole, tmp_path, number):
    before = signal.getsignal(number)
    trainer = loop.Trainer(small_recipe(), *load_photos([photos], 2, "cpu"), tmp_path / "run", compiled=False)
    with pytest.raises(KeyboardInterrupt):
        trainer.run(every=2, say=lambda line: signal.raise_signal(number))
    assert signal.getsignal(number) is before
    assert state(tmp_path / "run")["step"] == 2
    train(photos, tmp_path / "run")
    assert network(tmp_path / "run") == network(whole)


def test_the_command_says_how_to_go_on_and_exits_with_130(photos, tmp_path, monkeypatch):
    advance = loop.Trainer.advance

    def interrupted(self):
        signal.raise_signal(signal.SIGINT)
        return advance(self)

    monkeypatch.setattr(loop.Trainer, "advance", interrupted)
    given = ("train-network", photos, "-o", tmp_path / "run", "--batch", 2, "--held-out", 2, "--no-compile")
    stopped = run_cli(*given, code=130)
    assert f"run: unswayed train-network {photos} -o {tmp_path / 'run'}" in stopped.stderr
    assert state(tmp_path / "run")["step"] == 1


@pytest.mark.parametrize(("pause", "times", "saves"), [(180.0, 50.0, 1), (0.0, 1e9, 2), (0.0, 0.0, 7)])
def test_saving_waits_for_its_pause_and_for_many_times_what_it_costs(
    photos, tmp_path, monkeypatch, pause, times, saves
):
    written = []
    monkeypatch.setattr(loop, "PAUSE", pause)
    monkeypatch.setattr(loop, "TIMES", times)
    monkeypatch.setattr(loop, "write_state", lambda *given: written.append(given))
    train(photos, tmp_path / "run")
    assert len(written) == saves


def test_the_seconds_add_up_over_saves_and_runs(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "PAUSE", 0.0)
    monkeypatch.setattr(loop, "TIMES", 0.0)
    loop.train([photos], tmp_path / "run", small_recipe(steps=3), device="cpu", compiled=False)
    first = state(tmp_path / "run")["seconds"]
    again = train(photos, tmp_path / "run")
    assert 0 < first < again.seconds == state(tmp_path / "run")["seconds"] < first + 60


@pytest.mark.parametrize("wrong", [{"minutes": -1.0}, {"minutes": 0.0}, {"minutes": float("nan")}, {"every": 0}])
def test_a_time_or_a_pace_that_cannot_be_is_refused_before_anything_is_written(photos, tmp_path, wrong):
    with pytest.raises(UserError, match="above 0|1 or more"):
        train(photos, tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _emptied(path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"network.conv_in.weight": torch.zeros(1)}, path)


@pytest.mark.parametrize("damage", [_cut, _emptied, Path.unlink])
def test_a_damaged_state_is_named(photos, whole, tmp_path, damage):
    shutil.copytree(whole, tmp_path / "run")
    damage(tmp_path / "run" / "state-6.safetensors")
    with refused(given=r"cannot be resumed.*damaged", run=r"rm .*state\.json"):
        train(photos, tmp_path / "run")
    (tmp_path / "run" / "state.json").write_text('{"step": 6}')
    with pytest.raises(UserError, match=r"state\.json is damaged"):
        train(photos, tmp_path / "run")


def test_what_is_no_whole_tar_is_named(photos, tmp_path):
    (tmp_path / "junk.tar").write_bytes(b"junk" * 500)
    with pytest.raises(UserError, match=r"junk\.tar is not a readable archive: invalid header"):
        list(read_photos([tmp_path / "junk.tar"]))
    for kind in ("", "gz"):
        with tarfile.open(tmp_path / "cut.tar", f"w:{kind}") as tar:
            for file in sorted(photos.iterdir()):
                tar.add(file, arcname=file.name)
        whole = (tmp_path / "cut.tar").read_bytes()
        (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2])
        with pytest.raises(UserError, match=r"cut\.tar is not a readable archive"):
            list(read_photos([tmp_path / "cut.tar"]))
