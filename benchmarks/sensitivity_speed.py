"""Noise sensitivity of one model over 20 scenes × 15 levels × 3 regions, against the published way of doing it.

    python benchmarks/sensitivity_speed.py [--model lite:0] [--scenes 20] [--threads 2]

The published way takes one noise level at a time over the whole set: it loads each picture, draws noise, and makes a
pass of one picture for the clean, the foreground and the background version. Noise on everything, which it does not
have, is given to it as one more pass, so both sides answer the same questions. Both use the same network in float32.
"""

from __future__ import annotations

import argparse
import tempfile
import time

import numpy as np
import torch

from unswayed.evaluation.noise import BATCH_SIZES, LEVELS, NoiseProbe, add_noise, at_input
from unswayed.evaluation.probes import read_probe, run_probe
from unswayed.evaluation.settings import SensitivitySettings
from unswayed.models import Classifier, open_model
from unswayed.sources import Source, open_source


def published_way(model: Classifier, module: torch.nn.Module, source: Source) -> dict[tuple[str, float, str], float]:
    """Accuracy by norm, level and region: a level at a time, a picture at a time, the clean pass repeated."""
    right: dict[tuple[str, float, str], list[bool]] = {}
    for norm, levels in LEVELS.items():
        for level in levels:
            for scene_id in source.ids:
                scene = source[scene_id]
                picture, masks = at_input(scene, model.transform.crop)
                pixels = torch.from_numpy(picture).permute(2, 0, 1).float() / 255
                noise = torch.randn_like(pixels)
                strength = torch.tensor([level / 255 if norm == "linf" else level])
                for region in ("clean", "foreground", "background", "everything"):
                    version = pixels[None]
                    if region != "clean":
                        version = add_noise(pixels, noise, torch.from_numpy(masks[region])[None], norm, strength)
                    with torch.no_grad():
                        logits = module(model.transform.normalize(version))
                    right.setdefault((norm, level, region), []).append(int(logits.argmax()) == scene.label)
    return {key: float(np.mean(value)) for key, value in right.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="lite:0")
    parser.add_argument("--scenes", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    source = open_source("sample", limit=options.scenes)
    model = open_model(options.model, device="cpu", precision="fp32")
    side = model.transform.crop

    # First, before our run changes how the process keeps memory, and as models are published: in the usual memory
    # order, not channels last.
    module = open_model(options.model, device="cpu", precision="fp32").module.to(memory_format=torch.contiguous_format)
    with torch.no_grad():
        module(torch.zeros(1, 3, side, side))
    start = time.perf_counter()
    accuracies = published_way(model, module, source)
    theirs = time.perf_counter() - start
    theirs_mean = np.mean([value for key, value in accuracies.items() if key[2] == "foreground"])

    model.logits(torch.zeros(BATCH_SIZES["cpu"], 3, side, side))
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        run_probe(NoiseProbe(model, source, folder, SensitivitySettings(norm="both", ablation=False)))
        ours = time.perf_counter() - start
        rows = read_probe(folder, "noise").filter(region="foreground")["correct"].mean()

    print(f"{options.model}, {len(source)} scenes × 15 levels × 3 regions, {options.threads} threads, float32")
    print(f"mean accuracy under foreground noise: ours {rows:.3f}, published way {theirs_mean:.3f}")
    print(f"ours           {ours:7.1f} s")
    print(f"published way  {theirs:7.1f} s")
    print(f"ratio          {theirs / ours:7.2f} × faster (required: 2)")


if __name__ == "__main__":
    main()
