"""Scenes of a benchmark that show the same object in the same photograph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence


def repeated_photographs(scenes: Iterable[tuple[str, Hashable, int | None]]) -> list[str]:
    """Warnings about photographs that occur more than once, given (scene, what identifies its picture and mask, class).

    >>> repeated_photographs([("cat/a", 1, 0), ("dog/a", 1, 1), ("b", 2, 1)])
    ['2 scenes show a photograph that also has another class, so no model is right about all of them: cat/a = dog/a']
    """
    alike: dict[Hashable, dict[str, int | None]] = defaultdict(dict)
    for scene, shown, label in scenes:
        alike[shown][scene] = label
    several = [group for group in alike.values() if len(group) > 1]
    found = []
    for mixed, meaning in (
        (True, "show a photograph that also has another class, so no model is right about all of them"),
        (False, "show a photograph that occurs more than once, and are counted as if they were different ones"),
    ):
        groups = [group for group in several if (len(set(group.values())) > 1) == mixed]
        if groups:
            found.append(f"{sum(map(len, groups))} scenes {meaning}: {_listed(groups)}")
    return found


def _listed(groups: Sequence[Mapping[str, int | None]]) -> str:
    return ", ".join(" = ".join(list(group)[:3]) for group in groups[:3]) + (" …" if len(groups) > 3 else "")
