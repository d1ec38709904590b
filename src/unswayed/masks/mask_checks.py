"""What looks wrong about a mask: told as a warning, since the picture may be unusual."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from statistics import median

import numpy as np

from unswayed.errors import BadPicture
from unswayed.scene import Scene
from unswayed.sources.source import Source

from .automatic_masks import automatic, makers
from .mask_confidence import LOOK_BELOW
from .mask_fit import mask_fit

WARNING = "warning: "
ALL, TINY = 0.995, 0.0005  # shares of the picture
RIM = 0.6  # share of the picture's border that an object seldom covers
MIDDLE = 0.5  # share of the picture's middle that an object mostly covers
GRAY = 0.25  # share of pixels that are neither object nor background, which only soft rims should be
SHADES = 32  # how many different ones of them there must be
HALF = 0.25  # share of the object's pixels that may be half transparent
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
    soft = (mask > 0.1) & (mask < 0.9)
    found = []
    if float(soft.mean()) > GRAY and len(np.unique(np.rint(mask[soft] * 255))) >= SHADES:
        found.append(f"the mask looks like a photograph: {soft.mean():.0%} of its pixels are gray")
    elif float(soft.sum()) > HALF * float((mask > 0.1).sum()):
        found.append(
            f"the mask is half transparent: {soft.sum() / (mask > 0.1).sum():.0%} of its object has values between 0.1 "
            "and 0.9; 1 (or 255) = object"
        )
    if rate > ALL:
        found.append(f"the mask is all white: the object covers {100 * rate:.1f} % of the picture")
    elif rate < TINY:
        found.append(f"the mask is nearly empty: the object covers {100 * rate:.3f} % of the picture")
    else:
        rim = np.concatenate([inside[0], inside[-1], inside[:, 0], inside[:, -1]])
        high, wide = mask.shape
        middle = inside[high // 3 : high - high // 3, wide // 3 : wide - wide // 3]
        if float(rim.mean()) > RIM and (middle.size == 0 or float(middle.mean()) < MIDDLE):
            found.append(
                f"the mask looks inverted: the object covers {rim.mean():.0%} of the picture's border and "
                f"{middle.mean() if middle.size else 0:.0%} of its middle; white = object"
            )
    fit = None if image is None or found else mask_fit(image, mask)
    if fit is not None and fit.deviations < FITS:
        suits = f"it would fit {fit.turn}" if fit.turn else "it looks like that of another photograph, or is shifted"
        found.append(f"{STRANGE}: {suits}")
    return tuple(WARNING + text for text in found)


def warning_summary(notes: Mapping[str, Iterable[str]]) -> list[str]:
    """One line per kind of warning among the notes of scenes (by id): how many scenes have it, and which.

    Masks that a segmenter made are counted as well, with their confidence: sizes depend on them.
    """
    made = automatic(notes)
    sure = sorted(one for one in made.values() if one is not None)
    range_of = f", confidence {sure[0]:.2f} to {sure[-1]:.2f}, median {median(sure):.2f}" if sure else ""
    counted = f"{len(made)} of {len(notes)} masks were made automatically ({', '.join(makers(notes))}{range_of})"
    caution = (
        ", and sizes and positions depend on them: look at them first, since a high confidence does not prove one right"
    )
    return [counted + caution] * bool(made) + [
        f"{_counted(kind, found, len(notes))}: {', '.join(list(found)[:5])}{' …' if len(found) > 5 else ''}"
        for kind, found in _by_kind(notes).items()
    ]


def doubted_masks(notes: Mapping[str, Iterable[str]]) -> str | None:
    """What makes the masks as a whole doubtful, as one sentence; None if few scenes have a warning and most automatic
    masks have a confidence of LOOK_BELOW or more.

    >>> doubted_masks(dict.fromkeys("ab", ["warning: the mask is all white: the object covers 100.0 % of the picture"]))
    'the masks may be wrong: the mask is all white in 2 of 2 scenes'
    """
    found = [
        _counted(kind, found, len(notes))
        for kind, found in _by_kind(notes).items()
        if len(found) >= max(MANY * len(notes), 2)
    ]
    unsure = sum(one is not None and one < LOOK_BELOW for one in automatic(notes).values())
    if unsure >= max(UNSURE * len(notes), 2):
        found.append(f"{unsure} of {len(notes)} were made automatically with a confidence below {LOOK_BELOW:g}")
    return f"the masks may be wrong: {', '.join(found)}" if found else None


def exchanged_masks(source: Source | Mapping[str, Scene], notes: Mapping[str, Iterable[str]]) -> list[str]:
    """To which photographs the masks that do not fit their own belong, as one sentence in a list; empty if unclear.

    Only scenes with such a warning among their notes are compared, and only masks of the photograph's size.
    """
    scenes = []
    for scene_id in list(_by_kind(notes).get(STRANGE, ()))[:COMPARED]:
        with suppress(BadPicture):
            scenes.append(source[scene_id])
    found = []
    for scene in scenes:
        alike = [one for one in scenes if one.mask.shape == scene.mask.shape]
        fits = {one.id: fit.deviations for one in alike if (fit := mask_fit(scene.image, one.mask))}
        best = max(fits, key=fits.__getitem__, default=scene.id)
        if best != scene.id and fits[best] > OWN:
            found.append(f"that of {best} fits the photograph {scene.id}")
    if len(found) < max(len(scenes) / 2, 2):
        return []
    shown = f"{', '.join(found[:3])}{' …' if len(found) > 3 else ''}"
    return [f"the masks may be exchanged in {len(found)} of {len(scenes)} compared scenes: {shown}"]


def _counted(kind: str, found: Mapping[str, str], scenes: int) -> str:
    """How many scenes have a kind of warning; where masks do not fit, also the reason that most of them have."""
    reason, times = Counter(found.values()).most_common(1)[0]
    most = f" (in {times}: {reason})" if kind == STRANGE and times > max(len(found) / 2, 1) else ""
    return f"{kind} in {len(found)} of {scenes} scenes{most}"


def _by_kind(notes: Mapping[str, Iterable[str]]) -> dict[str, dict[str, str]]:
    """Each kind of warning with the scenes that have it, by id, and the rest of each warning."""
    kinds: dict[str, dict[str, str]] = defaultdict(dict)
    for scene_id, texts in notes.items():
        for text in texts:
            if text.startswith(WARNING):
                kind, _, reason = text.removeprefix(WARNING).partition(": ")
                kinds[kind][scene_id] = reason
    return kinds
