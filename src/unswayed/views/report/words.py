"""Numbers and edits as text, for the report's sentences, tables and axes."""

from __future__ import annotations

from collections.abc import Sequence

from unswayed.edits import edit_named_in
from unswayed.edits.parameters import allowed, parameters


def axis_label(attribute: str) -> str:
    """Return the label of an attribute's axis, with its unit, as its edit declares it.

    >>> axis_label("lighting-object")
    'change of light, stops (object)'
    >>> axis_label("color-saturation")
    'color: saturation, times its saturation'
    """
    edit = edit_named_in(attribute)
    if edit is None:
        return attribute
    rest = attribute.removeprefix(edit.former_name or "").removeprefix(edit.name).removeprefix("-")
    swept = next((name for name in parameters(edit) if rest == name or rest.startswith(f"{name}-")), None)
    if swept is not None:
        unit, fixed = getattr(allowed(edit, swept), "unit", ""), rest.removeprefix(swept).removeprefix("-")
        return f"{edit.name}: {swept}" + (f", {unit}" if unit else "") + (f" ({fixed})" if fixed else "")
    return f"{edit.axis_label} ({rest})" if rest else edit.axis_label


def points(value: float | None, signed: bool = False) -> str:
    """Return a number of points with one decimal and a minus sign; a dash for None.

    >>> points(-2.345), points(3, signed=True), points(None)
    ('−2.3', '+3.0', '–')
    """
    if value is None:
        return "–"
    rounded = f"{value:+.1f}" if signed and round(value, 1) else f"{value:.1f}"
    return rounded.replace("-0.0", "0.0").replace("-", "−")


def interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{points(low)} to {points(high)}"


def probability(value: float | None) -> str:
    """Return a p-value with three decimals; one below 0.001 is printed so.

    >>> probability(0.0123), probability(2e-7), probability(None)
    ('0.012', '< 0.001', '–')
    """
    if value is None:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


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
