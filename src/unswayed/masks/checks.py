"""What looks wrong about a mask, as warnings: its shape, and whether it belongs to its photograph."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from statistics import median
from typing import NamedTuple

import cv2
import numpy as np

from unswayed.errors import BadPicture
from unswayed.files.whole import parse_json
from unswayed.scene import LOOK_BELOW, MASKS_DOUBTED, WARNING, MaskOrigin, Scene
from unswayed.sources.source import Source

ALL, TINY = 0.995, 0.0005  # shares of the picture
RIM = 0.6  # share of the picture's border that an object seldom covers
MIDDLE = 0.5  # share of the picture's middle that an object mostly covers
GRAY = 0.25  # share of pixels that are neither object nor background, which only soft rims should be
SHADES = 32  # how many different ones of them there must be
HALF = 0.25  # share of the object's pixels that may be half transparent
ALL_WHITE, INVERTED = "the mask is all white", "the mask looks inverted"
STRANGE = "the mask may not fit the photograph"
FITS = 0.8  # standard deviations of the fit: 1 % of right masks are below, 80 % of those of other photographs
OWN = 4.0  # the same for a mask that surely belongs to the photograph: 92 % of right masks are above, 0 % of others
COMPARED = 12  # scenes whose masks are exchanged with each other to find where they belong
MANY = 1 / 3  # share of the scenes with one warning from which on the masks as a whole are doubted, and at least two
# Share of automatic masks of low confidence from which on the same holds. On 160 photographs, half of them degraded,
# SAM 2 had 28 % of them, with about a fifth of its masks wrong, and GrabCut 62 %, with three quarters wrong.
UNSURE = 1 / 2


def mask_warnings(mask: np.ndarray, image: np.ndarray | None = None) -> tuple[str, ...]:
    """Warnings about a mask (H, W) in [0, 1], 1 = object; each begins with what is suspected, then a colon.

    image: (H, W, 3) uint8, its photograph, if the mask is also to be compared with it.

    >>> mask_warnings(np.ones((8, 8), np.float32))
    ('warning: the mask is all white: the object covers 100.0 % of the picture',)
    """
    inside = mask > 0.5
    rate = float(inside.mean())
    soft, some = (mask > 0.1) & (mask < 0.9), mask > 0.1
    doubts = []
    if float(soft.mean()) > GRAY and len(np.unique(np.rint(mask[soft] * 255))) >= SHADES:
        doubts.append(f"the mask looks like a photograph: {soft.mean():.0%} of its pixels are gray")
    elif float(soft.sum()) > HALF * float(some.sum()):
        share = f"{soft.sum() / some.sum():.0%} of its object has values between 0.1 and 0.9"
        doubts.append(f"the mask is half transparent: {share}; 1 (or 255) = object")
    if rate > ALL:
        doubts.append(f"{ALL_WHITE}: the object covers {100 * rate:.1f} % of the picture")
    elif rate < TINY:
        doubts.append(f"the mask is nearly empty: the object covers {100 * rate:.3f} % of the picture")
    else:
        rim = np.concatenate([inside[0], inside[-1], inside[:, 0], inside[:, -1]]).mean()
        high, wide = mask.shape
        middle = inside[high // 3 : high - high // 3, wide // 3 : wide - wide // 3]
        covered = float(middle.mean()) if middle.size else 0.0
        if rim > RIM and covered < MIDDLE:
            share = f"{rim:.0%} of the picture's border and {covered:.0%} of its middle"
            doubts.append(f"{INVERTED}: the object covers {share}; white = object")
    fit = None if image is None or doubts else mask_fit(image, mask)
    if fit is not None and fit.deviations < FITS:
        suits = f"it would fit {fit.turn}" if fit.turn else "it looks like that of another photograph, or is shifted"
        doubts.append(f"{STRANGE}: {suits}")
    return tuple(WARNING + text for text in doubts)


def is_unusable(mask: np.ndarray) -> bool:
    """Whether a mask is called all white or inverted, so that nothing made with it can be what it claims to be.

    >>> is_unusable(np.ones((8, 8), np.float32))
    True
    """
    return any(warning.startswith((WARNING + ALL_WHITE, WARNING + INVERTED)) for warning in mask_warnings(mask))


def mask_origins(records: Iterable[Mapping[str, str | None]]) -> dict[str, MaskOrigin]:
    """What made the automatic masks of a benchmark, by scene; records: rows of its manifest, with values as JSON."""
    rows = [record for record in records if '"mask_by"' in (record.get("values") or "")]
    return origins_of(
        {str(row["source_id"]): parse_json(str(row["values"]), f"the values of {row['source_id']}") for row in rows}
    )


def origins_of(values: Mapping[str, Mapping[str, object]]) -> dict[str, MaskOrigin]:
    """What made the automatic masks, by scene; values: those of the scenes' rows."""
    origins = {scene_id: MaskOrigin.from_values(of_scene) for scene_id, of_scene in values.items()}
    return {scene_id: origin for scene_id, origin in origins.items() if origin is not None}


def mask_record(origins: Mapping[str, MaskOrigin], scenes: int) -> dict[str, int | float | None]:
    """The entry `masks` of a benchmark's card: how many masks are automatic, and how far they can be trusted.

    below_limit: how many have a confidence below LOOK_BELOW, so that a person should look at them.

    >>> mask_record({"a": MaskOrigin("`unswayed masks`", 0.5)}, 2)
    {'automatic': 1, 'of': 2, 'median_confidence': 0.5, 'below_limit': 1}
    """
    confidences = [origin.confidence for origin in origins.values()]
    return {
        "automatic": len(confidences),
        "of": scenes,
        "median_confidence": round(median(confidences), 4) if confidences else None,
        "below_limit": sum(confidence < LOOK_BELOW for confidence in confidences),
    }


def warning_summary(notes: Mapping[str, Iterable[str]], origins: Mapping[str, MaskOrigin] | None = None) -> list[str]:
    """One line per kind of warning among the notes of scenes (by id): how many scenes have it, and which.

    origins: what made the automatic masks. They are counted as well, with their confidence: sizes depend on them.
    """
    lines = []
    if origins:
        confidences = sorted(origin.confidence for origin in origins.values())
        spread = f"{confidences[0]:.2f} to {confidences[-1]:.2f}, median {median(confidences):.2f}"
        makers = ", ".join(sorted({origin.segmenter for origin in origins.values()}))
        lines.append(
            f"{len(origins)} of {len(notes)} masks were made automatically ({makers}, confidence {spread}), and sizes "
            "and positions depend on them: look at them first, since a high confidence does not prove one right"
        )
    for kind, scenes in _by_kind(notes).items():
        shown = f"{', '.join(list(scenes)[:5])}{' …' if len(scenes) > 5 else ''}"
        lines.append(f"{_counted(kind, scenes, len(notes))}: {shown}")
    return lines


def doubted_masks(notes: Mapping[str, Iterable[str]], origins: Mapping[str, MaskOrigin] | None = None) -> str | None:
    """What makes the masks as a whole doubtful, as one sentence; None if few scenes have a warning and most automatic
    masks (origins) have a confidence of LOOK_BELOW or more.

    >>> doubted_masks(dict.fromkeys("ab", ["warning: the mask is all white: the object covers 100.0 % of the picture"]))
    'the masks may be wrong: the mask is all white in 2 of 2 scenes'
    """
    doubts = [
        _counted(kind, scenes, len(notes))
        for kind, scenes in _by_kind(notes).items()
        if len(scenes) >= max(MANY * len(notes), 2)
    ]
    unsure = sum(origin.confidence < LOOK_BELOW for origin in (origins or {}).values())
    if unsure >= max(UNSURE * len(notes), 2):
        doubts.append(f"{unsure} of {len(notes)} were made automatically with a confidence below {LOOK_BELOW:g}")
    return f"{MASKS_DOUBTED}: {', '.join(doubts)}" if doubts else None


def exchanged_masks(source: Source | Mapping[str, Scene], notes: Mapping[str, Iterable[str]]) -> list[str]:
    """To which photographs the masks that do not fit their own belong, as one sentence in a list; empty if unclear.

    Only scenes with such a warning among their notes are compared, and only masks of the photograph's size.
    """
    scenes = []
    for scene_id in list(_by_kind(notes).get(STRANGE, ()))[:COMPARED]:
        with suppress(BadPicture):
            scenes.append(source[scene_id])
    pairs = []
    for scene in scenes:
        alike = [other for other in scenes if other.mask.shape == scene.mask.shape]
        fits = {other.id: fit.deviations for other in alike if (fit := mask_fit(scene.image, other.mask))}
        best = max(fits, key=fits.__getitem__, default=scene.id)
        if best != scene.id and fits[best] > OWN:
            pairs.append(f"that of {best} fits the photograph {scene.id}")
    if len(pairs) < max(len(scenes) / 2, 2):
        return []
    shown = f"{', '.join(pairs[:3])}{' …' if len(pairs) > 3 else ''}"
    return [f"the masks may be exchanged in {len(pairs)} of {len(scenes)} compared scenes: {shown}"]


def _counted(kind: str, reasons: Mapping[str, str], scenes: int) -> str:
    """How many scenes have a kind of warning; where masks do not fit, also the reason that most of them have."""
    reason, times = Counter(reasons.values()).most_common(1)[0]
    most = f" (in {times}: {reason})" if kind == STRANGE and times > max(len(reasons) / 2, 1) else ""
    return f"{kind} in {len(reasons)} of {scenes} scenes{most}"


def _by_kind(notes: Mapping[str, Iterable[str]]) -> dict[str, dict[str, str]]:
    """Each kind of warning with the scenes that have it, by id, and the rest of each warning."""
    kinds: dict[str, dict[str, str]] = defaultdict(dict)
    for scene_id, texts in notes.items():
        for text in texts:
            if text.startswith(WARNING):
                kind, _, reason = text.removeprefix(WARNING).partition(": ")
                kinds[kind][scene_id] = reason
    return kinds


SIDE = 256  # the length in pixels of the photograph's longer side at which it is measured
NEAR, FAR = 3, 12  # distances in pixels between which a band on each side of the outline lies
LEAST, MOST = 60, 800  # pixels of a band: with fewer it says nothing, of more a part is enough
CONVEX = 0.975  # share of its convex hull from which on a mask is a box, an ellipse or a hull instead of an outline
ASIDE = 20, 36  # distances in pixels by which the outline is moved aside
PLACES = 8  # the fewest outlines that must lie in the photograph for a comparison
PLAIN = 0.05  # contrast below which the whole photograph is too plain to say anything
BELONGS = 2.0  # standard deviations above the mean of the moved outlines from which on a turned mask fits
LEVELS = 8  # of each color channel
# How masks are often turned by mistake: whether the axes are exchanged, and the signs of rows and columns.
TURNS = {
    "mirrored": (False, 1, -1),
    "upside down": (False, -1, 1),
    "turned by 180 degrees": (False, -1, -1),
    "transposed": (True, 1, 1),
    "turned left by 90 degrees": (True, -1, 1),
    "turned right by 90 degrees": (True, 1, -1),
}


class Fit(NamedTuple):
    """How a mask fits a photograph.

    deviations: how much more the colors beside its outline differ than at other places, in standard deviations of
    those; turn: one of TURNS that would make it fit much better, if there is one.
    """

    deviations: float
    turn: str | None


def mask_fit(image: np.ndarray, mask: np.ndarray) -> Fit | None:
    """The fit of a mask (H, W) in [0, 1] to a photograph (H, W, 3) uint8; None if it cannot be judged.

    A band inside the outline and one outside are compared by their colors, here and where the outline is moved aside,
    turned or mirrored. The bands begin a little beside the outline, so that a mask may be a few pixels too large or
    too small. Boxes and other convex masks are not judged.
    """
    scale = SIDE / max(mask.shape)
    size = max(round(mask.shape[1] * scale), 1), max(round(mask.shape[0] * scale), 1)
    inside = (cv2.resize(mask.astype(np.float32), size, interpolation=cv2.INTER_AREA) > 0.5).astype(np.uint8)
    bands = _bands(inside)
    if bands is None:
        return None
    # The number of each pixel's color among LEVELS³, with finer steps where colors are pale.
    small = cv2.GaussianBlur(cv2.resize(image, size, interpolation=cv2.INTER_AREA), (0, 0), 1)
    lightness, red, yellow = np.moveaxis(cv2.cvtColor(small, cv2.COLOR_RGB2LAB).astype(int), -1, 0)
    red, yellow = (np.clip((hue - 128) // 8 + LEVELS // 2, 0, LEVELS - 1) for hue in (red, yellow))
    colors = (lightness * LEVELS // 256 * LEVELS + red) * LEVELS + yellow
    angles = np.arange(8) * np.pi / 4
    steps = [np.rint([far * np.sin(angle), far * np.cos(angle)]).astype(int) for far in ASIDE for angle in angles]
    own, *moved = (_contrast(colors, [band + step for band in bands]) for step in ((0, 0), *steps))
    turned = {
        name: _contrast(colors, [_turned(band, inside.shape, *how) for band in bands]) for name, how in TURNS.items()
    }
    others, aside = (
        np.array([contrast for contrast in some if contrast is not None])
        for some in ((*moved, *turned.values()), moved)
    )
    if own is None or len(aside) < PLACES or others.max() < PLAIN:
        return None
    name, best = max(((name, contrast or 0.0) for name, contrast in turned.items()), key=lambda pair: pair[1])
    better = best > max(own, aside.mean() + BELONGS * aside.std())
    return Fit(float((own - others.mean()) / max(others.std(), 1e-9)), name if better else None)


def _bands(inside: np.ndarray) -> list[np.ndarray] | None:
    """Rows and columns of pixels inside and outside the outline; None if there are too few or the mask is convex."""
    outlines, _ = cv2.findContours(inside, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    if not outlines:
        return None
    hull = cv2.fillPoly(np.zeros_like(inside), [cv2.convexHull(np.concatenate(outlines))], 1)
    near, far = (cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * r + 1, 2 * r + 1)) for r in (NEAR, FAR))
    inner = np.argwhere(cv2.erode(inside, near) > cv2.erode(inside, far))
    outer = np.argwhere(cv2.dilate(inside, far) > cv2.dilate(inside, near))
    if inside.sum() > CONVEX * hull.sum() or min(len(inner), len(outer)) < LEAST:
        return None
    return [band[:: max(len(band) // MOST, 1)] for band in (inner, outer)]


def _turned(band: np.ndarray, shape: tuple[int, ...], exchanged: bool, down: int, right: int) -> np.ndarray:
    high, wide = shape
    if exchanged:
        band = (band[:, ::-1] * [high / wide, wide / high]).astype(int)
    return band * [down, right] + [high - 1 if down < 0 else 0, wide - 1 if right < 0 else 0]


def _contrast(colors: np.ndarray, bands: list[np.ndarray]) -> float | None:
    """How different the colors of two bands are, from 0 to 1; None if most of one is outside the photograph."""
    shares = []
    for band in bands:
        there = ((band >= 0) & (band < colors.shape)).all(1)
        if there.mean() < 0.5:
            return None
        counts = np.bincount(colors[tuple(band[there].T)], minlength=LEVELS**3)
        shares.append(counts / counts.sum())
    return 1 - float(np.sqrt(shares[0] * shares[1]).sum())
