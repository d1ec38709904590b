"""The rules of a gate: limits of drop and accuracy by edit, and a baseline that a model must not be worse than."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from unswayed.errors import UserError, unknown
from unswayed.files.whole import read_toml

MEASURES = ("accuracy", "drop")
_KINDS = (
    "--max-drop EDIT=POINTS, --min-accuracy EDIT=PERCENT, --min-threshold ATTRIBUTE=LEVEL@PERCENT, "
    "--baseline PREDICTIONS or --config FILE.toml"
)


@dataclass(frozen=True)
class Rules:
    """The requirements of a gate.

    max_drop: edit (or a pattern such as `size-*`, or `average`) -> points; min_accuracy: edit or pattern -> percent;
    min_threshold: attribute of a sweep -> (level, percent), the level down to which that accuracy must be kept;
    baseline: predictions not to fall behind by more than `margin` points of `measure`, accuracy or drop, on any edit;
    level: of the intervals; models: those to check, all if empty.
    """

    max_drop: Mapping[str, float] = field(default_factory=dict)
    min_accuracy: Mapping[str, float] = field(default_factory=dict)
    min_threshold: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    baseline: str | Path | pl.DataFrame | None = None
    margin: float = 0.0
    measure: str = "accuracy"
    level: float = 0.95
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.max_drop or self.min_accuracy or self.min_threshold) and self.baseline is None:
            raise UserError(
                "there is nothing to check",
                allowed=_KINDS,
            )
        if self.measure not in MEASURES:
            raise unknown("measure", self.measure, MEASURES)
        if self.margin < 0:
            raise UserError(f"the margin is {self.margin:g} points", allowed="0 or more")
        for edit, points in self.max_drop.items():
            if not -100 <= points <= 100:
                raise UserError(f"the drop allowed for {edit} is {points:g} points", allowed="-100 to 100")
        for edit, percent in self.min_accuracy.items():
            if not (percent == 0 or 1 < percent <= 100):
                raise UserError(f"the accuracy wanted for {edit} is {percent:g} %", allowed="percent: 90 means 90 %")

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return a sentence for each limit that looks like a fraction where points are expected."""
        return tuple(
            f"the limit {edit}={points:g} allows a drop of {points:g} points of 100; for {100 * points:g} points, "
            f"write {edit}={100 * points:g}"
            for edit, points in self.max_drop.items()
            if 0 < points < 1
        )


def read_rules(config: str | Path | None, **given: Any) -> Rules:
    """Return the rules from a TOML file and from arguments, which override the file.

    The file: tables [max-drop] and [min-accuracy] (edit = number), [min-threshold] (size = "0.04@80"), a table
    [baseline] (path, margin, measure), and `level`, `models` at the top.
    """
    content: dict[str, Any] = {}
    if config is not None:
        path = Path(config)
        content = read_toml(path, "config")
        _only(content, ("max-drop", "min-accuracy", "min-threshold", "baseline", "level", "models"), path.name)
        _only(content.get("baseline", {}), ("path", "margin", "measure"), f"[baseline] of {path.name}")
    baseline, written = content.get("baseline", {}), content.get("min-threshold", {})
    values: dict[str, Any] = {
        "max_drop": _numbers(content.get("max-drop", {})),
        "min_accuracy": _numbers(content.get("min-accuracy", {})),
        "min_threshold": {name: parse_threshold(f"{name}={value}") for name, value in written.items()},
        "baseline": baseline.get("path"),
        **{name: baseline[name] for name in ("margin", "measure") if name in baseline},
        **({"level": content["level"]} if "level" in content else {}),
        **({"models": tuple(content["models"])} if "models" in content else {}),
    }
    for name, value in given.items():
        if not (value is None or (isinstance(value, tuple | dict) and not value)):
            values[name] = {**values[name], **value} if isinstance(value, dict) else value
    return Rules(**values)


def parse_limits(texts: Iterable[str], option: str, bare: str | None = None) -> dict[str, float]:
    """Return the limits from `EDIT=NUMBER` texts; a number alone is for the edit `bare`, if that is allowed.

    >>> parse_limits(["size-0.05=20", "average=12.5"], "--max-drop")
    {'size-0.05': 20.0, 'average': 12.5}
    """
    found = {}
    for text in texts:
        edit, equals, number = text.rpartition("=")
        if not equals and bare is not None:
            edit = bare
        try:
            found[edit.strip()] = float(number)
        except ValueError:
            edit = ""
        if not edit.strip():
            raise UserError(f"{option} {text}", allowed=f"EDIT=NUMBER, as in {option} size-0.05=20")
    return found


def parse_threshold(text: str) -> tuple[float, float]:
    """Return (level, percent) of `ATTRIBUTE=LEVEL@PERCENT`.

    >>> parse_threshold("size=0.04@80")
    (0.04, 80.0)
    """
    attribute, _, rest = text.partition("=")
    level, _, percent = rest.partition("@")
    try:
        found = float(level), float(percent)
    except ValueError:
        found = None
    if found is None or not attribute or not 1 < found[1] <= 100:
        raise UserError(
            f"--min-threshold {text}", allowed="ATTRIBUTE=LEVEL@PERCENT, as size=0.04@80: 80 % down to size 0.04"
        )
    return found


def _numbers(table: Any) -> dict[str, float]:
    if not isinstance(table, dict):
        raise UserError(f"{table!r} is not a table of limits", allowed='"size-0.05" = 20')
    for name, value in table.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UserError(f"the limit of {name} is {value!r}", allowed="a number")
    return {name: float(value) for name, value in table.items()}


def _only(table: Mapping[str, Any], allowed: Sequence[str], where: str) -> None:
    for name in table:
        if name not in allowed:
            raise unknown(f"entry in {where}", name, allowed)
