"""What λ does with a trained network, by sampler and number of steps: the numbers behind guidance.RESPONSE.

    python benchmarks/guidance_strength.py                          # every sampler at 20 and 100 steps, sample scenes
    python benchmarks/guidance_strength.py --steps 20 --scenes 4    # quicker, without a GPU

Nothing is kept of the pictures (an empty mask), start 0.5. Printed are medians over scenes of the ratio to λ = 0, and
the response that would make this sampler's effect that of 100 ancestral steps.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import cv2
import numpy as np

from unfazed.edits.composition import Guidance
from unfazed.measures.glcm import glcm_measures
from unfazed.measures.picture_quality import spectral_amplitude
from unfazed.rendering import load_network
from unfazed.rendering.diffusion import open_diffusion
from unfazed.rendering.layers import Layers
from unfazed.rendering.sampling import guidance
from unfazed.rendering.sampling.samplers import SAMPLERS
from unfazed.scene import frame
from unfazed.sources import open_source

LAMBDA = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(os.environ.get("OUT", ".")) / "guidance_strength.json"
    )
    parser.add_argument("--network", default="compact")
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 20])
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS))
    parser.add_argument("--scenes", type=int, default=20)
    parser.add_argument("--start", type=float, default=0.5)
    parser.add_argument("--device")
    options = parser.parse_args()
    scenes = [frame(scene).image for scene in open_source("sample", limit=options.scenes)]
    pictures = [cv2.resize(image, (256, 256), interpolation=cv2.INTER_AREA) for image in scenes]
    network = load_network(options.network)
    rows, reference = [], None
    for steps in sorted(options.steps, reverse=True):
        for sampler in options.samplers:
            renderer = open_diffusion(network, steps=steps, sampler=sampler, device=options.device)
            row = measured(renderer, pictures, options.start)
            if (sampler, steps) == ("ancestral", 100):
                reference = row["effect"]
            known = guidance.RESPONSE[sampler][0 if steps <= 20 else 1]
            row = {"sampler": sampler, "steps": steps, **row}
            if reference is not None:
                row["response"] = known * row["effect"] / reference
            rows.append(row)
            print(json.dumps({name: round(v, 3) if isinstance(v, float) else v for name, v in row.items()}), flush=True)
    options.output.write_text(json.dumps(rows, indent=1) + "\n")


def measured(renderer, pictures: list[np.ndarray], start: float) -> dict[str, float]:
    """Ratios of spectral amplitude, contrast and dissimilarity to those at λ = 0, and half their span in logarithms."""
    empty = np.zeros(pictures[0].shape[:2], np.float32)
    strengths = (0.0, -LAMBDA, LAMBDA)
    batch = [
        Layers(p, empty, p, start, Guidance("complexity", s) if s else None, None, seed)
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


if __name__ == "__main__":
    main()
