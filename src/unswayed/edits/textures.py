"""Patterns that are drawn by code and used as backgrounds: spots, checks, stripes, trigrams."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np


def leopard(size: int, rng: np.random.Generator) -> np.ndarray:
    """Return dark broken rings with brown centers on a light brown ground, like a leopard's coat."""
    picture = np.empty((size, size, 3), np.uint8)
    picture[:] = (214, 164, 92)
    grain = cv2.resize(rng.normal(0, 7, (size // 4, size // 4)).astype(np.float32), (size, size))
    picture = np.clip(picture + grain[..., None], 0, 255).astype(np.uint8)
    step = size / 9
    for row in range(-1, 11):
        for column in range(-1, 11):
            x = (column + 0.5 * (row % 2) + rng.uniform(-0.18, 0.18)) * step
            y = (row * 0.9 + rng.uniform(-0.18, 0.18)) * step
            _rosette(picture, x, y, step * rng.uniform(0.24, 0.36), rng)
    return picture


def checker(size: int, rng: np.random.Generator) -> np.ndarray:
    """Return a checkerboard of eight by eight fields in two tones of one hue."""
    field = np.add.outer(np.arange(size) * 8 // size, np.arange(size) * 8 // size) % 2
    dark, light = _two_tones(rng)
    return np.where(field[..., None] == 0, light, dark).astype(np.uint8)


def stripes(size: int, rng: np.random.Generator) -> np.ndarray:
    """Return ten straight stripes at a random angle in two tones of one hue."""
    tilt = rng.uniform(0, np.pi)
    y, x = np.mgrid[:size, :size] / size
    wave = np.sin(2 * np.pi * 10 * (x * np.cos(tilt) + y * np.sin(tilt)))
    share = np.clip(wave * size / 25 + 0.5, 0, 1)[..., None]
    dark, light = _two_tones(rng)
    return np.round(dark * share + light * (1 - share)).astype(np.uint8)


def eight_diagrams(size: int, rng: np.random.Generator) -> np.ndarray:
    """Return the eight trigrams in a ring around the yin-yang symbol, dark on light."""
    scale = 4
    side = size * scale
    dark, light = _two_tones(rng)
    picture = np.empty((side, side, 3), np.uint8)
    picture[:] = light
    turn = rng.uniform(0, 45)
    middle = side / 2
    for place, trigram in enumerate((7, 6, 2, 4, 0, 1, 5, 3)):
        angle = np.radians(place * 45 + turn)
        outward = np.array([np.sin(angle), -np.cos(angle)])
        along = np.array([np.cos(angle), np.sin(angle)])
        for line in range(3):
            at = np.array([middle, middle]) + outward * side * (0.30 + 0.065 * line)
            whole = trigram >> line & 1
            for low, high in [(-1.0, 1.0)] if whole else [(-1.0, -0.18), (0.18, 1.0)]:
                reach, thick = side * 0.105, side * 0.021
                corners = [at + along * reach * s + outward * thick * t for s, t in _rectangle(low, high)]
                cv2.fillPoly(picture, [np.round(corners).astype(np.int32)], dark.tolist(), cv2.LINE_AA)
    _taijitu(picture, middle, side * 0.22, turn, dark, light)
    return cv2.resize(picture, (size, size), interpolation=cv2.INTER_AREA)


TEXTURES: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "leopard": leopard,
    "checker": checker,
    "stripes": stripes,
    "eight-diagrams": eight_diagrams,
}


def _two_tones(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return a dark and a light color of one random hue."""
    hue = rng.uniform(0, 360)
    tones = np.array([[[hue, 0.45, 0.22], [hue, 0.14, 0.92]]], np.float32)
    dark, light = np.round(cv2.cvtColor(tones, cv2.COLOR_HSV2RGB)[0] * 255)
    return dark, light


def _rosette(picture: np.ndarray, x: float, y: float, radius: float, rng: np.random.Generator) -> None:
    """Draw a brown center in a ring of three or four dark, uneven spots."""
    fraction = 16
    middle = (int(x * fraction), int(y * fraction))
    heart = (int(radius * 0.8 * fraction), int(radius * 0.65 * fraction))
    turn = rng.uniform(0, 360)
    cv2.ellipse(picture, middle, heart, turn, 0, 360, (168, 108, 48), -1, cv2.LINE_AA, 4)
    blots = int(rng.integers(3, 5))
    for blot in range(blots):
        at = turn + 360 * blot / blots + rng.uniform(-12, 12)
        blot_middle = (
            int((x + radius * np.cos(np.radians(at))) * fraction),
            int((y + radius * np.sin(np.radians(at))) * fraction),
        )
        reach = radius * rng.uniform(0.5, 0.72)
        axes = (int(reach * 0.5 * fraction), int(reach * fraction))
        cv2.ellipse(picture, blot_middle, axes, at, 0, 360, (44, 30, 20), -1, cv2.LINE_AA, 4)


def _rectangle(low: float, high: float) -> list[tuple[float, float]]:
    return [(low, -1.0), (high, -1.0), (high, 1.0), (low, 1.0)]


def _taijitu(
    picture: np.ndarray, middle: float, radius: float, turn: float, dark: np.ndarray, light: np.ndarray
) -> None:
    """Draw the yin-yang symbol."""
    side = picture.shape[0]
    y, x = (np.mgrid[:side, :side] + 0.5 - middle) / radius
    angle = np.radians(turn)
    x, y = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    upper, lower = np.hypot(x, y + 0.5), np.hypot(x, y - 0.5)
    shade = ((x > 0) | (upper < 0.5)) & (lower >= 0.5)
    shade = (shade & (upper >= 0.14)) | (lower < 0.14)
    picture[(np.hypot(x, y) <= 1.04)] = dark
    inside = np.hypot(x, y) <= 1
    picture[inside & shade] = dark
    picture[inside & ~shade] = light
