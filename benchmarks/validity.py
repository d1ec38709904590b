"""How often planted faults are found and good pictures flagged: the figures of docs/validity.md.

    python benchmarks/validity.py sample
    python benchmarks/validity.py "oxford-pet:FOLDER?breeds=all" --scenes 60 --trials 100
    python benchmarks/validity.py sample --renderer diffusion --steps 25 --scenes 8
    python benchmarks/validity.py sample --built BENCH

With --built the pictures are those of a benchmark that `unswayed build` made of the same source, finished or not.

Prints one line per fault: how many of the trials were flagged, and how many ordinary pictures were. The limits were
chosen on `sample`; other photographs test them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from unswayed.benchmark import BuildSettings
from unswayed.benchmark.plan import Plan
from unswayed.benchmark.prepare import Preparation
from unswayed.benchmark.quality import Evidence, is_invalid, judged
from unswayed.benchmark.rows import Row, read_rows, row_path
from unswayed.edits.recipes import open_recipe
from unswayed.rendering.layers import Layers, Rendering, composite
from unswayed.rendering.removal import open_removal
from unswayed.scene import Scene, frame
from unswayed.sources import open_source
from unswayed.sources.pictures import read_picture


@dataclass(frozen=True, eq=False)
class Picture:
    """One rendered picture with all that it is judged by."""

    row: Row
    layers: Layers
    answer: Rendering
    evidence: Evidence

    def judged(self) -> Row:
        return judged(self.row, self.layers, self.answer, self.evidence)

    def with_pixels(self, pixels: np.ndarray) -> Picture:
        changed = np.clip(np.rint(pixels), 0, 255).astype(np.uint8)
        return replace(self, answer=replace(self.answer, image=changed))


def moved(picture: Picture, rng: np.random.Generator) -> Picture | None:
    """The object drawn 3 pixels from where its mask says it is."""
    step = ((3, 0), (-3, 0), (0, 3), (0, -3))[int(rng.integers(4))]
    front, alpha = (np.roll(one, step, (0, 1)) for one in (picture.layers.object, picture.layers.alpha))
    return picture.with_pixels(composite(front, alpha, picture.answer.image))


def with_rectangle(picture: Picture, rng: np.random.Generator) -> Picture | None:
    """A rectangle of one color in the background; None where the background has no room for it."""
    free = picture.layers.alpha <= 0
    size = len(free)
    for _ in range(200):
        high, wide = rng.integers(size // 8, size // 4, 2)
        top, left = int(rng.integers(size - high)), int(rng.integers(size - wide))
        part = np.s_[top : top + high, left : left + wide]
        color = rng.integers(0, 256, 3)
        if free[part].all() and np.abs(picture.answer.image[part].mean(axis=(0, 1)) - color).max() > 50:
            pixels = picture.answer.image.copy()
            pixels[part] = color
            return picture.with_pixels(pixels)
    return None


def with_noise(picture: Picture, rng: np.random.Generator) -> Picture | None:
    """Noise of 8 gray levels in the background alone; None where there is hardly a background."""
    free = picture.layers.alpha <= 0
    if free.mean() < 0.1:
        return None
    noise = rng.normal(0, 8, picture.answer.image.shape)
    return picture.with_pixels(picture.answer.image + noise * free[..., None])


FAULTS: dict[str, Callable[[Picture, np.random.Generator], Picture | None]] = {
    "object moved by 3 pixels": moved,
    "rectangle in the background": with_rectangle,
    "noise of 8 gray levels": with_noise,
}


def half_of(scene: Scene, rng: np.random.Generator) -> Scene:
    """The scene with a mask that a straight line through its middle, at any angle, cut by half."""
    angle = rng.uniform(0, 2 * np.pi)
    high, wide = scene.mask.shape
    along = np.cos(angle) * np.arange(wide) + np.sin(angle) * np.arange(high)[:, None]
    return replace(scene, mask=scene.mask * (along > np.median(along[scene.mask > 0.5])), parts={})


class Ghostly:
    """A removal that leaves a share of the object behind, as one that failed does."""

    def __init__(self, share: float) -> None:
        self.share, self.clean = share, open_removal("patches")
        self.name = f"ghost-{share}"

    def __call__(self, image: np.ndarray, mask: np.ndarray, seed: int, label: int | None) -> np.ndarray:
        return composite(image, np.float32(self.share) * mask, self.clean(image, mask, seed, label))


def pictures(plan: Plan, preparation: Preparation, batch: int = 8) -> Iterator[Picture]:
    """Every picture of the plan, rendered but not written."""
    renderer = plan.open_renderer()
    for source_id in plan.source.ids:
        prepared = [picture for picture in preparation(source_id) if picture.layers is not None]
        for first in range(0, len(prepared), batch):
            some = prepared[first : first + batch]
            answers = renderer.render([picture.layers for picture in some])
            for picture, answer in zip(some, answers, strict=True):
                if isinstance(answer, Rendering):
                    yield Picture(picture.row, picture.layers, answer, picture.evidence)


def built_pictures(plan: Plan, preparation: Preparation) -> Iterator[Picture]:
    """Every picture of a benchmark on disk, as it was written, with the layers that it was made of."""
    for source_id in plan.source.ids:
        if not (plan.root / row_path(source_id)).is_file():
            continue
        rows = {(row.edit, row.run): row for row in read_rows(plan.root, source_id)}
        for picture in preparation(source_id):
            row = rows.get((picture.row.edit, picture.row.run))
            if row is None or row.path is None or row.seed != picture.row.seed or picture.layers is None:
                continue
            answer = Rendering(read_picture(plan.root / row.path), generated="passes" in row.measures)
            yield Picture(picture.row, picture.layers, answer, picture.evidence)


def flagged(plan: Plan, trials: int, good: list[Picture] | None = None, seed: int = 0) -> dict[str, tuple[int, int]]:
    """How many were flagged of how many: the ordinary pictures, and `trials` of each fault over all scenes.

    good: the ordinary pictures, rendered here if None.
    """
    rng = np.random.default_rng(seed)
    good = list(pictures(plan, Preparation(plan))) if good is None else good
    found = {"ordinary pictures": (sum(is_invalid(one.judged()) for one in good), len(good))}
    edited = [one for one in good if one.row.edit != "original"]
    for name, plant in FAULTS.items():
        verdicts: list[bool] = []
        while len(verdicts) < trials:
            faulty = plant(edited[int(rng.integers(len(edited)))], rng)
            if faulty is not None:
                verdicts.append(is_invalid(faulty.judged()))
        found[name] = sum(verdicts), trials
    found["ghost left by removal"] = _ghosts(plan, edited, trials, rng)
    found["mask cut by half"] = _halves(plan, good, trials, rng)
    return found


def _ghosts(plan: Plan, edited: list[Picture], trials: int, rng: np.random.Generator) -> tuple[int, int]:
    """Pictures over a background whose removal left 30 to 70 % of the object."""
    verdicts: list[bool] = []
    while len(verdicts) < trials:
        preparation = Preparation(plan, Ghostly(float(rng.uniform(0.3, 0.7))))
        for source_id in rng.permutation(plan.source.ids)[: trials - len(verdicts)]:
            made = preparation(str(source_id))
            ours = [one for one in edited if one.row.source_id == source_id and "residue" in one.evidence.left]
            if not ours:
                continue
            picture = ours[int(rng.integers(len(ours)))]
            left = max((one.evidence.left for one in made if one.evidence), key=lambda left: left.get("residue", 0.0))
            verdicts.append(is_invalid(replace(picture, evidence=replace(picture.evidence, left=left)).judged()))
    return sum(verdicts), trials


def _halves(plan: Plan, good: list[Picture], trials: int, rng: np.random.Generator) -> tuple[int, int]:
    verdicts = []
    witness = Preparation(plan).witness
    for trial in range(trials):
        scene = half_of(plan.source[plan.source.ids[trial % len(plan.source)]], rng)
        known = witness.of_source(scene, frame(scene, plan.settings.frame))
        picture = next(one for one in good if one.row.source_id == scene.id)
        evidence = replace(picture.evidence, outline=known.outline)
        verdicts.append(is_invalid(replace(picture, evidence=evidence).judged()))
    return sum(verdicts), trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="`sample`, or another source with masks")
    parser.add_argument("--renderer", choices=("paste", "diffusion"), default="paste")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--scenes", type=int, default=20)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--recipe", default="imagenet-e")
    parser.add_argument("--built", type=Path, metavar="BENCH")
    with TemporaryDirectory() as folder:
        measure(parser.parse_args(), Path(folder))


def measure(given: argparse.Namespace, folder: Path) -> None:
    """Print how many planted faults and ordinary pictures are flagged; folder: for removed objects."""
    settings = BuildSettings(renderer=given.renderer, steps=given.steps, recipe=given.recipe)
    plan = Plan(folder, open_source(given.source).select(given.scenes, None), open_recipe(given.recipe), settings)
    started = time.perf_counter()
    good = None
    if given.built is not None:
        # The rows on disk must not stand in for the layers, so they are prepared as in an empty folder.
        good = list(built_pictures(replace(plan, root=given.built), Preparation(plan)))
        done = {one.row.source_id for one in good}
        entries = tuple(entry for entry in plan.source.entries if entry.id in done)
        plan = replace(plan, source=replace(plan.source, entries=entries))
    for name, (bad, count) in flagged(plan, given.trials, good).items():
        print(f"{name}: {bad} of {count} flagged ({bad / count:.1%})", flush=True)
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
