"""The exception that a user's mistake raises: it says what was given, what is allowed and what to run."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Collection, Iterable
from importlib.util import find_spec

# Control characters, line breaks, and marks that change the direction of text: what prints them may obey them.
CONTROLS = r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]"


def printable(text: str) -> str:
    """The text as one line, with a space for every character that cannot be printed.

    >>> printable("lite:0\\n::error::\\x1b[31m")
    'lite:0 ::error:: [31m'
    """
    return "".join(character if character.isprintable() else " " for character in text)


class UserError(Exception):
    """A mistake that the user can correct; the command line prints it and exits with 2.

    >>> print(UserError("size is 7", allowed="0.001 to 1, or full", run="unswayed edits"))
    size is 7
    allowed: 0.001 to 1, or full
    run: unswayed edits
    """

    def __init__(self, given: str, *, allowed: str | None = None, run: str | None = None) -> None:
        # A file's name may be no text; what a message says of it must be.
        given = given.encode(errors="backslashreplace").decode()
        self.given, self.allowed, self.run = given, allowed, run
        parts = {"allowed": allowed, "run": run}
        super().__init__("\n".join([given, *(f"{name}: {text}" for name, text in parts.items() if text is not None)]))

    def __reduce__(self) -> tuple[object, ...]:
        return functools.partial(type(self), allowed=self.allowed, run=self.run), (self.given,)


class BadPicture(UserError):
    """One picture or mask that cannot be used; a run records it and continues."""


class TooLarge(BadPicture):
    """A picture of more pixels than may be read."""


class CannotWrite(UserError):
    """A file that cannot be written, or an output folder that is gone: the whole run ends, and resumes later."""


class UnswayedWarning(UserWarning):
    """The category of warnings about input that can be used but is probably not what was meant."""


def some(names: Iterable[str], most: int = 5) -> str:
    """The names with commas between them; of more than `most` the first ones, and how many there are.

    >>> some(["tench", "goldfish", "hen"], 2)
    'tench, goldfish, … (3 in all)'
    """
    names = list(names)
    return ", ".join(names if len(names) <= most else [*names[:most], f"… ({len(names)} in all)"])


def unknown(kind: str, name: str, allowed: Iterable[str], run: str | None = None) -> UserError:
    """The error for a name that does not exist, with the most similar name and all allowed names.

    >>> print(unknown("edit", "sise", ["size", "position"]))
    there is no edit 'sise'; did you mean 'size'?
    allowed: size, position
    """
    names = list(allowed)
    by_lower = {name.lower(): name for name in reversed(names)}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    hint = f"; did you mean '{by_lower[near[0]]}'?" if near else ""
    return UserError(f"there is no {kind} '{name}'{hint}", allowed=some(names, 40) or "none", run=run)


def check_known(kind: str, names: Iterable[str], allowed: Collection[str], run: str | None = None) -> None:
    """Raise the error `unknown` for the first of the names that is not allowed."""
    for name in names:
        if name not in allowed:
            raise unknown(kind, name, allowed, run)


def first_line(error: BaseException) -> str:
    """The first line of an error's text that is not blank, or the error's type if there is none.

    >>> first_line(ValueError("\\nno label\\nat all")), first_line(ValueError())
    ('no label', 'ValueError')
    """
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def reason_of(error: BaseException) -> str:
    """An error as the reason of a failure: the text of a UserError, the type and the text of any other.

    >>> reason_of(ValueError("no label")), reason_of(UserError("no label"))
    ('ValueError: no label', 'no label')
    """
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"


def missing(packages: Iterable[str]) -> list[str]:
    """Those of the packages that are not installed."""
    return [package for package in packages if find_spec(package) is None]


def need(extra: str, *packages: str) -> None:
    """Raises UserError with the command that installs the extra if one of these packages is not installed."""
    for package in missing(packages):
        given = f"this needs the package '{package}', which is not installed"
        raise UserError(given, run=f"pip install 'unswayed[{extra}]'")
