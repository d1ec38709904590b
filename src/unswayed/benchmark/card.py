"""`benchmark.json`, the card: what a benchmark was made from and how; which runs may build, and how far a build is."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unswayed.errors import UserError
from unswayed.files.locks import alone, held_locks
from unswayed.files.records import differences, read_object, require_fields
from unswayed.files.storage import address, local_copy
from unswayed.files.whole import canonical, read_json, remove_file, remove_folder, sha256, write_json
from unswayed.sources import Source
from unswayed.specs import Spec

from .rows import (
    CARD,
    LOCK,
    MANIFEST,
    OK,
    ROWS,
    SOURCE_EDIT,
    counts,
    finished_sources,
    read_manifest,
    read_rows,
    row_path,
)

# The fields that determine the pictures' bytes: they must be the same when a build is resumed, those that may grow
# must hold what was there.
GROWING = ("source", "recipe", "runs")
FIXED = ("kind", "frame", "size", "seed", "whole_objects", "strict", "fills", "removal", "renderer", "labels")
Card = dict[str, Any]
_KINDS = {
    "labels": dict[str, Any],
    "source": dict[str, Any] | None,
    "recipe": dict[str, Any] | str | None,
    "runs": int | None,
    "grown": list[dict[str, Any]] | None,
}


def read_card(root: Path) -> Card:
    """Return the card of the benchmark in `root`; raises UserError if there is none."""
    if not (root / CARD).is_file():
        state = "does not exist" if not root.exists() else f"contains no {CARD}"
        raise UserError(f"{root} is not a benchmark: it {state}", run="unswayed build SOURCE -o BENCH")
    card = read_object(root / CARD, _KINDS, run="unswayed build SOURCE -o BENCH")
    if isinstance(card.get("recipe"), dict):
        require_fields(card["recipe"], {"edits": list[Any] | None}, f"{root / CARD}, recipe")
        for number, item in enumerate(card["recipe"].get("edits") or (), 1):
            require_fields(
                item, {"name": str, "parameters": dict[str, Any] | None}, f"{root / CARD}, edit {number} of the recipe"
            )
    return card


def settle_card(root: Path, card: Card, source: Source | None = None) -> None:
    """Write the card into an empty folder, or compare it with the card of the benchmark that is already there.

    source: the scenes, if the benchmark may grow by edits, runs and scenes in addition to all existing ones.
    """
    if not (root / CARD).is_file():
        if root.is_dir() and any(not path.name.startswith(".") for path in root.iterdir()):
            allowed = "a new or empty folder, or one that contains this benchmark"
            raise UserError(f"{root} contains files but no benchmark", allowed=allowed)
        write_json(root / CARD, card)
        return
    before = read_card(root)
    old, new = decisive(before), decisive(card)
    if source is not None and _shows_the_same(root, str((old["source"] or {}).get("spec")), source):
        new["source"] = {**new["source"], "spec": old["source"]["spec"]}
    lines = differences(old, new)
    if not lines:
        return
    if source is not None and _has_grown(root, old, new, source.ids):
        grown = {name: before.get(name) for name in ("source", "runs", "versions")}
        grown["edits"] = len(old["recipe"]["edits"])
        write_json(root / CARD, {**card, "grown": [*before.get("grown", []), grown]})
    elif (root / MANIFEST).is_file() and OK not in read_manifest(root)["status"].to_pylist():
        # The build has ended without a single picture, so that nothing is lost with its settings.
        remove_folder(root / ROWS)
        write_json(root / CARD, card)
        remove_file(root / MANIFEST)
    else:
        raise UserError(
            f"{root} contains another benchmark; these settings differ:\n  " + "\n  ".join(lines),
            allowed="the same settings, or more edits, runs or scenes than now, or another folder",
            run="unswayed build … -o ANOTHER",
        )


def record_facts(root: Path, **facts: Any) -> None:
    """Add facts that are known only when the build has finished, such as `masks`; they do not decide about resuming."""
    before = read_json(root / CARD)
    if canonical({**before, **facts}) != canonical(before):
        write_json(root / CARD, {**before, **facts})


def _has_grown(root: Path, old: Card, new: Card, ids: Sequence[str]) -> bool:
    """Whether nothing differs but that there are more edits, runs and scenes; every picture's seed is its own."""
    before, after = old["source"], new["source"]
    edits = {item["name"]: item for item in new["recipe"]["edits"]}
    return (
        canonical([old[name] for name in FIXED]) == canonical([new[name] for name in FIXED])
        and before.get("spec") == after.get("spec")
        and old["runs"] <= new["runs"]
        and before["scenes"] <= after["scenes"]
        and all(canonical(edits.get(item["name"])) == canonical(item) for item in old["recipe"]["edits"])
        and finished_sources(root) <= set(ids)
    )


def _shows_the_same(root: Path, before: str, source: Source) -> bool:
    """Whether a source, under another path, is the one that the benchmark was begun with: by the finished scenes."""
    there, now = Spec.parse(before), Spec.parse(source.spec)
    if (there.kind, there.options) != (now.kind, now.options):
        return False
    if Path(there.name).expanduser().resolve() == Path(now.name).expanduser().resolve():
        return True
    rows = [row for source_id in finished_sources(root) for row in read_rows(root, source_id)]
    files = {row.source_id: row.sha256 for row in rows if row.edit == SOURCE_EDIT and row.status == OK}
    return all(name in source and sha256(source.entry(name).image) == known for name, known in files.items())


def decisive(card: Card) -> Card:
    """The part of a card that decides whether a build resumes."""
    return {name: card.get(name) for name in (*GROWING, *FIXED)}


def ids_hash(ids: Iterable[str]) -> str:
    """Return a hash of the scenes and their order, because a random background is chosen from all of them."""
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()


def labels_hash(labels: Iterable[tuple[str, int | None]]) -> str:
    """Return a hash of the label of each source, which no file of a picture shows."""
    return hashlib.sha256(canonical(sorted(set(labels), key=str)).encode()).hexdigest()


@contextlib.contextmanager
def only_run(root: Path, shard: str | None) -> Iterator[None]:
    """A block for one run: a shard refuses a second run of itself and one of the whole build, which refuses all."""
    busy, run = f"another run is building in {root}", f"unswayed status {root}"
    own = LOCK if shard is None else f"{LOCK}.{shard.replace('/', '-of-')}"
    with alone(root / own, busy, run):
        others = held_locks(root, LOCK, but=own)
        if others and (shard is None or LOCK in others):
            raise UserError(busy, run=run)
        yield


# The pace is measured over this many recent sources, because the first ones of a run include loading and compiling.
_RECENT = 50


@dataclass(frozen=True)
class Standing:
    """Sources done and in total, rows by status, pace in sources per second and seconds left (None if unknown)."""

    root: Path
    kind: str
    recipe: str
    done: int
    total: int
    counts: dict[str, int]
    running: bool
    finished: bool
    pace: float | None = None
    left: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "root": address(self.root)}


def standing(path: str | Path) -> Standing:
    """Return the status of the benchmark in `path`; changes nothing."""
    root = local_copy(path).expanduser()
    card = read_card(root)
    total = int(card["source"]["scenes"])
    finished = (root / MANIFEST).is_file()
    if card.get("kind") == "import":
        statuses = read_manifest(root)["status"].to_pylist() if finished else []
        return Standing(root, "import", "imported", total, total, counts(statuses), False, finished)
    ids = finished_sources(root)
    by_status = counts(row.status for source_id in ids for row in read_rows(root, source_id))
    active = bool(held_locks(root, LOCK))
    # The times at which the last row files were written.
    times = sorted((root / row_path(source_id)).stat().st_mtime for source_id in ids)[-_RECENT:] if active else []
    pace = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 2 and times[-1] > times[0] else None
    left = (total - len(ids)) / pace if pace else None
    recipe, complete = str(card["recipe"]["name"]), finished and len(ids) == total
    return Standing(root, "build", recipe, len(ids), total, by_status, active, complete, pace, left)
