"""Repair, the real case: EfficientNet-Lite0 with a new head for 37 breeds, plain fine-tune against repair.

    PYTHONPATH=src python benchmarks/repair_pets.py PETS --more MORE -o OUT

PETS: `breed/name.jpg` with `breed/name.png` beside it (trimap: 255 pet, 128 border, 0 background). A fifth of every
breed is held out, and so are the photographs of MORE (`Breed_12.jpg`, flat). What is held out is edited with its own
backgrounds only. Both arms start from the same weights and see the same photographs, crops and number of steps. Prints
one table for each renderer: the mean over seeds, and the least and the most of them.

    PYTHONPATH=src python benchmarks/repair_pets.py PETS -o OUT --counts 56 200 1000 --seeds 5

Repair with its default settings on sets of so many photographs of the 25 breeds that are ImageNet classes, without a
new head: for every set and seed the verdict, and the originals and the average drop before and after on 13 photographs
of each breed (`--held-out`) that are never trained on. PETS may be the tar file of the folder. Ends with status 1 if a
model is called better that is worse than before beyond the interval. Where polars is not installed, the answers are
counted by a plain loop instead of `evaluate`.

Needs torch, torchvision, timm, OpenCV, scikit-image, pyarrow, safetensors and the wheel of EfficientNet-Lite0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tarfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from unswayed.benchmark import Benchmark
from unswayed.benchmark.building import build
from unswayed.benchmark.plan import BuildSettings
from unswayed.evaluation.settings import EvaluateSettings
from unswayed.models.opening import open_model
from unswayed.repair import RepairSettings, repair
from unswayed.repair import run as repair_run
from unswayed.repair.measuring import AVERAGE, Answers, before_and_after, read_answers
from unswayed.sources import open_source
from unswayed.sources.pictures import read_picture
from unswayed.sources.torchvision_sets import BREED_WNIDS
from unswayed.transforms import EditMixture

RECIPE = "original,background-random,size-0.05,position,direction"


def link(pictures: list[tuple[str, Path]], folder: Path) -> None:
    for breed, path in pictures:
        for file in (path, path.with_suffix(".png")):
            target = folder / breed / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                target.symlink_to(file.resolve())


def divide(pets: Path, more: Path | None, out: Path, limit: int | None) -> None:
    """Links to the photographs, in `out/train` and `out/held_out`."""
    rng = np.random.default_rng(0)
    breeds = sorted(one.name for one in pets.iterdir() if one.is_dir())
    for breed in breeds:
        files = sorted((pets / breed).glob("*.jpg"))[:limit]
        order = rng.permutation(len(files))
        held = max(len(files) // 5, 1)
        link([(breed, files[place]) for place in order[:held]], out / "held_out")
        link([(breed, files[place]) for place in order[held:]], out / "train")
    if more is not None:
        found = [(path.stem.rpartition("_")[0], path) for path in sorted(more.glob("*.jpg"))]
        link([(breed, path) for breed, path in found if breed in breeds], out / "held_out")


def table(rows: list[list[dict]], title: str) -> str:
    """The mean over seeds of each row, with the least and the most."""
    lines = [
        f"\n{title}",
        f"{'measure':18} {'pictures':20} {'n':>5} {'control':>20} {'repaired':>20} {'difference':>20}",
    ]
    for together in zip(*rows, strict=True):
        cells = []
        for name in ("control", "repaired", "difference"):
            values = [row[name] for row in together]
            cells.append(f"{np.mean(values):.1f} ({min(values):.1f} to {max(values):.1f})")
        first = together[0]
        lines.append(
            f"{first['measure']:18} {first['pictures']:20} {first['n']:5} " + " ".join(f"{one:>20}" for one in cells)
        )
    return "\n".join(lines)


class PlainSteps(repair_run._Steps):
    """The steps of a repair, of which measuring is a plain loop without tables of predictions."""

    def answers(self, pictures: str, models: dict, folder: Path) -> dict[str, Answers]:
        rows = [row for row in Benchmark(pictures).manifest.to_pylist() if row["status"] == "ok"]
        rows = [row for row in rows if row["edit"] != "source"]
        ids = tuple(sorted({row["source_id"] for row in rows}))
        position = {name: number for number, name in enumerate(ids)}
        found = {}
        for arm, model in models.items():
            right, probability = ({row["edit"]: np.full(len(ids), np.nan) for row in rows} for _ in range(2))
            for start in range(0, len(rows), 128):
                part = rows[start : start + 128]
                batch = torch.stack([model.prepare(read_picture(Path(pictures) / row["path"])) for row in part])
                chances = model.logits(batch).float().softmax(1).max(1)
                for row, chance, answer in zip(part, chances.values.tolist(), chances.indices.tolist(), strict=True):
                    right[row["edit"]][position[row["source_id"]]] = answer == row["label"]
                    probability[row["edit"]][position[row["source_id"]]] = chance
            found[arm] = Answers(ids, right, probability)
        return found

    def averaged(self, answers: Answers, models: dict, predictions: Path) -> list[str]:
        return [edit for edit in answers.right if edit not in ("original", "reinsertion", "inversion")]


def small_sets(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Print what repair with its defaults makes of small sets; how often a worse model was called better."""
    if find_spec("polars") is None:
        repair_run._Steps = PlainSteps
    pets = options.pets
    if pets.is_file():
        pets = options.out / "pets"
        if not pets.exists():
            with tarfile.open(options.pets) as archive:
                archive.extractall(pets, filter="data")
    rng = np.random.default_rng(0)
    for breed, wnid in BREED_WNIDS.items():
        folders = [folder for folder in pets.iterdir() if folder.name.lower() == breed.lower() and wnid]
        files = sorted(path for folder in folders for path in folder.glob("*.jpg"))
        files = [files[place] for place in rng.permutation(len(files))]
        link([(wnid, path) for path in files[: options.held_out]], options.out / "held_out")
        link([(wnid, path) for path in files[options.held_out :]], options.out / "train")
    held, train = (open_source(f"folder:{options.out / part}") for part in ("held_out", "train"))
    bench = options.out / "bench"
    say(f"building {bench} of {len(held)} photographs; {len(train)} to draw from")
    build(held, bench, BuildSettings(recipe=RECIPE, renderer="paste", workers=options.workers))
    print("photographs  seed  verdict       originals before, after    average drop before, after (interval of change)")
    wrong = 0
    for count in options.counts:
        for seed in range(options.seeds):
            drawn = train.select(sample=count, seed=seed)
            folder = options.out / f"{count}-{seed}"
            given = {"benchmark": bench, "workers": options.workers, "cache": options.out / "removed"}
            done = repair(drawn, "lite:0", folder, RepairSettings(seed=seed), device=options.device, **given)
            plain = next(row for row in done.rows if (row["measure"], row["pictures"]) == ("accuracy", "original"))
            drop = next(row for row in done.rows if (row["measure"], row["pictures"]) == ("drop", AVERAGE))
            worse = plain["change_high"] < 0 or drop["change_low"] > 0
            wrong += done.verdict == "better" and worse
            print(
                f"{count:11}  {seed:4}  {done.verdict:12}  {plain['before']:9.1f} {plain['repaired']:6.1f}  "
                f"{drop['before']:20.1f} {drop['repaired']:6.1f}  "
                f"({drop['change']:+.1f}, {drop['change_low']:+.1f} to {drop['change_high']:+.1f})",
                flush=True,
            )
    print(f"models called better that are worse than before beyond the interval: {wrong}")
    return wrong


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pets", type=Path)
    parser.add_argument("--more", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--counts", type=int, nargs="+", help="repair with its defaults on so many photographs")
    parser.add_argument("--held-out", type=int, default=13, help="photographs of each breed, with --counts")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--probability", type=float, default=0.7)
    parser.add_argument("--consistency", type=float, default=0.0)
    parser.add_argument("--limit", type=int, help="photographs of each breed")
    parser.add_argument("--renderer", nargs="+", default=["paste"], choices=["paste", "diffusion"])
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--device")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:7.1f} s  {text}", flush=True)

    if options.counts:
        sys.exit(1 if small_sets(options, say) else 0)
    from unswayed.evaluation.evaluation import run_evaluation
    from unswayed.evaluation.facts import averaged_edits, read_facts

    divide(options.pets, options.more, options.out, options.limit)
    held = open_source(f"folder:{options.out / 'held_out'}")
    benches = {}
    for renderer in options.renderer:
        benches[renderer] = options.out / f"bench-{renderer}"
        say(f"building {benches[renderer]} of {len(held)} photographs")
        settings = BuildSettings(recipe=RECIPE, renderer=renderer, workers=options.workers)
        build(held, benches[renderer], settings)
    rows: dict[str, list[list[dict]]] = {renderer: [] for renderer in benches}
    base = open_model("lite:0", device=options.device)
    # Balanced over the edits that ImageNet-E measures, the others at a quarter; objects as small as those it shows.
    weights = {"background": 1.0, "size": 1.0, "position": 1.0, "direction": 1.0}
    weights |= {"lighting": 0.25, "blur": 0.25, "color": 0.25, "occlusion": 0.25}
    for seed in range(options.seeds):
        settings = RepairSettings(
            epochs=options.epochs,
            batch_size=options.batch_size,
            patience=options.epochs,
            consistency=options.consistency,
            mixture=EditMixture(weights=weights, probability=options.probability),
            seed=seed,
        )
        folder = options.out / f"seed-{seed}"
        done = repair(
            f"folder:{options.out / 'train'}",
            base,
            folder,
            settings,
            new_head=True,
            benchmark=benches[options.renderer[0]],
            workers=options.workers,
            cache=options.out / "removed",
            note=lambda text, seed=seed: say(f"seed {seed}: {text}"),
        )
        say(f"seed {seed}: {done.verdict}: {done.reason}")
        rows[options.renderer[0]].append(done.rows)
        models = {
            name: open_model(f"repaired:{folder / part}") for name, part in (("control", "control"), ("repaired", ""))
        }
        for renderer in options.renderer[1:]:
            place = folder / f"predictions-{renderer}"
            settled = EvaluateSettings(workers=options.workers)
            run_evaluation(benches[renderer], list(models.values()), place, settled)
            answers = {arm: read_answers(place / f"{model.slug}.parquet") for arm, model in models.items()}
            edits = [edit for edit in answers["repaired"].right if edit != "original"]
            rows[renderer].append(before_and_after(answers, averaged_edits(edits, read_facts(place))))
    for renderer, found in rows.items():
        print(
            table(
                found,
                f"{renderer}: points, mean of {options.seeds} seeds (least to most); difference is repaired - control",
            )
        )
        average = [next(r for r in one if r["measure"] == "drop" and r["pictures"] == "average") for one in found]
        fall = 1 - np.mean([r["repaired"] for r in average]) / np.mean([r["control"] for r in average])
        print(f"{renderer}: the average drop falls by {fall:.0%} of the control's")
    (options.out / "rows.json").write_text(json.dumps(rows, indent=1))
    say("done")


if __name__ == "__main__":
    main()
