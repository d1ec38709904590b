"""What the embedded network does to photographs that it only has to give back: the figures of docs/network.md.

    python benchmarks/network_quality.py                      # the sample scenes, on this machine (minutes on a CPU)
    python benchmarks/network_quality.py --photos PHOTOS      # and the 50 photographs held out of training
    python benchmarks/network_quality.py --parts sharpness,steps,guidance,precision --limit 4

Nothing is pasted back (empty mask) except under `guidance`, which measures the background alone. No post-filter.
"""

from __future__ import annotations

import argparse

import numpy as np

from picture_quality import grid, noise_level, spectral_amplitude
from unswayed.benchmark.measures import glcm_measures
from unswayed.edits.composition import Guidance
from unswayed.rendering.diffusion import open_diffusion
from unswayed.rendering.layers import Layers
from unswayed.scene import frame
from unswayed.sources import open_source

PARTS = ("sharpness", "steps", "guidance", "precision")
LAMBDAS = (-20, -10, 0, 10, 20)


def sample(limit: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Framed sample photographs (N, 256, 256, 3) uint8 and their masks (N, 256, 256)."""
    import cv2

    scenes = [frame(scene) for scene in open_source("sample", limit=limit)]
    pictures = [cv2.resize(s.image, (256, 256), interpolation=cv2.INTER_AREA) for s in scenes]
    masks = [cv2.resize(s.mask, (256, 256), interpolation=cv2.INTER_AREA) for s in scenes]
    return np.stack(pictures), np.stack(masks)


def held_out(photos: str, limit: int | None) -> np.ndarray:
    from unswayed.rendering.training.photos import load_photos

    _, held = load_photos([photos], 50, "cpu")
    return ((held[:limit].permute(0, 2, 3, 1) + 1) * 127.5).round().numpy().astype(np.uint8)


def invert(pictures, start, steps, masks=None, guidance=None, sampler="auto", **settings):
    renderer = open_diffusion("compact", steps=steps, sampler=sampler, **settings)
    nothing = np.zeros(pictures.shape[1:3], np.float32)
    batch = [
        Layers(p, nothing if masks is None else masks[i], p, start, guidance, None, i, needs_network="measured")
        for i, p in enumerate(pictures)
    ]
    return np.stack([answer.image for answer in renderer.render(batch)])


def sharpness(name: str, pictures: np.ndarray, steps: bool, **settings) -> None:
    original = pictures / 255
    amplitude, noise = spectral_amplitude(original), noise_level(original)
    for start in (0.5, 0.25):
        back = invert(pictures, start, 100, **settings) / 255
        ratio, its = spectral_amplitude(back) / amplitude, noise_level(back)
        columns = ", ".join(f"{grid(back, period):.3f}" for period in (2, 4, 8))
        print(
            f"{name}, n {len(pictures)}, start {start}: amplitude {ratio.mean():.3f} of the original's (least "
            f"{ratio.min():.3f}); noise {its.mean():.4f}, allowed {1.3 * noise.mean() + 1 / 255:.4f} "
            f"({(its <= 1.3 * noise + 1 / 255).mean():.2f} of pictures within their own); columns modulo 2, 4, 8 "
            f"uneven by {columns} (originals {grid(original, 8):.3f})",
            flush=True,
        )
        if steps:
            few = spectral_amplitude(invert(pictures, start, 20, **settings) / 255) / spectral_amplitude(back)
            print(f"{name}, start {start}: 20 steps keep {few.mean():.3f} of the amplitude of 100", flush=True)


def guided(pictures: np.ndarray, masks: np.ndarray, **settings) -> None:
    from scipy.stats import spearmanr

    effects = {}
    for steps in (100, 20):
        rows = {}
        for strength in LAMBDAS:
            guidance = Guidance("complexity", float(strength)) if strength else None
            pushed = invert(pictures, 0.5, steps, masks, guidance, **settings)
            rows[strength] = [glcm_measures(p, m) for p, m in zip(pushed, masks, strict=True)]
        for measure in ("contrast", "dissimilarity"):
            values = np.array([[row[measure] for row in rows[s]] for s in LAMBDAS])
            effects[steps, measure] = np.median(values / values[2], axis=1)
            ordered = np.mean([spearmanr(LAMBDAS, values[:, i]).statistic >= 0.9 for i in range(values.shape[1])])
            shown = ", ".join(f"{s:+d}: {e:.2f}" for s, e in zip(LAMBDAS, effects[steps, measure], strict=True))
            print(f"{measure} at {steps} steps against λ = 0: {shown}; in order in {ordered:.2f} of scenes", flush=True)
    for measure in ("contrast", "dissimilarity"):
        print(f"{measure}: 20 steps against 100: {np.round(effects[20, measure] / effects[100, measure], 2)}")


def precision(pictures: np.ndarray, **settings) -> None:
    for start in (0.5, 0.25):
        exact = invert(pictures, start, 100, precision="fp32", **settings).astype(float)
        short = invert(pictures, start, 100, precision="bf16", **settings).astype(float)
        psnr = 10 * np.log10(255**2 / ((exact - short) ** 2).mean(axis=(1, 2, 3)))
        print(f"bf16 against fp32, start {start}: PSNR {psnr.mean():.1f} dB, least {psnr.min():.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", help="the training photographs, for the 50 held out of them")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--limit", type=int)
    parser.add_argument("--device")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    pictures, masks = sample(arguments.limit)
    sets = {"sample": pictures}
    if arguments.photos:
        sets["held out"] = held_out(arguments.photos, arguments.limit)
    for name, chosen in sets.items():
        if "sharpness" in parts:
            sharpness(name, chosen, "steps" in parts, device=arguments.device)
    if "guidance" in parts:
        guided(pictures, masks, device=arguments.device)
    if "precision" in parts:
        precision(pictures, device=arguments.device)


if __name__ == "__main__":
    main()
