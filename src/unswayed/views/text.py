"""Numbers, names and pictures as text, the same in every table, sentence and page; templates of HTML."""

from __future__ import annotations

import base64
import functools
import io
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from unswayed.errors import printable

if TYPE_CHECKING:
    import numpy as np
    from jinja2 import Environment

DASH = "–"  # what stands for a missing value
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": r"$-$", "–": "--", "<": r"$<$", ">": r"$>$",
    "×": r"$\times$", "λ": r"$\lambda$",
}  # fmt: skip


def safe(text: str, format: str = "table") -> str:
    r"""Return a name as one line that its surroundings cannot read as a command: no control characters, and escaped for
    `markdown` or `latex`.

    >>> safe("\x1b[31mred\n"), safe("a|b", "markdown"), safe("50 %", "latex")
    (' [31mred ', 'a\\|b', '50 \\%')
    """
    if not text.isprintable():
        text = printable(text)
    if format == "markdown":
        return re.sub(r"[\\|`*<>\[\]]", r"\\\g<0>", text)
    return "".join(_LATEX.get(character, character) for character in text) if format == "latex" else text


def number(value: float | None, digits: int | str = 2) -> str:
    """Return a number with a true minus sign and no sign before zero; a dash for None.

    digits: decimals, or a format such as `.3g` or `+.1f`; with three decimals or more a tiny number keeps one
    significant digit.

    >>> number(-2.345), number(-0.001), number(0.00002, 4), number(3, "+.1f"), number(None)
    ('−2.35', '0.00', '2e-05', '+3.0', '–')
    """
    if value is None or value != value:
        return DASH
    tiny = isinstance(digits, int) and digits >= 3 and 0 < abs(value) < 0.5 * 10**-digits
    text = f"{value:.0e}" if tiny else format(value, digits if isinstance(digits, str) else f".{digits}f")
    if not re.search(r"[1-9a-z]", text):
        return text.lstrip("+-")
    return f"−{text[1:]}" if text.startswith("-") else text


def points(value: float | None, signed: bool = False) -> str:
    """Return a number of points with one decimal.

    >>> points(-2.345), points(3, signed=True), points(None)
    ('−2.3', '+3.0', '–')
    """
    return number(value, "+.1f" if signed else 1)


def interval(low: float | None, high: float | None, digits: int | str = 1) -> str:
    """
    >>> interval(-1, 2.04), interval(None, 2)
    ('−1.0 to 2.0', '–')
    """
    return DASH if low is None or high is None else f"{number(low, digits)} to {number(high, digits)}"


def probability(value: float | None) -> str:
    """Return a p-value with three decimals; one below 0.001 is printed so.

    >>> probability(0.0123), probability(2e-7), probability(None)
    ('0.012', '< 0.001', '–')
    """
    return "< 0.001" if value is not None and value < 0.001 else number(value, ".3f")


def percent(share: float | None, digits: int = 1) -> str:
    return DASH if share is None else f"{number(100 * share, f'.{digits}f')} %"


def plural(count: int, noun: str) -> str:
    """
    >>> plural(1, "model"), plural(4352, "photograph")
    ('1 model', '4,352 photographs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def sample_size(counts: Iterable[int]) -> str:
    """
    >>> sample_size([4352, 4352]), sample_size([900, 4352])
    ('n = 4,352', 'n = 900 to 4,352')
    """
    least, *others = sorted(set(counts))
    return f"n = {least:,}" + (f" to {others[-1]:,}" if others else "")


def listed(names: Sequence[str]) -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def unbroken(text: str) -> str:
    """Return the text without line breaks between a number and its unit or `n =`."""
    return text.replace("n = ", "n\u00a0=\u00a0").replace(" %", "\u00a0%")


def joined(*parts: object) -> Markup:
    """Return the parts joined, each escaped unless it is Markup; None is left out."""
    return Markup("").join(escape(part) for part in parts if part is not None)


def data_address(picture: np.ndarray, side: int = 256, quality: int = 72) -> str:
    """Return the picture as a `data:` URL: WebP, its longer side at most `side` pixels."""
    from PIL import Image

    image = Image.fromarray(picture)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=quality, method=4)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"


@functools.cache
def _templates() -> Environment:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=ChoiceLoader([PackageLoader("unswayed.views", "report"), PackageLoader("unswayed.views", "app")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions = (data_address, percent, points, interval, unbroken)
    templates.globals |= {function.__name__: function for function in functions}
    return templates


def render(name: str, macro: str | None = None, /, **values: object) -> Markup:
    """Return a template of the report or the app, or one of its macros, filled with the values; every value is escaped
    unless it is Markup."""
    template = _templates().get_template(name)
    return Markup(template.render(values) if macro is None else getattr(template.module, macro)(**values))
