"""What networks do to photographs: the cost of rendering alone, filled holes, complexity, distance, time of a pass.

    python benchmarks/network_quality.py sample                                # the embedded network
    python benchmarks/network_quality.py folder:PHOTOS --network OLD_FOLDER    # and another one, in the same run
    python benchmarks/network_quality.py folder:PHOTOS --code CHECKOUT         # and another version of the package
    python benchmarks/network_quality.py folder:PHOTOS --benchmark old=BENCH   # and one that was built before
    python benchmarks/network_quality.py sample --parts filling --lpips FILE --removal patches --removal onnx:migan.onnx

Everything at once, for this version and the one whose network was trained on research photographs:

    git worktree add earlier 489aed8
    python benchmarks/network_quality.py "folder:PHOTOS?masks=MASKS" --code earlier --device cuda \\
        --lpips FILE --inception FILE

FILE is where `unswayed weights fetch lpips-alex` and `unswayed weights fetch inception` put their weights. `--limit N`
takes N photographs. Needs torch-fidelity for the part `distance`, and neither polars nor diffusers.

Each part prints one line per network (or removal method) and measure, with 95 % intervals over photographs, and to
stderr how long it took:
cost: points of accuracy that classifiers lose where the network only has to give a picture back (inversion) or to put
its object back into a filled hole (reinsertion), and beyond that by simple and complex backgrounds.
complexity: in how many photographs λ = −20 is simpler and λ = +20 more complex than the original, in every octave band.
filling: holes of the shape of other scenes' objects, cut into the background, against what was there.
distance: FID and KID between inverted pictures and their originals (needs --inception FILE).
time: one pass of the network, for one picture on a CPU and for a batch on a GPU.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import cv2
import numpy as np
import pyarrow.parquet as pq
import torch

import unswayed
from unswayed.analyses.distribution import frechet_distance, kernel_distance
from unswayed.benchmark.quality import BANDS, band_amplitudes, glcm_measures
from unswayed.edits.geometry import resized
from unswayed.evaluation.feature_networks import open_inception, open_lpips
from unswayed.jobs.resources import one_thread
from unswayed.rendering.networks.loading import load_network
from unswayed.rendering.removal import open_removal
from unswayed.scene import frame
from unswayed.sources import open_source

PARTS = ("cost", "complexity", "filling", "distance", "time")
EDITS = ("inversion", "reinsertion", "background-simple", "background-complex")
CONTROL = {"background-simple": "inversion", "background-complex": "inversion"}
NEEDED = {"cost": EDITS, "complexity": tuple(CONTROL), "distance": ("inversion",)}


class Pictures:
    """A benchmark's pictures and masks by edit and photograph."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        rows = pq.read_table(self.folder / "manifest.parquet").to_pylist()
        self.rows = {(row["edit"], row["source_id"]): row for row in rows if row["status"] == "ok" and not row["run"]}
        self.ids = sorted(source for edit, source in self.rows if edit == "original")

    def picture(self, edit: str, source: str) -> np.ndarray:
        return cv2.imread(str(self.folder / self.rows[edit, source]["path"]))[..., ::-1]

    def mask(self, source: str) -> np.ndarray:
        path = self.folder / "masks" / Path(self.rows["original", source]["path"]).relative_to("images")
        return cv2.imread(str(path), cv2.IMREAD_GRAYSCALE) / np.float32(255)

    def all(self, edit: str, sources: list[str]) -> list[np.ndarray]:
        with ThreadPoolExecutor() as threads:
            return list(threads.map(partial(self.picture, edit), sources))

    def both(self, *edits: str) -> list[str]:
        """The photographs that have all of these edits."""
        return [source for source in self.ids if all((edit, source) in self.rows for edit in edits)]


def interval(values: np.ndarray) -> str:
    """The mean with a bootstrap interval."""
    draws = np.random.default_rng(0).integers(0, len(values), (4000, len(values)))
    low, high = np.quantile(np.asarray(values)[draws].mean(axis=1), (0.025, 0.975))
    return f"{np.mean(values):.4g} ({low:.4g} to {high:.4g})"


def answers(model: unswayed.Classifier, pictures: Iterable[np.ndarray]) -> np.ndarray:
    with ThreadPoolExecutor() as threads:
        prepared = list(threads.map(model.prepare, pictures))
    with torch.no_grad():
        parts = [model.logits(torch.stack(prepared[i : i + 64])).argmax(dim=1) for i in range(0, len(prepared), 64)]
    return torch.cat(parts).cpu().numpy()


def cost(sets: dict[str, Pictures], models: list[str], device: str | None) -> None:
    for name in models:
        model = unswayed.open_model(name, device=device)
        for title, pictures in sets.items():
            ids = pictures.both("original", *EDITS)
            true = np.array([pictures.rows["original", source]["label"] for source in ids])
            right = {edit: 100.0 * (answers(model, pictures.all(edit, ids)) == true) for edit in ("original", *EDITS)}
            print(f"cost, {title}, {name}: original {right['original'].mean():.1f} % of {len(ids)} photographs")
            for edit in EDITS:
                line = f"cost, {title}, {name}: {edit} {interval(right['original'] - right[edit])} points"
                if edit in CONTROL:
                    line += f", beyond {CONTROL[edit]} {interval(right[CONTROL[edit]] - right[edit])}"
                print(line, flush=True)


def moves(pictures: Pictures, edit: str, source: str) -> tuple[np.ndarray, list[float]]:
    """log2 of how much the background's amplitude grew in each octave band, and GLCM contrast before and after."""
    mask = pictures.mask(source)
    before, after = (pictures.picture(name, source) for name in ("original", edit))
    grown = np.log2(band_amplitudes(after, mask) / band_amplitudes(before, mask))
    return grown, [glcm_measures(picture, mask)["contrast"] for picture in (before, after)]


def complexity(sets: dict[str, Pictures]) -> None:
    for title, pictures in sets.items():
        for edit, sign in (("background-simple", -1), ("background-complex", 1)):
            ids = pictures.both("original", edit)
            with ThreadPoolExecutor() as threads:
                moved, contrast = zip(*threads.map(partial(moves, pictures, edit), ids), strict=True)
            octaves = sign * np.stack(moved)
            shares = ", ".join(
                f"{low:g}: {share:.3f}" for (low, _), share in zip(BANDS, (octaves > 0).mean(axis=0), strict=True)
            )
            values = np.array(contrast)
            print(
                f"complexity, {title}, {edit}: right way in all bands in {(octaves > 0).all(axis=1).mean():.3f} of "
                f"{len(ids)} photographs (by band, from cycles per pixel: {shares}); median of log2 by band "
                f"{np.round(sign * np.median(octaves, axis=0), 2).tolist()}; GLCM contrast "
                f"{values[:, 0].mean():.2f} → {values[:, 1].mean():.2f}, right way in "
                f"{(sign * (values[:, 1] - values[:, 0]) > 0).mean():.3f}",
                flush=True,
            )


def holes_in_background(spec: str, limit: int | None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Framed pictures (256, 256, 3), each with the silhouette of another scene's object where it shows background."""
    rng = np.random.default_rng(0)
    scenes = [frame(scene) for scene in open_source(spec, limit=limit)]
    masks = [resized(scene.mask, 256) > 0.5 for scene in scenes]
    shapes = [mask[np.ix_(mask.any(axis=1), mask.any(axis=0))].astype(np.uint8) for mask in masks if mask.any()]
    chosen = []
    for scene, mask in zip(scenes, masks, strict=True):
        covered = cv2.dilate(mask.astype(np.uint8), np.ones((9, 9))) > 0
        for _ in range(60):
            shape = shapes[rng.integers(len(shapes))]
            factor = np.sqrt(np.exp(rng.uniform(np.log(0.03), np.log(0.3))) * 65536 / max(shape.sum(), 1))
            high, wide = (max(int(side * factor), 1) for side in shape.shape)
            if max(high, wide) > 240:
                continue
            top, left = rng.integers(0, 257 - high), rng.integers(0, 257 - wide)
            hole = np.zeros((256, 256), bool)
            hole[top : top + high, left : left + wide] = cv2.resize(
                shape, (wide, high), interpolation=cv2.INTER_NEAREST
            )
            if (hole & covered).sum() < 100:
                chosen.append((cv2.resize(scene.image, (256, 256), interpolation=cv2.INTER_AREA), hole))
                break
    return chosen


def elsewhere(code: Path, *arguments: object) -> subprocess.Popen:
    """Begin another_version.py with the package of another checkout."""
    script = Path(__file__).with_name("another_version.py")
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    paths = os.pathsep.join([str(code / "src"), *others])
    words = ["" if word is None else str(word) for word in arguments]
    return subprocess.Popen([sys.executable, str(script), *words], env={**os.environ, "PYTHONPATH": paths})


def ended(process: subprocess.Popen) -> None:
    if process.wait():
        raise SystemExit(f"{process.args} ended with {process.returncode}")


def filled_elsewhere(code: Path, pictures: np.ndarray, holes: np.ndarray, device: str | None) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "holes.npz"
        np.savez(path, pictures=pictures, holes=holes)
        ended(elsewhere(code, "fill", "diffusion", path, device))
        return np.load(path)["filled"]


def removed(method: str, picture: np.ndarray, mask: np.ndarray, seed: int) -> np.ndarray:
    torch.set_num_threads(1)
    return open_removal(method)(picture, mask, seed, None)


def filling(arguments: argparse.Namespace, methods: list[str]) -> None:
    spec, limit, weights, device = arguments.source, arguments.limit, arguments.lpips, arguments.device
    chosen = holes_in_background(spec, limit)
    originals = np.stack([picture for picture, _ in chosen])
    critic = None if weights is None else open_lpips(weights)
    reference: dict[str, np.ndarray] = {}
    codes = {f"diffusion of {code}": code for code in arguments.code}
    masks = [hole.astype(np.float32) for _, hole in chosen]
    for method in [*methods, *codes]:
        removal = None if method in codes else open_removal(method, device)
        if removal is None:
            filled = filled_elsewhere(codes[method], originals, np.stack(masks), device)
        elif hasattr(removal, "remove"):
            filled = np.stack(removal.remove(list(originals), masks, list(range(len(chosen)))))
        else:
            with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
                filled = np.stack(list(pool.map(partial(removed, method), originals, masks, range(len(chosen)))))
        color = np.array(
            [
                np.abs(after[hole].mean(axis=0) - before[hole].mean(axis=0)).mean()
                for after, (before, hole) in zip(filled, chosen, strict=True)
            ]
        )
        measures = {"color error of the hole's mean, levels of 255": color}
        if critic is not None:
            with one_thread(), ThreadPoolExecutor() as threads:
                measures["LPIPS"] = np.array(list(threads.map(critic, filled, originals)))
        for measure, values in measures.items():
            line = f"filling, {method}: {measure} {interval(values)} over {len(chosen)} holes"
            if measure in reference:
                line += f", against {methods[0]} {interval(values - reference[measure])}"
            reference.setdefault(measure, values)
            print(line, flush=True)


def distance(sets: dict[str, Pictures], inception: Path | None, device: str | None) -> None:
    if inception is None:
        print("distance: not measured, no --inception FILE")
        return
    network = open_inception(inception, device or "cpu")
    for title, pictures in sets.items():
        ids = pictures.both("original", "inversion")
        features = []
        for edit in ("original", "inversion"):
            batch = torch.from_numpy(np.stack(pictures.all(edit, ids))).permute(0, 3, 1, 2)
            parts = [network(part.to(device or "cpu"))[0].cpu() for part in batch.split(32)]
            features.append(torch.cat(parts).double().numpy())
        kernel, deviation = kernel_distance(*features)
        print(
            f"distance, {title}: FID {frechet_distance(*features):.2f}, KID × 1,000 {1000 * kernel:.2f} (standard "
            f"deviation over subsets {1000 * deviation:.2f}), {len(ids)} photographs",
            flush=True,
        )


def time_of_a_pass(networks: list[str]) -> None:
    for name in networks:
        for device, batch, precision in (("cpu", 1, torch.float32), ("cuda", 64, torch.bfloat16)):
            if device == "cuda" and not torch.cuda.is_available():
                continue
            network = load_network(name).on(torch.device(device), precision)
            noise = torch.randn(batch, 3, 256, 256, device=device)
            times = []
            for _ in range(8):
                begin = time.perf_counter()
                network(noise, 500.0)
                if device == "cuda":
                    torch.cuda.synchronize()
                times.append(time.perf_counter() - begin)
            print(
                f"time, {name}: {1000 * min(times[2:]) / batch:.2f} ms per picture on {device}, batch {batch}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "source", help="photographs with masks and ImageNet labels, none of which a network was trained on"
    )
    parser.add_argument("--network", action="append", default=[], help="besides the embedded one")
    parser.add_argument("--code", type=Path, action="append", default=[], metavar="CHECKOUT")
    parser.add_argument("--benchmark", action="append", default=[], metavar="NAME=BENCH")
    parser.add_argument("--model", action="append", help="classifiers [lite:0, lite:1, lite:2]")
    parser.add_argument("--removal", action="append", help="the first is the reference [patches, diffusion]")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--limit", type=int)
    parser.add_argument("--device")
    parser.add_argument("--lpips", type=Path)
    parser.add_argument("--inception", type=Path)
    parser.add_argument("-o", "--out", type=Path, help="keep the benchmarks in this folder")
    arguments = parser.parse_args()
    parts, networks = arguments.parts.split(","), ["compact", *arguments.network]
    folder = arguments.out or Path(tempfile.mkdtemp())
    sets = {}
    needed = {edit for part in parts for edit in NEEDED.get(part, ())}
    if needed:
        recipe = ",".join(("original", *(edit for edit in EDITS if edit in needed)))
        other = [
            elsewhere(code, "build", arguments.source, folder / code.name, recipe, arguments.limit, arguments.device)
            for code in arguments.code
        ]
        for number, network in enumerate(networks):
            begin = time.perf_counter()
            unswayed.build(arguments.source, folder / str(number), recipe=recipe, network=network,
                           limit=arguments.limit, device=arguments.device)  # fmt: skip
            say(f"built with {network} in {time.perf_counter() - begin:.0f} s")
            sets[network] = Pictures(folder / str(number))
        for code, process in zip(arguments.code, other, strict=True):
            ended(process)
            say(f"built with {code}")
            sets[str(code)] = Pictures(folder / code.name)
        sets |= {name: Pictures(bench) for name, _, bench in (text.partition("=") for text in arguments.benchmark)}
    models, removals = arguments.model or ["lite:0", "lite:1", "lite:2"], arguments.removal or ["patches", "diffusion"]
    timed = [*networks, *(str(code / "src/unswayed/data/network") for code in arguments.code)]
    measures: dict[str, Callable[[], None]] = {
        "cost": lambda: cost(sets, models, arguments.device),
        "complexity": lambda: complexity(sets),
        "filling": lambda: filling(arguments, removals),
        "distance": lambda: distance(sets, arguments.inception, arguments.device),
        "time": lambda: time_of_a_pass(timed),
    }
    for part in parts:
        begin = time.perf_counter()
        measures[part]()
        say(f"{part} measured in {time.perf_counter() - begin:.0f} s")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
