"""Numbers and edits in words: what the report's sentences, tables and axes are made of."""

from __future__ import annotations

import re
from collections.abc import Sequence

# what an edit of the named recipes does to the photograph
_EXPLAINED = {
    "original": "the photograph, framed as a square; every drop is against it",
    "source": "the file as it was found, before framing",
    "inversion": "control: background noised and denoised, nothing asked of it",
    "reinsertion": "control: object taken out and put back where it was",
    "background-simple": "background made smoother (λ = −20)",
    "background-complex": "background made busier (λ = +20)",
    "background-adversarial": "background pushed against one classifier, the guide",
    "background-random": "object on the background of another photograph",
    "size-full": "object as large as fits the picture",
    "position": "object at 5 % of the picture, at a random place",
    "direction": "object turned by a random angle, −45° to 45°",
    "direction-small": "object at 5 % of the picture, turned by a random angle",
    "colour-grey": "object without colour",
}
_AXES = {
    "size": "object's share of the picture",
    "direction": "rotation, degrees",
    "position": "object's centre, share of the width",
    "background": "guidance strength λ, no unit",
    "occlusion": "share of the object that is hidden",
    "lighting": "change of light, stops",
    "blur": "blur radius, pixels of 256",
    "colour": "turn of the hue, degrees",
}


def explained(edit: str) -> str:
    """What the edit does, in a few words; empty where only its maker knows.

    >>> explained("size-0.05")
    'object at 5 % of the picture'
    """
    if edit in _EXPLAINED:
        return _EXPLAINED[edit]
    size = re.fullmatch(r"size-(0?\.\d+|1)", edit)
    return f"object at {100 * float(size.group(1)):g} % of the picture" if size else ""


def axis_label(attribute: str) -> str:
    """The label of an attribute's axis, with its unit; `lighting-object` is an axis of `lighting`."""
    stem, _, rest = attribute.partition("-")
    label = _AXES.get(stem)
    if label is None:
        return attribute
    return f"{label} ({rest})" if rest else label


def points(value: float | None, signed: bool = False) -> str:
    """A number of points with one decimal and a real minus; a dash for none.

    >>> points(-2.345), points(3, signed=True), points(None)
    ('−2.3', '+3.0', '–')
    """
    if value is None:
        return "–"
    rounded = f"{value:+.1f}" if signed and round(value, 1) else f"{value:.1f}"
    return rounded.replace("-0.0", "0.0").replace("-", "−")


def interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{points(low)} to {points(high)}"


def percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def plural(count: int, noun: str) -> str:
    """
    >>> plural(1, "model"), plural(4352, "photograph")
    ('1 model', '4,352 photographs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(names: Sequence[str], last: str = "and") -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"
