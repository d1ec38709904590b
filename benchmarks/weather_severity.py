"""The strengths of each weather at the severities 0 to 5, such that the mean CIE ΔE of photographs grows evenly.

    python benchmarks/weather_severity.py                 # prints `strengths` for every weather, and what they give
    python benchmarks/weather_severity.py folder:photos   # on other photographs

ΔE is the Euclidean distance in CIELAB (CIE 1976) between a photograph and the same photograph in the weather (object
and background, 256 pixels), averaged over pixels and photographs. Severity 5 is strength 1; the others are found by
bisection. The sample of the package has free photographs of twenty animals.
"""

from __future__ import annotations

import argparse

import cv2
import numpy as np

from unswayed.edits import all_edits
from unswayed.edits.composition import Composition, Pool
from unswayed.edits.geometry import resized
from unswayed.edits.layers import composite, realize
from unswayed.edits.weather import Weather
from unswayed.scene import Scene, frame
from unswayed.sources import open_source

SIZE, STEPS = 256, 5


class Own:
    """Only the photographs' own backgrounds."""

    size = SIZE

    def resolve(self, reference: object, composition: Composition) -> np.ndarray:
        return resized(composition.image, SIZE)


def picture(edit: Weather, scene: Scene) -> np.ndarray:
    """A photograph in a weather, (S, S, 3) uint8."""
    composition = edit.apply(Composition.of(scene), np.random.default_rng(0), Pool((), frame, SIZE))
    layers = realize(composition, Own(), 0)
    return composite(layers.object, layers.alpha, layers.background)


def lab(image: np.ndarray) -> np.ndarray:
    return cv2.cvtColor(image.astype(np.float32) / 255, cv2.COLOR_RGB2Lab)


def difference(edit: Weather, scenes: list[Scene]) -> float:
    """The mean ΔE of the scenes in a weather."""
    apart = [lab(picture(edit, scene)) - lab(resized(scene.image, SIZE)) for scene in scenes]
    return float(np.mean(np.linalg.norm(apart, axis=-1)))


def calibrated(weather: type[Weather], scenes: list[Scene]) -> list[float]:
    """The strengths at the severities 0 to 5."""
    steady = type(
        weather.__name__, (weather,), {"name": weather.name, "strengths": tuple(np.linspace(0, 1, STEPS + 1))}
    )
    whole, strengths = difference(steady(severity=float(STEPS)), scenes), [0.0]
    for step in range(1, STEPS):
        low, high = strengths[-1], 1.0
        for _ in range(9):
            middle = (low + high) / 2
            below = difference(steady(severity=STEPS * middle), scenes) < whole * step / STEPS
            low, high = (middle, high) if below else (low, middle)
        strengths.append(round(low, 3))
    return [*strengths, 1.0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default="sample")
    parser.add_argument("--weather", nargs="+", help="[default: all]")
    options = parser.parse_args()
    scenes = [frame(scene) for scene in open_source(options.source)]
    scenes = [scene.resized((SIZE, SIZE)) for scene in scenes]
    for name, weather in all_edits().items():
        if not issubclass(weather, Weather) or (options.weather and name not in options.weather):
            continue
        strengths = calibrated(weather, scenes)
        given = [difference(weather(severity=float(step)), scenes) for step in range(STEPS + 1)]
        print(
            f"{name:7} strengths = {tuple(strengths)}   mean ΔE now: {', '.join(f'{value:.1f}' for value in given)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
