"""Gives every reader of files from outside hostile inputs, in several processes.

python tests/fuzz/fuzz_readers.py --inputs 1000000        (`make fuzz`); prints the inputs, the time and the escapes
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from pathlib import Path

from data_readers import arrays, checkpoints, coco, oxford_pet, pickles, tars, voc
from fuzzing import Reader, fuzz, own_folder
from model_readers import exported, onnx, openvino, tflite, torchscript
from record_readers import (
    benchmark_card,
    chat_replies,
    edit_records,
    groups,
    heads,
    labels,
    model_cards,
    processors,
    recipes,
    repair_results,
    repaired,
    rows,
    sidecar,
)
from table_readers import answers, factors, manifest, predictions, probes, report_tables, result_tables

READERS: dict[str, Callable[[], Reader]] = {
    "predictions": predictions,
    "manifest": manifest,
    "answers": answers,
    "factors": factors,
    "result-tables": result_tables,
    "report-tables": report_tables,
    "sidecar": sidecar,
    "rows": rows,
    "chat-replies": chat_replies,
    "labels": labels,
    "edit-records": edit_records,
    "coco": coco,
    "voc": voc,
    "oxford-pet": oxford_pet,
    "arrays": arrays,
    "benchmark-card": benchmark_card,
    "model-cards": model_cards,
    "repaired": repaired,
    "heads": heads,
    "checkpoints": checkpoints,
    "tars": tars,
    "pickles": pickles,
    "recipes": recipes,
    "repair-results": repair_results,
    "groups": groups,
    "processors": processors,
    "probes": probes,
}
# A runtime in native code may end the process, so these are read in processes of their own only.
NATIVE: dict[str, Callable[[], Reader]] = {
    "onnx": onnx,
    "openvino": openvino,
    "tflite": tflite,
    "torchscript": torchscript,
    "exported": exported,
}
FOUND = Path(__file__).parent / "found"  # <reader>-….bin: inputs that once escaped
ALL = {**READERS, **NATIVE}
LOT = 10_000  # inputs of one process
SLOWEST = 5.0  # seconds of CPU time for one input
LONGEST = 1800  # seconds for one lot, if the reader hangs where Python cannot interrupt it
MOST_MEMORY = 16 << 30  # bytes of address space for the inputs, beyond what the imports take


def known(name: str) -> list[bytes]:
    """The inputs that escaped from this reader before."""
    return [path.read_bytes() for path in sorted(FOUND.glob(f"{name}-*.bin"))]


def drawn(name: str, seed: int) -> random.Random:
    """The random numbers for a reader's inputs, the same in every run."""
    return random.Random(f"{name}/{seed}")


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """A block in which this process cannot get more than MOST_MEMORY beyond what it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _run_lot(name: str, seed: int, inputs: int, keep: Path) -> None:
    """Fuzz a reader in this process; escapes become files in `keep`, and so does the input that ends the process."""
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    current = keep / f"{name}-{seed}-current.bin"
    with own_folder(), limited_memory():
        for number, (data, what) in enumerate(fuzz(ALL[name](), drawn(name, seed), inputs, SLOWEST, current)):
            (keep / f"{name}-{seed}-{number}.bin").write_bytes(data)
            (keep / f"{name}-{seed}-{number}.txt").write_text(what, errors="replace")
    current.unlink()


def run(names: Sequence[str], inputs: int, processes: int, seed: int, keep: Path, minutes: float) -> tuple[int, int]:
    """(inputs, escapes) of these readers; prints one line for each when it is done. No lot begins after `minutes`."""
    # A file of a few rows has nothing for several threads to do, and the processes share the cores already.
    for variable in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS", "ARROW_IO_THREADS"):
        os.environ.setdefault(variable, "1")
    with own_folder():
        for name in names:
            ALL[name]()  # imports what it needs once, for all processes
    fork = multiprocessing.get_context("fork")
    waiting = [(name, seed + done, min(LOT, inputs - done)) for name in names for done in range(0, inputs, LOT)][::-1]
    left, done, spent = Counter(name for name, *_ in waiting), Counter[str](), Counter[str]()
    running: dict[int, tuple[multiprocessing.process.BaseProcess, str, int, int, float]] = {}
    end, escapes = time.monotonic() + 60 * minutes, 0
    while running or (waiting and time.monotonic() < end):
        while waiting and len(running) < processes and time.monotonic() < end:
            name, first, count = waiting.pop()
            process = fork.Process(target=_run_lot, args=(name, first, count, keep))
            process.start()
            running[process.sentinel] = process, name, first, count, time.monotonic()
        for sentinel in connection.wait(list(running)):
            process, name, first, count, begun = running.pop(sentinel)  # type: ignore[index]
            process.join()
            if process.exitcode != 0:
                escapes += 1
                print(f"{name}: ended the process ({process.exitcode}): {keep / f'{name}-{first}-current.bin'}")
            for path in sorted(keep.glob(f"{name}-{first}-*.txt")):
                escapes += 1
                print(f"{name}: {path.read_text()}: {path.with_suffix('.bin')}")
            left[name] -= 1
            done[name] += count
            spent[name] += time.monotonic() - begun
            if left[name] == 0:
                print(f"{name}: {done[name]:,} inputs, {spent[name]:.0f} s of one core", flush=True)
    return done.total(), escapes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="inputs for each reader")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="default: one for each core")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the inputs that escape, default: a temporary one")
    parser.add_argument("readers", nargs="*", help=f"of {', '.join(ALL)}")
    given = parser.parse_args()
    keep = Path(given.keep or tempfile.mkdtemp(prefix="unswayed-escapes-"))
    keep.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    names = given.readers or list(READERS)
    total, escapes = run(names, given.inputs, given.processes, given.seed, keep, given.minutes)
    if given.keep is None and not escapes:
        keep.rmdir()
    print(f"{total:,} inputs, {escapes} escapes, {time.monotonic() - begun:.0f} s, {given.processes} processes")
    sys.exit(escapes > 0)


if __name__ == "__main__":
    main()
