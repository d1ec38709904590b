"""Is an edited picture what it claims to be? Measures on arrays, the limits they are held to, and one score.

Every measure is a fault: 0 is perfect, larger is worse, and `Limits` holds the level at which a picture stops counting
as valid. Pictures are (S, S, 3) uint8, masks (S, S) float32 in [0, 1]; what is counted in pixels is scaled to a picture
of 256 pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import cv2
import numpy as np

from .rows import VALID

BORDER = 10.0  # pixels of 256
PIECE = 40.0  # pixels of 256


def _limit(level: float, words: str) -> float:
    """Return a field of `Limits`; words: what is said of a picture whose fault is beyond it."""
    declared: float = field(default=level, metadata={"words": words})
    return declared


@dataclass(frozen=True)
class Limits:
    """The level of each fault at which a picture stops counting as valid.

    They were chosen on the embedded photographs and tested on photographs of pets (benchmarks/validity.py). Pixels are
    those of 256; seam: further off the colors on both sides than in the photograph; crop: a central one of 7/8;
    outline: along one line; complexity: the squared ratio of the amplitudes before and after, 1 where nothing changed;
    fill_color: in CIELAB scaled to 255.
    """

    rate: float = _limit(0.0025, "the pixel rate misses the requested one by {:.4f}")
    position: float = _limit(2.5, "the object is {:.1f} pixels from the requested position")
    object: float = _limit(1e-4, "{:.2%} of the object's pixels changed that must not")
    outside: float = _limit(1e-4, "{:.2%} of the pixels outside the object changed that must not")
    seam: float = _limit(12.0, "the object's rim has a seam of {:.1f} gray levels")
    residue: float = _limit(0.35, "the removed object is left behind: its details correlate by {:.2f}")
    recognized: float = _limit(0.5, "a classifier still sees the removed object with a probability of {:.2f}")
    salient: float = _limit(0.5, "a salient-object network still finds the removed object, with an IoU of {:.2f}")
    noise: float = _limit(3.0, "the background gained noise of {:.1f} gray levels")
    sharpness: float = _limit(3.0, "the sharpness of the background changed by {:.1f} factors of two")
    edges: float = _limit(28.0, "the background has new straight edges of {:.0f} gray levels")
    crop: float = _limit(0.6, "a central crop cuts off {:.0%} of the object")
    outline: float = _limit(
        0.45, "the mask's outline is straight without an edge in the photograph, over {:.2f} object sizes"
    )
    mask: float = _limit(0.5, "the mask is all white or inverted")
    complexity: float = _limit(
        1.0, "the background did not become simpler or more complex as asked: {:.2f} in its worst octave band"
    )
    fill_color: float = _limit(40.0, "the filled area has a color {:.0f} levels from every color around it")
    fill_texture: float = _limit(
        2.0, "the texture of the filled area differs from its surroundings by {:.1f} factors of two"
    )
    fill_grain: float = _limit(
        0.88, "the filled area repeats fine detail without coarse detail, by {:.1f} factors of two"
    )
    agreement: float = _limit(0.05, "{:.0%} of the controls match the words as well as this picture")


@dataclass(frozen=True)
class Validity:
    """A score in [0, 1], valid from `VALID` on, and a sentence for each fault beyond its limit, the worst first."""

    score: float
    reasons: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        return self.score >= VALID


def judge(faults: Mapping[str, float | None], limits: Limits | None = None) -> Validity:
    """The score of a picture's worst fault: 1 / (1 + (fault / limit)²), so 1 without faults and 0.5 at a limit.

    faults: by the names of `Limits`; None where a fault cannot occur or was not measured.

    >>> judge({"noise": 0.0, "crop": 0.3}).score
    0.8
    >>> judge({"noise": 8.0}).reasons
    ('the background gained noise of 8.0 gray levels (limit 3)',)
    """
    held_to = vars(limits or Limits())
    scores = {
        name: 1 / (1 + (value / held_to[name]) ** 2)
        for name, value in faults.items()
        if name in held_to and value is not None
    }
    bad = sorted((score, name) for name, score in scores.items() if score < VALID)
    words = {limit.name: limit.metadata["words"] for limit in fields(Limits)}
    reasons = tuple(f"{words[name].format(faults[name])} (limit {held_to[name]:g})" for _, name in bad)
    return Validity(round(min(scores.values(), default=1.0), 4), reasons)


def changed_share(picture: np.ndarray, promised: np.ndarray, where: np.ndarray) -> float | None:
    """The share of the pixels of `where`, (S, S) bool, in which two pictures differ; None where it is empty."""
    count = int(np.count_nonzero(where))
    if count == 0:
        return None
    red, green, blue = cv2.split((picture != promised).view(np.uint8))
    return float(np.count_nonzero((red | green | blue).view(bool) & where)) / count


def position_error(mask: np.ndarray, original_mask: np.ndarray, shift: tuple[float, float]) -> float:
    """How far the object is from where a shift of the original by so many pixels (right, down) puts it, of 256."""
    size = mask.shape[0]
    errors = []
    for axis, wanted in zip((0, 1), shift, strict=True):
        here, before = (np.flatnonzero((part > 0.5).any(axis=axis)) for part in (mask, original_mask))
        if not len(here) or not len(before):
            return 256.0
        errors.append(abs(here[0] - before[0] - wanted) * 256 / size)
    return float(max(errors))


def crop_loss(mask: np.ndarray, kept: float = 7 / 8) -> float:
    """The share of the object outside the central `kept` of both sides, which is what most classifiers look at."""
    inside = mask > 0.5
    total = int(np.count_nonzero(inside))
    if total == 0:
        return 1.0
    margin = int(round(mask.shape[0] * (1 - kept) / 2))
    middle = inside[margin : mask.shape[0] - margin, margin : mask.shape[1] - margin]
    return 1 - int(np.count_nonzero(middle)) / total


def seam(picture: np.ndarray, mask: np.ndarray) -> float | None:
    """Gray levels by which rim pixels lie off the line between the colors on their two sides; None without a rim."""
    # Nothing further than this from the object's edge counts, so only the part with the object is looked at.
    reach = 7
    rows, columns = (np.flatnonzero((mask >= 0.05).any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return None
    window = tuple(slice(max(lines[0] - 2 * reach, 0), lines[-1] + 1 + 2 * reach) for lines in (rows, columns))
    picture, mask = picture[window], mask[window]
    solid, empty = mask > 0.95, mask < 0.05
    kernel = np.ones((3, 3), np.uint8)
    rim = (cv2.dilate((~empty).astype(np.uint8), kernel) > 0) & (cv2.dilate((~solid).astype(np.uint8), kernel) > 0)
    regions = [(region & ~rim).view(np.uint8) for region in (solid, empty)]
    sums = [cv2.boxFilter(region, cv2.CV_32F, (reach, reach), normalize=False) for region in regions]
    at = rim & (sums[0] > 2) & (sums[1] > 2)
    if np.count_nonzero(at) < 8:
        return None
    front, behind = (
        cv2.boxFilter(cv2.copyTo(picture, region), cv2.CV_32F, (reach, reach), normalize=False)[at] / total[at][:, None]
        for region, total in zip(regions, sums, strict=True)
    )
    colors = picture[at].astype(np.float32)
    along = front - behind
    share = ((colors - behind) * along).sum(axis=1) / np.maximum((along**2).sum(axis=1), 1e-3)
    nearest = behind + np.clip(share, 0, 1)[:, None] * along
    return float(np.abs(colors - nearest).mean())


def residue(background: np.ndarray, original: np.ndarray, mask: np.ndarray) -> float | None:
    """Correlation in [0, 1] of the details of a background with those of the object that was removed from it.

    Gradients are compared over the object and its rim, as a whole, on each side of its middle and on the rim alone, and
    the largest counts: details that the removal made up are uncorrelated with the object's. None where the
    object has no pixels.
    """
    inside = cv2.dilate((mask > 0.5).astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
    rows, columns = np.nonzero(inside)
    if len(rows) < 32:
        return None
    remaining, removed = _gradients(background, inside), _gradients(original, inside)
    upper, left = rows < np.median(rows), columns < np.median(columns)
    core = cv2.erode((mask > 0.5).astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
    parts = [np.ones(len(rows), bool), upper, ~upper, left, ~left, ~core[inside]]
    return max(_correlation(remaining[part], removed[part]) for part in parts)


def _gradients(picture: np.ndarray, where: np.ndarray) -> np.ndarray:
    """(N, 2) float32: the gradient of the luma in the pixels of `where`, strong ones held back."""
    luma = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY).astype(np.float32)
    soft = cv2.GaussianBlur(luma, (0, 0), 1.0)
    both = np.stack([cv2.Scharr(soft, cv2.CV_32F, 1, 0)[where], cv2.Scharr(soft, cv2.CV_32F, 0, 1)[where]], axis=1) / 32
    strength = np.linalg.norm(both, axis=1, keepdims=True)
    return both / np.sqrt(1 + strength)


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    scale = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return max(0.0, float((first * second).sum()) / scale) if scale > 0 else 0.0


def noise_level(picture: np.ndarray, where: np.ndarray) -> float:
    """Standard deviation of the noise in the pixels of `where`, in gray levels.

    The median absolute diagonal detail of Haar wavelets (Donoho 1994) of the differences between the color channels:
    texture has nearly the same details in all channels, and noise has not. 0 where there are too few pixels.
    """
    high, wide = (side // 2 * 2 for side in where.shape)
    corners = [picture[row:high:2, column:wide:2].astype(np.float32) for row in (0, 1) for column in (0, 1)]
    within = np.logical_and.reduce([where[row:high:2, column:wide:2] for row in (0, 1) for column in (0, 1)])
    details = (corners[0] - corners[1] - corners[2] + corners[3])[within] / 2
    if len(details) < 64:
        return 0.0
    between = (details - np.roll(details, 1, axis=1)) / np.sqrt(2)
    return float(np.median(np.abs(between))) / 0.6745


def gained_noise(picture: np.ndarray, reference: np.ndarray, where: np.ndarray) -> float:
    """Gray levels of noise that a picture has more than its reference, in the pixels of `where`."""
    before, after = noise_level(reference, where), noise_level(picture, where)
    return float(np.sqrt(max(0.0, after**2 - before**2)))


def sharpness_change(picture: np.ndarray, reference: np.ndarray, where: np.ndarray) -> float:
    """The absolute base-2 logarithm of the ratio of two pictures' mean gradients in the pixels of `where`."""
    if not where.any():
        return 0.0
    means = [float(_steps(array)[where].mean()) + 0.5 for array in (picture, reference)]
    return float(abs(np.log2(means[0] / means[1])))


def _steps(picture: np.ndarray) -> np.ndarray:
    luma = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY).astype(np.float32)
    return np.hypot(cv2.Sobel(luma, cv2.CV_32F, 1, 0), cv2.Sobel(luma, cv2.CV_32F, 0, 1)) / 8


def straight_edge(picture: np.ndarray, reference: np.ndarray, where: np.ndarray, length: int = 20) -> float:
    """Gray levels of the strongest corner of straight edges, `length` pixels of 256 long, that only the picture has.

    An edge is an upright or level line of pixels that all change in the same direction across it, and counts with its
    weakest pixel; of the strongest upright and the strongest level edge the weaker one counts. A rectangle that was
    pasted in has both, what a network paints hardly ever has either. Only steps between pixels of `where` count, and an
    edge of the reference that became up to three times as strong is not a new one.
    """
    run = max(6, round(length * picture.shape[0] / 256))
    before = reference.astype(np.int16)  # holds every number below exactly
    change = picture.astype(np.int16) - before
    strongest = []
    for turned in (False, True):
        values, own, inside = (change, before, where) if not turned else (
            change.transpose(1, 0, 2), before.transpose(1, 0, 2), where.T)  # fmt: skip
        across, both = np.diff(values, axis=1), (inside[:, 1:] & inside[:, :-1])[..., None]
        steps, beside = np.diff(own, axis=1), np.ones((1, 3), np.uint8)
        weakest = [
            cv2.erode(
                np.where(both, sign * across - 2 * cv2.dilate(np.maximum(sign * steps, 0), beside), np.int16(-255)),
                np.ones((run, 1), np.uint8),
                borderType=cv2.BORDER_CONSTANT,
                borderValue=-255,
            )
            for sign in (np.int16(1), np.int16(-1))
        ]
        strongest.append(max(0.0, *(float(edge.max()) for edge in weakest)))
    return min(strongest)


def unsupported_outline(original: np.ndarray, mask: np.ndarray) -> float:
    """The length of the mask's outline along one straight line without an edge in the photograph, in object sizes.

    The outline is simplified to straight stretches; a stretch has support where the photograph changes more across it
    than across lines parallel to it, and counts less if the outline is rough there. Stretches on one line, such as a
    cut that runs through two legs, are added up. Stretches at the picture's border, where annotators stop a little
    early, do not count. Object size: the root of its area. original: (H, W, 3), mask: (H, W): before framing.
    """
    inside = (mask > 0.5).astype(np.uint8)
    area = int(np.count_nonzero(inside))
    if area < 32:
        return 0.0
    scale = min(mask.shape) / 256
    soft = cv2.GaussianBlur(original, (0, 0), 1.0 * scale).astype(np.float32)
    contours, _ = cv2.findContours(inside, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    stretches: list[tuple[np.ndarray, np.ndarray, float]] = []
    for contour in contours:
        for points in _straight_stretches(contour, 1.5 * scale):
            first, last = points[0], points[-1]
            length = float(np.linalg.norm(last - first))
            if length < 8 * scale or _on_border(first, last, inside.shape, BORDER * scale):
                continue
            ends = np.linspace(first, last, max(1, round(length / (PIECE * scale))) + 1)
            bare = np.mean([1 - _support(soft, *piece, scale) for piece in zip(ends, ends[1:], strict=False)])
            # A line on the grid of pixels strays from itself by 0.3 pixels; the outline of an object by more.
            stray = float(((points - first) @ _normal(first, last)).std()) / scale
            stretches.append((first, last, length * float(bare) * float(np.clip((0.7 - stray) / 0.3, 0, 1))))
    return _most_on_a_line(stretches, 2 * scale) / area**0.5


def _straight_stretches(contour: np.ndarray, tolerance: float) -> list[np.ndarray]:
    """The points (N, 2) float32 of a closed contour (M, 1, 2), divided at the corners of its simplified outline."""
    points = contour[:, 0].astype(np.float32)
    corners = cv2.approxPolyDP(contour, tolerance, True)[:, 0]
    places = sorted(int((contour[:, 0] == corner).all(axis=1).argmax()) for corner in corners)
    turned = np.concatenate([points, points])
    ends = [*places[1:], places[0] + len(points)]
    return [turned[first : last + 1] for first, last in zip(places, ends, strict=True)]


def _most_on_a_line(stretches: list[tuple[np.ndarray, np.ndarray, float]], reach: float) -> float:
    """The largest sum of the stretches that lie within `reach` of the line of one of them and run in its direction."""
    if not stretches:
        return 0.0
    starts, ends = (np.stack([stretch[side] for stretch in stretches]) for side in (0, 1))
    along = ends - starts
    normals = np.stack([_normal(*stretch[:2]) for stretch in stretches])
    off = [np.abs(((points[None] - starts[:, None]) * normals[:, None]).sum(axis=2)) for points in (starts, ends)]
    near = (np.maximum(*off) < reach) & (along @ along.T > 0)
    return float((near @ np.array([length for *_, length in stretches])).max())


def _normal(first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The unit vector at right angles to the line from one point to another: (2,) float32."""
    along = (last - first) / np.linalg.norm(last - first)
    return np.array([-along[1], along[0]], np.float32)


def _on_border(first: np.ndarray, last: np.ndarray, shape: tuple[int, ...], margin: float) -> bool:
    """Whether both ends (x, y) of a stretch lie within `margin` of the same side of a picture."""
    far = np.array([shape[1], shape[0]]) - 1 - margin
    return bool(((np.maximum(first, last) <= margin) | (np.minimum(first, last) >= far)).any())


def _support(soft: np.ndarray, first: np.ndarray, last: np.ndarray, scale: float) -> float:
    """In [0, 1]: how much more a picture changes across a line than across lines parallel to it."""
    normal = _normal(first, last)
    shares = np.linspace(0.05, 0.95, 13, dtype=np.float32)[:, None]
    points = (first + shares * (last - first)).astype(np.float32)
    offsets = np.arange(-11, 12, dtype=np.float32) * scale
    places = points[None] + offsets[:, None, None] * normal
    lines = cv2.remap(soft, places[..., 0], places[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    steps = np.abs(lines[4:] - lines[:-4]).mean(axis=(1, 2))  # across 4 pixels, centered at the offsets -9 ... 9
    at_line, beside = float(steps[6:13].max()), float(np.concatenate([steps[:5], steps[14:]]).mean())
    return float(np.clip(at_line / max(beside, 2.0) - 1.2, 0, 1))


def fill_color(background: np.ndarray, hole: np.ndarray) -> float | None:
    """The largest distance of a color of the fill, over cells of 1/32 of the side, to the nearest color around it."""
    cells = cv2.resize(cv2.cvtColor(background, cv2.COLOR_RGB2LAB), (32, 32), interpolation=cv2.INTER_AREA)
    covered = cv2.resize(hole.astype(np.float32), (32, 32), interpolation=cv2.INTER_AREA)
    inside, outside = (cells[chosen].astype(np.float32) for chosen in (covered > 0.99, covered < 0.01))
    if not len(inside) or not len(outside):
        return None
    return float(np.linalg.norm(inside[:, None] - outside[None], axis=2).min(axis=1).max())


def fill_texture(background: np.ndarray, hole: np.ndarray) -> float | None:
    """|log2| of the ratio of fine detail in the fill to that in a band of a twelfth of the side around it."""
    gray, ring = cv2.cvtColor(background, cv2.COLOR_RGB2GRAY).astype(np.float32), _around(hole)
    fine = gray - cv2.GaussianBlur(gray, (0, 0), 2)
    if not hole.any() or not ring.any():
        return None
    # Half a gray level keeps the noise of two flat areas from counting.
    return float(abs(np.log2((fine[hole].std() + 0.5) / (fine[ring].std() + 0.5))))


def fill_grain(background: np.ndarray, hole: np.ndarray) -> float | None:
    """log2 of fine over coarse detail in the fill, less that in the band around it, at least 0.

    Patches that were copied again and again draw combs and tunnels: lines of a pixel or two where there was structure.
    """
    gray, ring = cv2.cvtColor(background, cv2.COLOR_RGB2GRAY).astype(np.float32), _around(hole)
    if not hole.any() or not ring.any():
        return None
    soft, softer = (cv2.GaussianBlur(gray, (0, 0), sigma * hole.shape[0] / 256) for sigma in (1.5, 3.0))
    fine, coarse = np.abs(gray - soft), np.abs(soft - softer)
    inside, outside = (np.log2((fine[at].mean() + 0.25) / (coarse[at].mean() + 0.25)) for at in (hole, ring))
    return max(0.0, float(inside - outside))


def _around(hole: np.ndarray) -> np.ndarray:
    """(S, S) bool: the band of a twelfth of the side around a hole."""
    reach = max(hole.shape[0] // 12, 3)
    return (cv2.dilate(hole.astype(np.uint8), np.ones((2 * reach + 1, 2 * reach + 1), np.uint8)) > 0) & ~hole
