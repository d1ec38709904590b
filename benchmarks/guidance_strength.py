"""What λ does with a trained network, by sampler and number of steps: the numbers behind guidance.RESPONSE.

    python benchmarks/guidance_strength.py                          # complexity: every sampler at 20 and 100 steps
    python benchmarks/guidance_strength.py --steps 20 --scenes 4    # quicker, without a GPU
    python benchmarks/guidance_strength.py --adversarial --photographs sample folder:pets --held-out folder:other-pets

Complexity: nothing is kept of the pictures (an empty mask), start 0.5. Printed are medians over scenes of the ratio to
λ = 0, and the response that would make this sampler's effect that of 100 ancestral steps.

Adversarial (λ = 20, start 0.5, the objects kept): several multiples of the code's factor of λ are tried with every pair
of sampler and number of steps. The `loss` of a guide is the mean over photographs of a sigmoid of twice its margin,
the best other class's logit minus that of the true one: a smooth error. Printed are, for each, the rise of that loss
over the originals, drops in points, and spectral amplitude relative to λ = 0; the factor whose loss rises by --target,
and the constants that follow; then the drops on the held-out photographs with those constants (with --verify: with the
constants in the code).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from picture_quality import spectral_amplitude
from unswayed.benchmark.quality import glcm_measures
from unswayed.edits.composition import Guidance
from unswayed.models import open_model
from unswayed.rendering import load_network
from unswayed.rendering.diffusion import open_diffusion
from unswayed.rendering.layers import Layers
from unswayed.rendering.sampling import guidance
from unswayed.rendering.sampling.samplers import SAMPLERS, find_sampler
from unswayed.rendering.settings import DEFAULT_GUIDE
from unswayed.scene import frame
from unswayed.sources import open_source
from unswayed.specs import split_specs

LAMBDA, SIZE = 20.0, 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(os.environ.get("OUT", ".")) / "guidance_strength.json"
    )
    parser.add_argument("--network", default="compact")
    parser.add_argument("--steps", type=int, nargs="+")
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS))
    parser.add_argument("--scenes", type=int, help="of each source [default: all]")
    parser.add_argument("--start", type=float, default=0.5)
    parser.add_argument("--device")
    parser.add_argument("--adversarial", action="store_true", help="calibrate the adversarial guidance")
    parser.add_argument("--photographs", nargs="+", default=["sample"], help="sources, as `unswayed build` takes them")
    parser.add_argument("--held-out", nargs="+", default=[], help="sources on which the result is checked")
    parser.add_argument("--guide", default=DEFAULT_GUIDE)
    parser.add_argument("--others", nargs="+", default=["lite:0"], help="classifiers that the guide does not know")
    parser.add_argument("--pairs", nargs="+", help="sampler:steps, such as dpm:20 [default: all at 20, 50 and 100]")
    parser.add_argument("--multiples", type=float, nargs="+", default=[0.5, 1, 2], help="of the code's own factor")
    parser.add_argument("--target", type=float, default=0.2, help="the rise of the guide's loss")
    parser.add_argument("--verify", action="store_true", help="do not calibrate, only check the held-out photographs")
    parser.add_argument("--sheet", type=Path, help="a JPEG of eight held-out photographs and their edits")
    options = parser.parse_args()
    if options.adversarial:
        rows = Attack(options).run()
    else:
        rows = complexity(options)
    options.output.write_text(json.dumps(rows, indent=1) + "\n")


def complexity(options: argparse.Namespace) -> list[dict[str, Any]]:
    scenes = [frame(scene).image for name in options.photographs for scene in open_source(name, limit=options.scenes)]
    pictures = [cv2.resize(image, (SIZE, SIZE), interpolation=cv2.INTER_AREA) for image in scenes]
    network = load_network(options.network)
    rows, reference = [], None
    for steps in sorted(options.steps or [20, 100], reverse=True):
        for sampler in options.samplers:
            renderer = open_diffusion(network, steps=steps, sampler=sampler, device=options.device)
            row = measured(renderer, pictures, options.start)
            if (sampler, steps) == ("ancestral", 100):
                reference = row["effect"]
            row = {"sampler": sampler, "steps": steps, **row}
            if reference is not None:
                row["response"] = guidance._response("complexity", steps, sampler) * row["effect"] / reference
            rows.append(shown(row))
    return rows


def measured(renderer, pictures: list[np.ndarray], start: float) -> dict[str, float]:
    """Ratios of spectral amplitude, contrast and dissimilarity to those at λ = 0, and half their span in logarithms."""
    empty = np.zeros(pictures[0].shape[:2], np.float32)
    strengths = (0.0, -LAMBDA, LAMBDA)
    batch = [
        Layers(p, empty, p, start, Guidance("complexity", s) if s else None, None, seed, needs_network="measured")
        for s in strengths
        for seed, p in enumerate(pictures)
    ]
    images = np.stack([answer.image for answer in renderer.render(batch)]).reshape(3, len(pictures), *pictures[0].shape)
    measures = {"amplitude": np.stack([spectral_amplitude(one / 255) for one in images])}
    for name in ("contrast", "dissimilarity"):
        measures[name] = np.array([[glcm_measures(image, empty)[name] for image in one] for one in images])
    row: dict[str, float] = {
        "kept": float(np.median(measures["amplitude"][0] / spectral_amplitude(np.stack(pictures) / 255)))
    }
    for name, (zero, low, high) in measures.items():
        row[f"{name}-20"], row[f"{name}+20"] = float(np.median(low / zero)), float(np.median(high / zero))
    row["effect"] = float(np.log(row["amplitude+20"] / row["amplitude-20"]) / 2)
    return row


class Attack:
    """The adversarial calibration: one network and its classifiers, opened once."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.network = load_network(options.network)
        self.guides = split_specs(options.guide)
        self.models = {name: open_model(name, device=options.device) for name in [*self.guides, *options.others]}
        self.last = np.zeros((0, SIZE, SIZE, 3), np.uint8)

    def run(self) -> list[dict[str, Any]]:
        options, rows = self.options, []
        if not options.verify:
            scenes = self.scenes(options.photographs)
            everything = [f"{sampler}:{steps}" for sampler in SAMPLERS for steps in (20, 50, 100)]
            factors: dict[tuple[str, int], float] = {}
            for sampler, _, steps in (pair.partition(":") for pair in options.pairs or everything):
                curve = self.curve(scenes, sampler, int(steps))
                found = needed([row["factor"] for row in curve], [row["loss"] for row in curve], options.target)
                factors[sampler, int(steps)] = found
                rows += [*curve, shown({"sampler": sampler, "steps": int(steps), "needed": found})]
            settle(factors, options.start)
            constants = {"STRENGTH": guidance.STRENGTH["adversarial"], "RESPONSE": guidance.RESPONSE["adversarial"]}
            rows.append(shown(constants))
        if options.held_out:
            scenes = self.scenes(options.held_out)
            lines = [[picture for picture, _, _ in scenes]]
            for steps in options.steps or (20, 50, 100):
                sampler = find_sampler("auto", steps).name
                rows += self.curve(scenes, sampler, steps, calibrated=True)
                lines.append(list(self.last))
            if options.sheet is not None:
                sheet = np.concatenate([np.concatenate(line[:: len(scenes) // 8 or 1][:8], axis=1) for line in lines])
                cv2.imwrite(str(options.sheet), sheet[..., ::-1])
        return rows

    def scenes(self, sources: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray, int]]:
        """Pictures (S, S, 3), masks (S, S) and labels of every labeled scene of the sources."""
        found = []
        for source in sources:
            for scene in open_source(source, limit=self.options.scenes):
                if scene.label is not None:
                    framed = frame(scene)
                    picture, mask = (
                        cv2.resize(one, (SIZE, SIZE), interpolation=cv2.INTER_AREA)
                        for one in (framed.image, framed.mask)
                    )
                    found.append((picture, mask, scene.label))
        return found

    def curve(self, scenes: list[Any], sampler: str, steps: int, calibrated: bool = False) -> list[dict[str, Any]]:
        """One row per factor of λ; calibrated: the constants' own factor alone."""
        renderer = open_diffusion(
            self.network, steps, sampler, self.options.guide, self.options.device, guidance="calibrated", compile=False
        )
        built_in = guidance.calibration("adversarial", self.options.start, steps, sampler)
        zero = self.rendered(renderer, scenes, 0.0)
        before, plain = self.judged(scenes, [picture for picture, _, _ in scenes]), self.judged(scenes, zero)
        rows = []
        for factor in [built_in] if calibrated else [built_in * one for one in self.options.multiples]:
            images = self.rendered(renderer, scenes, LAMBDA * factor / built_in)
            after = self.judged(scenes, images)
            row = {
                "sampler": sampler, "steps": steps, "n": len(scenes), "factor": factor,
                "loss": float(np.mean([after[name][0] - before[name][0] for name in self.guides])),
                "amplitude": float(np.median(spectral_amplitude(images / 255) / spectral_amplitude(zero / 255))),
            }  # fmt: skip
            for name in self.models:
                row[f"{name} loss"] = after[name][0] - before[name][0]
                row[f"{name} inversion"] = 100 * (before[name][1] - plain[name][1])
                row[f"{name} drop"] = 100 * (before[name][1] - after[name][1])
            rows.append(shown(row))
            self.last = images
        return rows

    def rendered(self, renderer: Any, scenes: list[Any], strength: float) -> np.ndarray:
        """(N, S, S, 3) uint8; the seeds are the same for every strength."""
        wanted = Guidance("adversarial", strength) if strength else None
        batch = [
            Layers(picture, mask, picture, self.options.start, wanted, label, seed, needs_network="measured")
            for seed, (picture, mask, label) in enumerate(scenes)
        ]
        return np.stack([answer.image for answer in renderer.render(batch)])

    def judged(self, scenes: list[Any], images: Sequence[np.ndarray]) -> dict[str, tuple[float, float]]:
        """By model: the smooth error, and the accuracy."""
        labels = torch.tensor([label for _, _, label in scenes])
        found = {}
        for name, model in self.models.items():
            logits = torch.cat(
                [
                    model.logits(torch.stack([model.prepare(image) for image in images[first : first + 64]])).cpu()
                    for first in range(0, len(images), 64)
                ]
            )
            true = logits[torch.arange(len(labels)), labels]
            others = logits.scatter(1, labels[:, None], -torch.inf).max(dim=1).values
            found[name] = float((2 * (others - true)).sigmoid().mean()), float((true > others).float().mean())
        return found


def needed(factors: Sequence[float], losses: Sequence[float], target: float) -> float:
    """The factor with that loss, interpolated in logarithms of the factor, and at the ends the nearest one."""
    rising = np.maximum.accumulate(losses)
    return float(np.exp(np.interp(target, rising, np.log(factors))))


def settle(factors: dict[tuple[str, int], float], start: float) -> None:
    """Put the constants of these factors into `guidance`; the reference is ancestral with 100 steps."""
    before = guidance.STRENGTH["adversarial"]
    after = factors.get(("ancestral", 100), before)
    for sampler, table in guidance.RESPONSE["adversarial"].items():
        for steps in table:
            unchanged = guidance.calibration("adversarial", start, steps, sampler)
            # The response is what turns the reference's factor into this one.
            table[steps] *= after / before * unchanged / factors.get((sampler, steps), unchanged)
    guidance.STRENGTH["adversarial"] = after


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """The row, printed as one line."""
    print(json.dumps({name: round(v, 3) if isinstance(v, float) else v for name, v in row.items()}), flush=True)
    return row


if __name__ == "__main__":
    main()
