"""The plan of a build and its card: all that decides its content, which runs may build it, and how far it is."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from unswayed.edits.recipes import Item, Recipe
from unswayed.errors import UserError
from unswayed.files.locks import alone, held_locks
from unswayed.files.records import differences, versions
from unswayed.files.storage import address, local_copy
from unswayed.files.whole import Json, canonical, read_json, remove_file, remove_folder, sha256, write_json
from unswayed.rendering.layers import Removal, Renderer
from unswayed.rendering.settings import SPEED, guide_of, open_renderer
from unswayed.sources import Source
from unswayed.specs import Spec

from .rows import (
    CARD,
    FAILED,
    FORMAT,
    LOCK,
    MANIFEST,
    OK,
    ORIGINAL_EDIT,
    ROWS,
    SOURCE_EDIT,
    Card,
    Row,
    counts,
    finished_sources,
    kept_rows,
    read_card,
    read_manifest,
    read_rows,
    row_path,
    template_row,
)
from .settings import BuildSettings


def picture_seed(
    seed: int, source_id: str, edit: str, parameters: Mapping[str, object], run: int, attempt: int = 0
) -> int:
    """Return an integer in [0, 2⁶⁴) that does not depend on the order, batch size, number of workers or machine.

    blake2b over the canonical JSON of (benchmark seed, source_id, edit name and parameters, run), and of the attempt
    where an earlier picture was left out as invalid.

    >>> picture_seed(7, "dog", "size-0.05", {"rate": 0.05}, 0) == picture_seed(7, "dog", "size-0.05", {"rate": 0.05}, 1)
    False
    """
    again = [attempt] if attempt else []
    record = canonical([seed, source_id, {"edit": edit, "parameters": dict(parameters)}, run, *again])
    return int.from_bytes(hashlib.blake2b(record.encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True)
class Plan:
    """What a build makes.

    root: the benchmark's folder; source: the selected scenes; recipe: the opened `settings.recipe`.
    """

    root: Path
    source: Source
    recipe: Recipe
    settings: BuildSettings

    def __post_init__(self) -> None:
        self.source.require_masks(", so its objects cannot be edited")
        if any(item.name == SOURCE_EDIT for item in self.recipe.items):
            raise UserError(f"an edit of the recipe is named '{SOURCE_EDIT}', which is reserved for the source files")
        if not any(item.name == ORIGINAL_EDIT for item in self.recipe.items):
            raise UserError(f"the recipe has no edit '{ORIGINAL_EDIT}', which every drop is compared with")

    @functools.cached_property
    def network(self) -> bool:
        """Whether a network makes the pictures."""
        return self.settings.has_network

    @functools.cached_property
    def draws(self) -> dict[str, bool]:
        """Whether each edit has a random part, so that several runs of it differ."""
        return self.recipe.draws(self.network)

    @functools.cached_property
    def templates(self) -> list[tuple[Item, Row]]:
        """The items of the recipe, each with what the rows of its pictures share."""
        return [
            (item, template_row(record)) for item, record in zip(self.recipe.items, self.recipe.records(), strict=True)
        ]

    def source_row(self, source_id: str) -> Row:
        """The row of the source's own file."""
        seed = picture_seed(self.settings.seed, source_id, SOURCE_EDIT, {}, 0)
        return Row(source_id, SOURCE_EDIT, seed=seed, label=self.source.label_of(source_id))

    def pictures(self, source_id: str) -> Iterator[tuple[Item, Row]]:
        """Every planned picture of one source with its row so far, several runs only if they would differ."""
        label = self.source.label_of(source_id)
        for item, row in self.templates:
            for run in range(max(self.settings.runs if self.draws[item.name] else 1, self.fills_of(item))):
                seed = picture_seed(self.settings.seed, source_id, row.edit, row.parameters, run)
                yield item, replace(row, source_id=source_id, run=run, seed=seed, label=label)

    def fills_of(self, item: Item) -> int:
        """Over how many fills of the object's old place an item is made: several only if it moves or resizes it."""
        return self.settings.fills if any(edit.compared_with == "reinsertion" for edit in item.chain) else 1

    def missing(self, source_id: str, rows: Sequence[Row]) -> int:
        """How many pictures of a source are still to be made: they failed, or were not planned when it was finished."""
        there = {row.key for row in rows if row.status != FAILED}
        planned = {row.key for _, row in self.pictures(source_id)}
        return len(planned - there) or sum(row.status == FAILED for row in rows)

    def unmade(self, source_id: str, status: str, reason: str) -> list[Row]:
        """Every row of a source with the same status and reason, except those whose pictures exist already."""
        kept = kept_rows(self.root, source_id)
        rows = [self.source_row(source_id), *(row for _, row in self.pictures(source_id))]
        return [kept.get(row.key, replace(row, status=status, reason=reason)) for row in rows]

    def on(self, device: str) -> Plan:
        """The same plan for one device."""
        return replace(self, settings=replace(self.settings, device=device))

    def open_renderer(self) -> Renderer:
        settings = self.settings
        # Of the whole benchmark, so that a part of it is made in the same way.
        planned = len(self.source.ids) * sum(settings.runs if drawn else 1 for drawn in self.draws.values())
        if settings.guide != self.guide:
            settings = replace(settings, guide=self.guide)
        return open_renderer(settings, batch_size=settings.batch_size, planned=planned)

    @functools.cached_property
    def guide(self) -> str | None:
        """The classifier that adversarial backgrounds attack."""
        return guide_of(self.settings, [edit for item in self.recipe.items for edit in item.chain], self.source.labels)

    def card(self, renderer: Renderer, removal: Removal) -> Card:
        """Return the content of `benchmark.json`, which does not depend on the time, batch size or workers."""
        described, ids, settings = renderer.describe(), self.source.ids, self.settings
        # Only `strict` changes pictures.
        strict = {"strict": {"tries": settings.tries}} if settings.quality == "strict" else {}
        return {
            "format": FORMAT,
            "kind": "build",
            "source": {"spec": self.source.spec, "scenes": len(ids), "ids_sha256": ids_hash(ids)},
            **{name: getattr(settings, name) for name in ("frame", "size", "seed", "runs", "whole_objects")},
            **strict,
            **({"fills": settings.fills} if settings.fills > 1 else {}),
            "removal": {"spec": settings.removal, "name": getattr(removal, "name", settings.removal)},
            "renderer": {name: value for name, value in described.items() if name not in SPEED},
            "device": described.get("device"),
            "guide": self.guide,
            "recipe": {"name": self.recipe.name, "edits": self.recipe.records()},
            "labels": self.source.labels.to_json(),
            "versions": versions(),
        }


# The fields that determine the pictures' bytes: they must be the same when a build is resumed, those that may grow
# must hold what was there.
GROWING = ("source", "recipe", "runs")
FIXED = ("kind", "frame", "size", "seed", "whole_objects", "strict", "fills", "removal", "renderer", "labels")


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


def record_facts(root: Path, **facts: object) -> None:
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

    def to_json(self) -> Json:
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
