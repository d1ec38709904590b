"""Pictures a second that `unswayed build --renderer paste` makes at 256×256, and where the time goes.

    python benchmarks/build_speed.py --workers 2

Builds `imagenet-e` of the embedded photographs, copied a few times, into a new folder; counts rows with status `ok`.
One worker is measured in the same run, so the ratio shows what the second one brings.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from importlib import resources
from pathlib import Path

from unswayed.benchmark import BuildSettings, Built, Progress, build

TARGET = 60.0


def copies(folder: Path, scenes: int) -> str:
    """A folder source of the sample's photographs and masks, repeated up to `scenes`."""
    sample = Path(str(resources.files("unswayed.data").joinpath("sample")))
    pictures = sorted(sample.glob("*.jpg"))
    for number in range(scenes):
        picture = pictures[number % len(pictures)]
        for kind, suffix in (("images", ".jpg"), ("masks", ".png")):
            place = folder / kind / f"{number:04}-{picture.stem}{suffix}"
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture.with_suffix(suffix), place)
    return f"folder:{folder}"


def measure(source: str, out: Path, workers: int) -> tuple[Built, float, float]:
    """What was built, pictures a second from the first finished scene to the last, and seconds of CPU a picture."""
    moments: list[tuple[float, int]] = []

    def note(progress: Progress) -> None:
        moments.append((time.perf_counter(), progress.counts.get("ok", 0)))

    before = _cpu()
    built = build(source, out, BuildSettings(renderer="paste", workers=workers, seed=7), progress=note)
    cpu = _cpu() - before
    # The first call of `report` comes before the workers have started, the second with the first scene.
    (first, had), (last, has) = moments[1], moments[-1]
    return built, (has - had) / (last - first), cpu / built.counts["ok"]


def _cpu() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scenes", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="unswayed-build-speed-") as folder:
        source = copies(Path(folder) / "photos", options.scenes)
        built, rate, each = measure(source, Path(folder) / "bench", options.workers)
        _, alone, _ = measure(source, Path(folder) / "alone", 1)
    print(f"{built.sources} scenes, {built.counts['ok']} pictures ok, {built.counts['skipped']} skipped")
    print(f"{rate:.1f} pictures/s with {options.workers} workers: {rate / TARGET:.2f} of the {TARGET:.0f}/s asked for")
    print(f"{alone:.1f} pictures/s with one worker: {options.workers} workers are {rate / alone:.2f} times as fast")
    print(f"{built.counts['ok'] / built.seconds:.1f} pictures/s with the start of the processes")
    print(f"{each * 1000:.1f} ms of CPU a picture")
    spent = sum(built.stages.values())
    for stage, seconds in sorted(built.stages.items(), key=lambda pair: -pair[1]):
        print(f"{STAGES[stage]:>34} {seconds / spent:6.1%}")


STAGES = {
    "decode": "decoding and framing",
    "compose": "composing (with object removal)",
    "render": "pasting",
    "encode": "PNG encoding",
    "write": "writing and syncing",
}


if __name__ == "__main__":
    main()
