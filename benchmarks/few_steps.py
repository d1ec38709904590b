"""How many denoising steps are enough: every sampler at few steps against 100 steps, on the embedded network.

    python benchmarks/few_steps.py sample "folder:PHOTOS?masks=MASKS" --sample 100 --everywhere dpm:20 dpm:32 dpm:50 \\
        ancestral:100 --reference dpm:100 --device cuda --no-compile --minutes 7
    python benchmarks/few_steps.py --read few_steps.parquet more.parquet       # the table and verdict of earlier runs

Renders edits of all photographs with each sampler and number of steps, classifies the pictures, and compares each with
that of the reference: accuracy and probability of the true class in points, as two one-sided tests with a margin of one
point over photographs (see equivalence.py); spectral amplitude and GLCM contrast of the background as ratios, LPIPS to
the photograph as a difference, where its weights are fetched (`unswayed weights fetch lpips-alex`). `--repeat` renders
the reference again with other seeds, which shows how far two equally good runs are apart. With --sample the whole grid
is measured on part of the photographs, and the reference and --everywhere on all of them. What was rendered last is
written after every run, so a run may be stopped, divided with --shard, and read together afterwards, also with another
--reference. Stochastic samplers draw a background anew, deterministic ones keep what guidance does not change.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import torch

from equivalence import Difference, mean_difference
from picture_quality import spectral_amplitude
from unswayed.benchmark import BuildSettings
from unswayed.benchmark.plan import Plan
from unswayed.benchmark.prepare import Preparation, PreparedPicture
from unswayed.benchmark.quality import glcm_measures
from unswayed.benchmark.serving import Address, Client, Service
from unswayed.edits.recipes import open_recipe
from unswayed.evaluation.feature_networks import lpips_file, open_lpips
from unswayed.jobs import run_tasks
from unswayed.models import open_model
from unswayed.rendering.diffusion import Diffusion, open_diffusion
from unswayed.rendering.layers import Layers, Rendering
from unswayed.rendering.sampling.samplers import SAMPLERS
from unswayed.rendering.settings import removal_of
from unswayed.sources import Source, open_source

EDITS = "original,inversion,background-simple,background-complex,background-random,reinsertion,size-0.05"
STEPS = (6, 8, 12, 16, 20, 32, 50, 100)
MARGIN = 1.0
CHUNK = 2048
TEXTURES = ("amplitude", "contrast", "lpips")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", default=["sample"])
    parser.add_argument("-o", "--output", type=Path, default=Path(os.environ.get("OUT", ".")) / "few_steps.parquet")
    parser.add_argument("--read", type=Path, nargs="+", metavar="FILE", help="only the table of these earlier runs")
    parser.add_argument("--recipe", default=EDITS, help="`original` and edits [default: %(default)s]")
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS)
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS))
    parser.add_argument("--everywhere", nargs="+", default=[], metavar="SAMPLER:STEPS", help="on all photographs")
    parser.add_argument("--reference", default="ancestral:100", metavar="SAMPLER:STEPS", help="[default: %(default)s]")
    parser.add_argument("--repeat", type=int, default=1, help="further seeds of the reference [default: 1]")
    parser.add_argument("--models", nargs="+", default=["lite:0", "lite:2"])
    parser.add_argument("--limit", type=int, help="only so many photographs of each source")
    parser.add_argument("--sample", type=int, help="the grid on so many photographs of each source [default: all]")
    parser.add_argument("--textures", type=int, help="contrast and LPIPS of so many of them [default: all]")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no further run after so long")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="only the I-th of N parts of the photographs")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help="takes a minute [default: on a GPU]")
    parser.add_argument("--device")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if not options.read:
        measure(options)
        options.read = [options.output]
    summary = tables(pictures_of(options.read), (*pair_of(options.reference), 0))
    options.read[0].with_suffix(".json").write_text(json.dumps(summary, indent=1) + "\n")


def measure(options: argparse.Namespace) -> None:
    """Render and measure; the file has one row per picture and is written again after every run."""
    started = time.perf_counter()
    guide = "lite:2" if any("guide" in item.needs for item in open_recipe(options.recipe).items) else None
    diffusion = open_diffusion(
        steps=100, sampler="ancestral", device=options.device, batch_size=options.batch_size, guide=guide,
        compile=options.compile,
    )  # fmt: skip
    say(f"the network is loaded after {time.perf_counter() - started:.0f} s")
    prepared = [one for spec in options.sources for one in compositions(spec, diffusion, options)]
    say(f"{len(prepared)} pictures composed after {time.perf_counter() - started:.0f} s")
    measures = Measures(options, diffusion, prepared)
    rows: dict[str, list[Any]] = {}
    for sampler, steps, seed, everywhere in runs(options):
        since = time.perf_counter()
        if since - started > 60 * options.minutes:
            say(f"{sampler} {steps} and what follows it are left out: {options.minutes:g} minutes are over")
            break
        some = [one for one in prepared if everywhere or one.in_grid]
        for chosen, images in rendered(measures, some, sampler, steps, seed):
            found = measures.of(chosen, images)
            found |= {"sampler": [sampler] * len(chosen), "steps": [steps] * len(chosen), "seed": [seed] * len(chosen)}
            for name, values in found.items():
                rows.setdefault(name, []).extend(values)
        write(options.output, rows)
        now = time.perf_counter()
        say(f"{sampler} {steps} (seed {seed}): {now - since:.1f} s, after {now - started:.0f} s")


def runs(options: argparse.Namespace) -> list[tuple[str, int, int, bool]]:
    """(sampler, steps, seed, on all photographs) of every run; `original` is the photographs themselves."""
    reference = pair_of(options.reference)
    everywhere = [("original", 0, 0), *((*reference, seed) for seed in range(options.repeat + 1))]
    everywhere += [(*pair_of(one), 0) for one in options.everywhere]
    grid = [(sampler, steps, 0) for sampler in options.samplers for steps in options.steps]
    return [(*run, run in everywhere) for run in dict.fromkeys([*everywhere, *grid])]


def pair_of(text: str) -> tuple[str, int]:
    """`dpm:20` as ("dpm", 20)."""
    sampler, _, steps = text.partition(":")
    return sampler, int(steps)


@dataclass(frozen=True, eq=False)
class Composed:
    """One picture to be rendered; in_grid: whether all samplers render it; texture: whether its texture is measured."""

    photograph: str
    edit: str
    layers: Layers
    in_grid: bool
    texture: bool


class Composing:
    """The worker that composes a photograph's pictures; the process with the network removes the objects."""

    def __init__(self, plan: Plan, service: Address) -> None:
        self.plan, self.service = plan, service

    def __call__(self, source_id: str) -> list[PreparedPicture]:
        return self.preparation(source_id)

    @cached_property
    def preparation(self) -> Preparation:
        return Preparation(self.plan, Client(self.service))


def compositions(spec: str, diffusion: Diffusion, options: argparse.Namespace) -> list[Composed]:
    """The pictures of one source's shard, composed in processes."""
    part, parts = map(int, options.shard.split("/"))
    source = open_source(spec, limit=options.limit)
    grid = _drawn(source, options.sample)
    texture = grid if options.textures is None else grid & _drawn(source, options.textures)
    ids = [entry.id for entry in source.entries if entry.label is not None][part - 1 :: parts]
    settings = BuildSettings(recipe=options.recipe, quality="off", device=options.device)
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(Path(folder), source, open_recipe(options.recipe), settings)
        with Service(diffusion, removal_of(settings)) as service:
            tasks = run_tasks(Composing(plan, service.address), ids, options.workers, apart=True)
            outcomes = {outcome.task: outcome for outcome in service.run(tasks)}
    for outcome in outcomes.values():
        if outcome.result is None:
            say(f"{spec}: {outcome.task} is left out: {outcome.failure}")
    name = spec.partition(":")[0]
    return [
        Composed(
            f"{name}/{source_id}",
            picture.row.edit,
            picture.layers,
            source_id in grid,
            source_id in texture,
        )
        for source_id in ids
        for picture in outcomes[source_id].result or ()
        if picture.layers is not None
    ]


def _drawn(source: Source, count: int | None) -> set[str]:
    """The ids of so many photographs, evenly over the classes; a larger number holds the smaller one."""
    return set(source.ids if count is None else source.select(sample=min(count, len(source))).ids)


def rendered(
    measures: Measures, prepared: Sequence[Composed], sampler: str, steps: int, seed: int
) -> Iterator[tuple[list[Composed], list[np.ndarray]]]:
    """Yield pictures with what they were made of; those that cannot be made in so few steps are left out."""
    wanted = [one for one in prepared if (one.edit == "original") == (sampler == "original")]
    if sampler == "original":
        yield wanted, [one.layers.background for one in wanted]
        return
    renderer = replace(measures.diffusion, sampler=sampler, steps=steps)
    # Pictures with as many passes are rendered together, so that few slots are empty at the end of a part.
    wanted.sort(key=lambda one: (-one.layers.start, one.edit))
    for first in range(0, len(wanted), CHUNK):
        some = wanted[first : first + CHUNK]
        answers = renderer.render([replace(one.layers, seed=one.layers.seed + seed) for one in some])
        made = [(one, answer.image) for one, answer in zip(some, answers, strict=True) if isinstance(answer, Rendering)]
        if made:
            yield [one for one, _ in made], [image for _, image in made]


class Measures:
    """The network, compiled once, and the classifiers and distances that judge its pictures."""

    def __init__(self, options: argparse.Namespace, diffusion: Diffusion, prepared: Sequence[Composed]) -> None:
        self.diffusion = diffusion
        self.models = {name: open_model(name, device=options.device) for name in options.models}
        self.originals = {one.photograph: one.layers.background for one in prepared if one.edit == "original"}
        weights = lpips_file()
        self.distance = None if weights is None else open_lpips(weights)
        self.threads = ThreadPoolExecutor(options.workers)
        if weights is None:
            say("LPIPS is left out: its weights are not here (unswayed weights fetch lpips-alex)")

    def of(self, prepared: Sequence[Composed], images: Sequence[np.ndarray]) -> dict[str, list[Any]]:
        """Columns of one row per picture."""
        textures = zip(*self.threads.map(self._texture, prepared, images), strict=True)
        found: dict[str, list[Any]] = {
            "photograph": [one.photograph for one in prepared],
            "edit": [one.edit for one in prepared],
            **dict(zip(TEXTURES, map(list, textures), strict=True)),
        }
        for name, model in self.models.items():
            found |= self._answers(name, model, [int(one.layers.label or 0) for one in prepared], images)
        return found

    def _texture(self, composed: Composed, image: np.ndarray) -> tuple[float, float, float]:
        """Spectral amplitude, contrast of the background and LPIPS to the photograph; NaN where not measured."""
        if not composed.texture:
            return (float("nan"),) * 3
        amplitude = float(spectral_amplitude(image[None] / 255)[0])
        contrast = glcm_measures(image, composed.layers.alpha)["contrast"]
        distance = self.distance and self.distance(self.originals[composed.photograph], image)
        return amplitude, contrast, float("nan") if distance is None else distance

    def _answers(
        self, name: str, model: Any, labels: Sequence[int], images: Sequence[np.ndarray]
    ) -> dict[str, list[Any]]:
        parts = []
        for first in range(0, len(images), 256):
            batch = torch.stack(list(self.threads.map(model.prepare, images[first : first + 256])))
            parts.append(model.logits(batch).float().softmax(1).cpu())
        probabilities = torch.cat(parts).numpy()
        true = probabilities[np.arange(len(labels)), labels]
        correct = probabilities.argmax(1) == np.array(labels)
        return {f"{name} correct": correct.tolist(), f"{name} probability": true.tolist()}


def write(path: Path, rows: dict[str, list[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    pyarrow.parquet.write_table(pyarrow.table(rows), part, compression="zstd")
    part.replace(path)


def pictures_of(paths: Sequence[Path]) -> dict[str, np.ndarray]:
    """The columns of all files, every picture once."""
    table = pyarrow.concat_tables([pyarrow.parquet.read_table(path) for path in paths])
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    keys = zip(*(columns[name] for name in ("photograph", "edit", "sampler", "steps", "seed")), strict=True)
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    chosen = np.array(sorted(first.values()))
    return {name: values[chosen] for name, values in columns.items()}


def tables(columns: dict[str, np.ndarray], reference: tuple[str, int, int]) -> dict[str, Any]:
    """Print the table of every run against the reference and the verdict; return both."""
    place = {
        key: number
        for number, key in enumerate(
            zip(*(columns[name] for name in ("photograph", "edit", "sampler", "steps", "seed")), strict=True)
        )
    }
    models = [name.removesuffix(" correct") for name in columns if name.endswith(" correct")]
    keys = zip(columns["sampler"], columns["steps"].tolist(), columns["seed"].tolist(), strict=True)
    found = []
    for run in sorted(set(keys) - {reference, ("original", 0, 0)}, key=lambda one: (one[2], one[0], one[1])):
        pairs = [
            (number, place[photograph, edit, *reference], place[photograph, "original", "original", 0, 0])
            for (photograph, edit, *key), number in place.items()
            if tuple(key) == run and (photograph, edit, *reference) in place
        ]
        found.append(compared(run, columns, np.array(pairs), models))
    print(f"{'sampler':10} {'steps':>5} {'n':>5} {'accuracy, points':>25} {'true class, points':>25} "
          f"{'amplitude':>9} {'contrast':>8} {'LPIPS':>7}  verdict")  # fmt: skip
    for row in found:
        again = " again" if row["seed"] else ""
        print(f"{row['sampler'] + again:10} {row['steps']:5} {row['n']:5} {row['accuracy']['shown']:>25} "
              f"{row['probability']['shown']:>25} {row['amplitude']:9.3f} {row['contrast']:8.3f} "
              f"{row['lpips']:+7.3f}  {row['verdict']}")  # fmt: skip
    enough = sorted(
        (row["steps"], row["sampler"]) for row in found if row["verdict"] == "equivalent" and not row["seed"]
    )
    print(f"reference: {reference[1]} steps of {reference[0]}; intervals of 90 %, over photographs")
    print(f"smallest number of steps that is equivalent within ±{MARGIN:g} point: {enough[0] if enough else 'none'}")
    return {"reference": reference[:2], "margin": MARGIN, "models": models, "rows": found, "equivalent": enough}


def compared(
    run: tuple[str, int, int], columns: dict[str, np.ndarray], pairs: np.ndarray, models: list[str]
) -> dict[str, Any]:
    """One run against the reference: pairs (N, 3) are places of its pictures, of the reference's and of originals."""
    mine, theirs, originals = pairs.T
    photograph = np.tile(columns["photograph"][mine], len(models))
    edits = np.tile(columns["edit"][mine], len(models))

    def points(kind: str) -> tuple[np.ndarray, float]:
        """Differences in points for every picture and model, and the mean drop of this run."""
        values = [100 * columns[f"{model} {kind}"].astype(float) for model in models]
        drop = np.mean([(one[originals] - one[mine]).mean() for one in values])
        return np.concatenate([one[mine] - one[theirs] for one in values]), float(drop)

    row: dict[str, Any] = {"sampler": run[0], "steps": run[1], "seed": run[2]}
    verdicts: list[str] = []
    for kind, name in (("correct", "accuracy"), ("probability", "probability")):
        difference, drop = points(kind)
        whole = mean_difference(photograph, difference)
        row["n"] = whole.n
        row[name] = {**described(whole), "drop": drop, "edits": {}, "models": {}}
        verdicts.append(whole.verdict(MARGIN))
        for edit in np.unique(edits):
            here = edits == edit
            row[name]["edits"][str(edit)] = described(mean_difference(photograph[here], difference[here]))
        for number, model in enumerate(models):
            here = np.s_[number * len(mine) : (number + 1) * len(mine)]
            row[name]["models"][model] = described(mean_difference(photograph[here], difference[here]))
    for name in ("amplitude", "contrast"):
        row[name] = float(np.nanmedian(columns[name][mine] / np.maximum(columns[name][theirs], 1e-12)))
    measured = (further := columns["lpips"][mine] - columns["lpips"][theirs])[np.isfinite(further)]
    row["lpips"] = float(measured.mean()) if len(measured) else float("nan")
    single = {one["verdict"] for name in ("accuracy", "probability") for one in row[name]["edits"].values()}
    # Pooled equivalence is not enough where one edit differs for certain and others hide it.
    if "different" in verdicts or "different" in single:
        row["verdict"] = "different"
    else:
        row["verdict"] = "equivalent" if set(verdicts) == {"equivalent"} else "cannot tell"
    return row


def described(difference: Difference) -> dict[str, Any]:
    return {
        "mean": difference.mean, "low": difference.low, "high": difference.high, "n": difference.n,
        "verdict": difference.verdict(MARGIN), "photographs needed": difference.needed(MARGIN),
        "shown": str(difference),
    }  # fmt: skip


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
