"""The benchmark of predictions: given, or found through the cards; only the one that was evaluated is used."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from unswayed.benchmark.card import read_card
from unswayed.benchmark.layout import CARD, MANIFEST
from unswayed.benchmark.rows import read_manifest
from unswayed.errors import UserError
from unswayed.files.storage.addresses import address, is_address, place_of
from unswayed.files.storage.working_copy import local_copy, reachable_copy
from unswayed.files.whole import sha256

from .frames import Predictions, is_frame, polars_table, prediction_files
from .identity import identity_in, identity_of, stored_differences


@dataclass(frozen=True, eq=False)
class FoundBenchmark:
    """The folder, manifest and card of a benchmark; root and manifest None: it is not available, `absent` says why."""

    root: Path | None = None
    manifest: pl.DataFrame | None = None
    card: Mapping[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] = ()


def find_benchmark(
    predictions: Predictions,
    cards: Mapping[str, Mapping[str, Any]],
    given: str | Path | None = None,
    models: Sequence[str] | None = None,
) -> FoundBenchmark:
    """Return the benchmark on which these models, or all, were evaluated; a `given` one that is another is refused.

    A copy is the same benchmark, and so is one that has grown since. Cards of other programs state no identity, so
    their benchmark is used unchecked.
    """
    stated = [card for name, card in cards.items() if models is None or name in models]
    if given is not None:
        root = local_copy(given)
        card = read_card(root)
        manifest = polars_table(read_manifest(root, (), outside=True))
        lines = _differences(predictions, stated, root, card)
        if lines:
            raise UserError(
                f"{given} is not the benchmark that was evaluated; what differs:\n  " + "\n  ".join(lines),
                allowed="the benchmark of these predictions, wherever it is now, or a copy of it",
                run=f"unswayed evaluate {given} -m MODEL -o ANOTHER, for predictions on this benchmark",
            )
        return FoundBenchmark(root, manifest, card)
    absent = []
    described = [card["benchmark"] for card in cards.values() if isinstance(card.get("benchmark"), dict)]
    for path, one in {one["path"]: one for one in described if one.get("path")}.items():
        try:
            foreign = _is_foreign(path, predictions)
            root = place_of(path) if foreign else reachable_copy(path)
        except UserError as error:
            absent.append(f"the card's path of the benchmark is {path[:200]!r}, which cannot be used ({error.given})")
            continue
        # A folder of `images:` has no manifest, and its cards state no hash of a benchmark's card.
        finished = os.path.isfile(root / MANIFEST)
        if not os.path.exists(root) or ("card_sha256" in one and not finished):
            where = f"at {path}, which is not fetched because only a file names it"
            absent.append(f"the benchmark is {where if foreign else f'no longer at {path}'}")
        elif finished:
            card = read_card(root) if (root / CARD).is_file() else {}
            lines = _differences(predictions, stated, root, card)
            if not lines:
                return FoundBenchmark(root, polars_table(read_manifest(root, (), outside=True)), card)
            absent.append(f"the benchmark in {path} is not the one that was evaluated ({'; '.join(lines)})")
    unknown = "so its controls and levels are unknown and its pictures are not shown: give its place by --benchmark"
    return FoundBenchmark(absent=tuple(f"{one}, {unknown}" for one in absent))


def _is_foreign(path: str, predictions: Predictions) -> bool:
    """Whether a card names an address in a storage other than that of the predictions, which the user gave."""
    if not is_address(path):
        return False
    bucket = "/".join(address(place_of(path)).split("/")[:3])
    return is_frame(predictions) or not address(place_of(predictions)).startswith(f"{bucket}/")


def _differences(
    predictions: Predictions, stated: Sequence[Mapping[str, Any]], root: Path, card: Mapping[str, Any]
) -> list[str]:
    """Return what differs between a benchmark and the one of the cards; nothing if one of them fits it."""
    identities = {one["sha256"]: (one, model) for model in stated if (one := identity_in(model)) is not None}
    if not identities or any(_is_unchanged(model["benchmark"], root) for _, model in identities.values()):
        return []
    from .inputs import rows_of

    rows = rows_of(root, read_manifest(root, outside=True).to_pylist())
    now = identity_of(card, card.get("labels"), rows)
    assert not is_frame(predictions)  # only files have cards
    files = {path.stem: path for path in prediction_files(predictions)}
    words = ("in the predictions", f"in {root}")
    lines = [
        stored_differences(files[model["file"]], one, now, rows, words, whole=True)
        for one, model in identities.values()
    ]
    return min(lines, key=len)


def _is_unchanged(described: Mapping[str, Any], root: Path) -> bool:
    """Return whether the manifest and the card of a benchmark have the bytes that were evaluated."""
    manifest, card = str(described.get("sha256")).partition(":")[0], described.get("card_sha256")
    return (root / CARD).is_file() and manifest == sha256(root / MANIFEST) and card == sha256(root / CARD)
