"""Kills commands at every rename, sync and removal and at random moments, resumes them, and compares the files.

export PYTHONPATH=tests/support
python tests/kills/killing.py --injected 50 --random 60        prints one line per command; exit code 1 for a difference
python tests/kills/killing.py --chaos 30                       kills workers and main processes over a build of 400
                                                               pictures and over their evaluation
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a copy of a process has none of its threads

STEPS = ("replace", "fsync", "unlink")
Command = Callable[[Path, Path], object]
"""(the inputs, the output folder) -> what the command returns."""


def build(inputs: Path, output: Path) -> object:
    from unswayed.benchmark import BuildSettings
    from unswayed.benchmark import build as build_benchmark

    return build_benchmark(
        "sample", output, BuildSettings(recipe="original,size-0.1", renderer="paste", limit=2, size=64)
    )


def evaluate(inputs: Path, output: Path) -> object:
    from unswayed.evaluation import EvaluateSettings, run_evaluation

    settings = EvaluateSettings(device="cpu", batch_size=2, workers=0)
    return run_evaluation(inputs / "bench", ["lite:0"], output, settings, save_every=0.0)


def sensitivity(inputs: Path, output: Path) -> object:
    from unswayed.evaluation.study import run_study
    from unswayed.jobs import parts

    parts.SECONDS = -1.0
    return run_study("sample", ["lite:0"], output, levels="60", limit=2)


def masks(inputs: Path, output: Path) -> object:
    from unswayed.masks.make_masks import make_masks

    return list(make_masks(inputs / "pictures", output, segmenter="grabcut"))


def import_(inputs: Path, output: Path) -> object:
    from unswayed.benchmark import import_benchmark

    return import_benchmark(inputs / "release", output, labels=inputs / "release" / "labels.txt")


def edit(inputs: Path, output: Path) -> object:
    from unswayed.rendering.photograph import Request, chain_of, edit_photograph, read_scene

    photograph = inputs / "pictures" / "dog.png"
    request = Request(chain_of({"size": "0.1"}), renderer="paste")
    return edit_photograph(request, read_scene(photograph, None), photograph).save(output / "out.png")


def repair(inputs: Path, output: Path) -> object:
    from unswayed.edits.mixture import EditMixture
    from unswayed.repair import RepairSettings, fine_tuning
    from unswayed.repair import repair as repair_model

    fine_tuning.SAVE_EVERY = 0.0  # a state after every step
    settings = RepairSettings(epochs=2, batch_size=8, train="all", mixture=EditMixture(probability=0.8))
    model = f"python:{inputs / 'model/small.py'}:build"
    options = {"recipe": "original,background-random", "device": "cpu", "workers": 1}
    return repair_model(f"folder:{inputs / 'shapes'}", model, output, settings, **options)  # type: ignore[arg-type]


COMMANDS: dict[str, Command] = {
    "build": build,
    "evaluate": evaluate,
    "sensitivity": sensitivity,
    "masks": masks,
    "import": import_,
    "edit": edit,
    "repair": repair,
}


def make_inputs(folder: Path) -> Path:
    """A benchmark, two photographs, and a release of two photographs and one edit.

    What the commands import is imported here, once for all copies of this process.
    """
    import unswayed.evaluation.evaluation
    import unswayed.evaluation.study
    import unswayed.repair.run  # noqa: F401
    from betrayed import train_plainly, write_model, write_photographs
    from unswayed.models import open_model

    open_model("lite:0", device="cpu")
    from importlib import resources

    import cv2

    sample = Path(str(resources.files("unswayed.data").joinpath("sample")))
    in_child(lambda: build(folder, folder / "bench"))
    for name in ("dog", "cat"):
        small = cv2.resize(cv2.imread(str(sample / f"{name}.jpg")), (96, 80))
        for place in (f"pictures/{name}.png", f"release/ori/{name}.png", f"release/005/{name}.png"):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(folder / place), small)
    (folder / "release/labels.txt").write_text("dog\t207\ncat\t281\n")
    write_model(folder / "model", train_plainly(write_photographs(folder / "shapes", 8), steps=5))
    return folder


def in_child(work: Callable[[], object], seconds: float | None = None) -> int:
    """The exit code of `work` in a copy of this process, which is killed after so many seconds."""
    from unswayed import jobs as engine

    child = os.fork()
    if child == 0:
        forkserver._forkserver.__init__()  # type: ignore[misc]  # that of the parent cannot be used
        engine._packed = lambda worker, optional: None  # workers stay in this process, where their steps are counted
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def counting(work: Callable[[], object], kill_at: int | None, log: Path) -> None:
    """Run `work` and kill this process at the step of that number, alternately before and after it."""
    counter, lock = itertools.count(1), threading.Lock()  # several threads write files

    def wrapped(step: Callable[..., object]) -> Callable[..., object]:
        def counted(*given: object, **options: object) -> object:
            with lock:
                number = next(counter)
                log.write_text(str(number))
            if number == kill_at and number % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return step(*given, **options)
            finally:
                if number == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        return counted

    for name in STEPS:
        setattr(os, name, wrapped(getattr(os, name)))
    work()


def tree(folder: Path) -> dict[str, str]:
    """The hash of every file below a folder, hidden ones included, or the target of a link.

    How long a training took is in its records and differs from run to run.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(folder))] = os.readlink(path)
        elif path.is_file():
            content = re.sub(rb'"seconds": ?[0-9.e-]+', b"", path.read_bytes())
            found[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return found


def differences(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def kill(name: str, inputs: Path, scratch: Path, injected: int, at_random: int, seed: int = 0) -> tuple[int, list[str]]:
    """How many times the command was killed, and what differed afterwards from a run that was not."""
    command, draw = COMMANDS[name], random.Random(f"{name}/{seed}")
    out, log = scratch / name, scratch / f"{name}.steps"
    begun = time.monotonic()
    if in_child(lambda: counting(lambda: command(inputs, out), None, log)) != 0:
        return 0, [f"{name}: the undisturbed run failed"]
    took, expected = time.monotonic() - begun, tree(out)
    steps = int(log.read_text())
    # Evenly over all steps; a single one in the middle, where some files are complete and some are not.
    places = [1 + round((place + 0.5) * (steps - 2) / injected) for place in range(injected)]
    problems: list[str] = []
    killed = 0
    for place in [*places, *[None] * at_random]:
        shutil.rmtree(out, ignore_errors=True)
        if place is None:
            code = in_child(lambda: command(inputs, out), draw.uniform(0, 0.9 * took))
        else:
            code = in_child(lambda at=place: counting(lambda: command(inputs, out), at, log))  # type: ignore[misc]
        killed += code == -signal.SIGKILL
        if in_child(lambda: command(inputs, out)) != 0:
            problems.append(f"{name}, killed at {place}: the next run failed")
        elif left := differences(tree(out), expected):
            problems.append(f"{name}, killed at {place}: {', '.join(left)}")
    return killed, problems


@dataclass(frozen=True)
class Long:
    """A long command: its arguments, and how many of its parts are finished, of how many; failed: its exit codes if
    something has failed, which the next run does again."""

    arguments: list[str]
    finished: Callable[[], int]
    parts: int
    failed: tuple[int, ...] = (4,)

    def start(self) -> subprocess.Popen[bytes]:
        script = "from unswayed.views.cli import main; main()"
        return subprocess.Popen([sys.executable, "-c", script, *self.arguments], stdout=subprocess.DEVNULL)


def long_build(folder: Path, output: Path, photographs: int) -> Long:
    """A build of four pictures for each of so many drawn photographs."""
    import cv2
    import numpy as np

    for number in range(photographs):
        draw, mask = np.random.default_rng(number), np.zeros((160, 200), np.uint8)
        cv2.ellipse(mask, (100, 80), (40 + number % 20, 30), 0, 0, 360, 255, -1)
        picture = draw.integers(60, 200, (160, 200, 3), np.uint8)
        picture[mask > 0] = (20, number % 256, 250)
        for place, pixels in (("images", picture), ("masks", mask)):
            path = folder / place / "thing" / f"{number:03}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), pixels)
    recipe = ["--recipe", "original,size-0.1,position", "--renderer", "paste", "--workers", "2"]
    return Long(
        ["build", f"folder:{folder}", "-o", str(output), *recipe],
        lambda: len(list((output / "rows").glob("*.json"))),
        photographs,
    )


def chaos(command: Long, kills: int, seed: int = 0) -> tuple[int, int]:
    """Kill main processes and workers of a command at random, evenly over its work, and run it to its end.

    Returns how many main processes and how many workers were killed.
    """
    draw, killed = random.Random(seed), [0, 0]
    process = command.start()
    for number in range(kills):
        while command.finished() < number * command.parts / kills and process.poll() is None:
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.2))
        if process.poll() is not None:
            process = command.start()
        workers = workers_of(process.pid)
        worker = bool(workers) and draw.random() < 0.5
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(draw.choice(workers) if worker else process.pid, signal.SIGKILL)
            killed[worker] += 1
        if not worker:
            process.wait()
            process = command.start()
    # A photograph or a model whose workers were killed twice has failed; the next run does it again.
    while (code := process.wait()) in command.failed:
        process = command.start()
    if code != 0:
        raise RuntimeError(f"the last run ended with exit code {code}")
    return killed[0], killed[1]


def workers_of(process: int) -> list[int]:
    """The worker processes of a process: its descendants that have no children themselves."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if b"resource_tracker" not in (folder / "cmdline").read_bytes():
                children.setdefault(parent, []).append(int(folder.name))
    found = children.get(process, [])
    while any(one in children for one in found):
        found = [below for one in found for below in children.get(one, [one])]
    return found


def build_in_chaos(scratch: Path, kills: int, photographs: int, seed: int = 0) -> tuple[str, list[str]]:
    """A line that says what was done, and what differs from a build that nobody disturbed."""
    from unswayed.benchmark import verify

    quiet, disturbed = scratch / "quiet", scratch / "disturbed"
    if long_build(scratch / "photographs", quiet, photographs).start().wait() != 0:
        return "build: the undisturbed run failed", ["everything"]
    killed = chaos(long_build(scratch / "photographs", disturbed, photographs), kills, seed)
    verdict = verify(disturbed)
    problems = [*map(str, verdict.problems), *differences(tree(disturbed), tree(quiet))]
    return f"build: {verdict.rows} rows, killed {killed[0]} main processes and {killed[1]} workers", problems


def long_evaluation(benchmark: Path, output: Path, pictures: int) -> Long:
    """An evaluation of one network in two processes, in batches of two pictures."""

    def finished() -> int:
        if any(output.glob("*.parquet")):
            return pictures
        done = [path.stem.split("-") for path in output.glob(".parts/*/*-*.parquet")]
        return 2 * sum(int(last) - int(first) + 1 for first, last in done)

    options = ["-m", "lite:0", "--device", "cpu,cpu", "--batch-size", "2", "-o", str(output)]
    return Long(["evaluate", str(benchmark), *options], finished, pictures, failed=(2, 4))


def evaluation_in_chaos(scratch: Path, kills: int, runs: int, seed: int = 0) -> tuple[str, list[str]]:
    """The same for an evaluation of 20 photographs and so many moved ones of each; the undisturbed one runs in one
    process."""
    from unswayed.benchmark import BuildSettings
    from unswayed.benchmark import build as build_benchmark
    from unswayed.evaluation import EvaluateSettings, read_predictions, run_evaluation

    bench, quiet, disturbed = scratch / "bench", scratch / "quiet", scratch / "disturbed"
    settings = BuildSettings(recipe="original,position", renderer="paste", runs=runs, size=96)
    pictures = build_benchmark("sample", bench, settings).counts["ok"]
    run_evaluation(bench, ["lite:0"], quiet, EvaluateSettings(device="cpu", batch_size=2))
    killed = chaos(long_evaluation(bench, disturbed, pictures), kills, seed)
    problems = differences(tree(disturbed), tree(quiet))
    if read_predictions(disturbed)["sample_id"].n_unique() != pictures:
        problems.append("predictions are missing")
    return f"evaluate: {pictures} pictures, killed {killed[0]} main processes and {killed[1]} workers", problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--injected", type=int, default=50, help="kills at renames, syncs and removals, in all")
    parser.add_argument("--random", type=int, default=60, help="kills at random moments, in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("commands", nargs="*", help=f"of {', '.join(COMMANDS)}")
    parser.add_argument(
        "--chaos",
        type=int,
        help="kills of workers and main processes, over 400 pictures",
    )
    given = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        if given.chaos is not None:
            for run, count in ((build_in_chaos, 100), (evaluation_in_chaos, 18)):
                line, problems = run(Path(folder) / run.__name__, given.chaos, count, given.seed)
                print(f"{line}, {len(problems)} different", *problems, sep="\n  ", flush=True)
                failed |= bool(problems)
            sys.exit(failed)
        inputs = make_inputs(Path(folder) / "inputs")
        chosen = given.commands or list(COMMANDS)
        for name in chosen:
            share = (-(-given.injected // len(chosen)), -(-given.random // len(chosen)))
            killed, problems = kill(name, inputs, Path(folder), *share, seed=given.seed)
            print(
                f"{name}: {sum(share)} runs, {killed} killed, {len(problems)} different",
                *problems,
                sep="\n  ",
                flush=True,
            )
            failed |= bool(problems)
    sys.exit(failed)


if __name__ == "__main__":
    main()
