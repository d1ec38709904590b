"""Facts about the edits from the cards and the benchmark, which is given or found through the cards."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import methodcaller
from pathlib import Path
from typing import Any

import polars as pl

from unswayed.benchmark.rows import CARD, MANIFEST, read_card, read_manifest
from unswayed.edits import all_edits, edit_from, edit_named_in, words_of
from unswayed.edits.edit import Edit
from unswayed.edits.recipes import CONTROLS, named_item
from unswayed.errors import UserError, unknown
from unswayed.files.storage import address, is_address, local_copy, place_of, reachable_copy
from unswayed.files.whole import parse_json, sha256
from unswayed.tasks import Task

from .model_cards import (
    REPEAT,
    WHITE_BOX,
    identity_in,
    identity_of,
    prediction_files,
    read_cards,
    require_one_benchmark,
    rows_of,
    stored_differences,
    tasks_in,
)
from .predictions import Predictions, is_frame, polars_frame, polars_table


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
    for path, stated_there in {about["path"]: about for about in described if about.get("path")}.items():
        try:
            foreign = _is_foreign(path, predictions)
            root = place_of(path) if foreign else reachable_copy(path)
        except UserError as error:
            absent.append(f"the card's path of the benchmark is {path[:200]!r}, which cannot be used ({error.given})")
            continue
        # A folder of `images:` has no manifest, and its cards state no hash of a benchmark's card.
        finished = os.path.isfile(root / MANIFEST)
        if not os.path.exists(root) or ("card_sha256" in stated_there and not finished):
            where = f"at {path}, which is not fetched because only a file names it"
            absent.append(f"the benchmark is {where if foreign else f'no longer at {path}'}")
        elif finished:
            card = read_card(root) if (root / CARD).is_file() else {}
            lines = _differences(predictions, stated, root, card)
            if not lines:
                return FoundBenchmark(root, polars_table(read_manifest(root, (), outside=True)), card)
            absent.append(f"the benchmark in {path} is not the one that was evaluated ({'; '.join(lines)})")
    unknown = "so its controls and levels are unknown and its pictures are not shown: give its place by --benchmark"
    return FoundBenchmark(absent=tuple(f"{reason}, {unknown}" for reason in absent))


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
    identities = {stored["sha256"]: (stored, model) for model in stated if (stored := identity_in(model)) is not None}
    if not identities:
        return []
    if (root / CARD).is_file():
        bytes_now = sha256(root / MANIFEST), sha256(root / CARD)
        for _, model in identities.values():
            evaluated = model["benchmark"]
            if (str(evaluated.get("sha256")).partition(":")[0], evaluated.get("card_sha256")) == bytes_now:
                return []
    rows = rows_of(root, read_manifest(root, outside=True).to_pylist())
    now = identity_of(card, card.get("labels"), rows)
    assert not is_frame(predictions)  # only files have cards
    files = {path.stem: path for path in prediction_files(predictions)}
    words = ("in the predictions", f"in {root}")
    lines = [
        stored_differences(files[model["file"]], identity, now, rows, words, whole=True)
        for identity, model in identities.values()
    ]
    return min(lines, key=len)


ORIGINAL, SOURCE, AVERAGE = "original", "source", "average"
_PHOTOGRAPHS = {
    ORIGINAL: "the photograph, framed as a square; every drop is measured against it",
    SOURCE: "the unchanged source file, before framing",
    REPEAT: "control: the same question about the photograph again, which shows the model's own noise",
}

# The ten edits whose mean is the paper's average; its direction is the one after size 0.05.
_PAPER = (
    "background-simple",
    "background-complex",
    "background-adversarial",
    "background-random",
    "size-full",
    "size-0.1",
    "size-0.08",
    "size-0.05",
    "position",
)
_OFFICIAL_FOLDERS = ("20_smooth", "20_hard", "random_bg", "full", "01", "008", "005", "rp", "rd")
_ADVERSARIAL = "adversarial"


@dataclass(frozen=True)
class Facts:
    """What is known about the edits besides the predictions.

    order: edits as the benchmark lists them; controls: edit -> the edit that shows what the rendering alone costs;
    guided: edits made against a classifier; white_box: models that are that classifier or share its weights;
    official: the benchmark is the published ImageNet-E; classes: class names by label; manifest: one row per picture,
    or None if the benchmark is not available; cards: by model; root: the benchmark's folder; benchmark: its card;
    absent: why the benchmark is not where the cards say.
    """

    order: tuple[str, ...] = ()
    controls: Mapping[str, str] = field(default_factory=dict)
    guided: frozenset[str] = frozenset()
    white_box: frozenset[str] = frozenset()
    official: bool = False
    classes: tuple[str, ...] = ()
    manifest: pl.DataFrame | None = None
    cards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    root: Path | None = None
    benchmark: Mapping[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] = ()

    @property
    def tasks(self) -> frozenset[Task]:
        """Return the tasks of the models, for the words of their results (`tasks.worded`)."""
        return frozenset(tasks_in(self.cards).values())

    def control(self, edit: str) -> str | None:
        """Return what the edit's net drop is measured against: its control, from the benchmark or, if that is not
        available, from the edit of that name; the originals for an edit that renders nothing besides its change and
        so declares no control; None if it is not known."""
        if edit in self.controls:
            return self.controls[edit]
        declared = None if self.is_control(edit) or edit in _PHOTOGRAPHS else edit_named_in(edit)
        if declared is None:
            return None
        item = named_item(edit)
        control = declared.control if item is None else item.control
        if control is None:
            return ORIGINAL
        return None if self.order else control

    def class_name(self, label: int) -> str:
        """Return the name of a class, or its number as text if it has none."""
        return self.classes[label] if 0 <= label < len(self.classes) else str(label)

    def is_control(self, edit: str) -> bool:
        """Return whether the edit is a control, built in or declared by the benchmark."""
        return edit in CONTROLS or edit == REPEAT or edit in self.controls.values()

    def describe(self, edit: str) -> str:
        """Return a short description of an edit; empty if neither the benchmark nor a recipe describes it."""
        if edit in _PHOTOGRAPHS:
            return _PHOTOGRAPHS[edit]
        if edit not in self.descriptions:
            item = named_item(edit)
            return "" if item is None else item.describe()
        return self.descriptions[edit]

    @functools.cached_property
    def descriptions(self) -> dict[str, str]:
        """Return the descriptions of the edits whose parameters are in the manifest, by name."""
        return {name: "; ".join(map(methodcaller("describe"), chain)) for name, chain in self.chains.items()}

    @functools.cached_property
    def chains(self) -> dict[str, tuple[Edit, ...]]:
        """Return the edits of each item whose parameters are in the manifest, by the item's name."""
        if self.manifest is None or "parameters" not in self.manifest.columns:
            return {}
        records, chains = {}, {}
        for name, parameters in self.manifest.unique("edit", keep="first").select("edit", "parameters").iter_rows():
            with contextlib.suppress(UserError):
                records[name] = parse_json(parameters or "{}", "")
        for name, record in records.items():  # an item without edits, or with one that is not installed, has no chain
            with contextlib.suppress(UserError, KeyError, TypeError, ValueError, AttributeError):
                if chain := tuple(map(edit_from, record.get("chain", []))):
                    chains[name] = chain
        return chains

    def attributes(self, edit: str) -> tuple[str, ...]:
        """Return what an edit of the benchmark changes, such as `size`: as its record says, or the recipe that has it,
        or else the edit whose name its name begins with."""
        declared = edit_named_in(edit)
        return tuple(edit.name for edit in self._chain(edit)) or (() if declared is None else (declared.name,))

    def _chain(self, edit: str) -> tuple[Edit, ...]:
        item = None if edit in self.chains else named_item(edit)
        return self.chains.get(edit, () if item is None else item.chain)

    def words(self, edits: Iterable[str]) -> dict[str, str]:
        """Return what a stranger would call each edit; edits that would be called the same have longer names.

        >>> list(Facts().words(["size-0.05", "direction-small", "background-random"]).values())
        ['object size 5 %', 'small and turned', 'random background']
        """
        return words_of({edit: self._chain(edit) for edit in edits})

    def changed(self, edits: Iterable[str]) -> dict[str, str]:
        """Return what each edit changes: an attribute, or for several at once the edit's words."""
        words = self.words(edits)
        for edit, named in zip(words, map(edit_named_in, words), strict=True):
            if named is not None and len(self._chain(edit)) <= 1:
                words[edit] = named.name
        return words

    def is_white_box(self, model: str, edit: str) -> bool:
        guided = edit in self.guided or (not self.guided and _ADVERSARIAL in edit)
        return model in self.white_box and guided

    def white_box_rows(self) -> pl.Expr:
        """Return `is_white_box` of each row's `model` and `edit`, as the column `white_box`."""
        edit = pl.col("edit")
        guided = edit.is_in(list(self.guided)) if self.guided else edit.str.contains(_ADVERSARIAL, literal=True)
        return (pl.col("model").is_in(list(self.white_box)) & guided).alias(WHITE_BOX)

    def sorted(self, edits: Iterable[str]) -> list[str]:
        """Return the edits: photographs first, the others in the benchmark's order, unknown ones by name at the end."""
        rank = {name: index for index, name in enumerate((SOURCE, ORIGINAL, *self.order))}
        return sorted(edits, key=lambda name: (rank.get(name, len(rank)), name))


def similar_factors() -> dict[str, str]:
    """Return the most similar factor of ImageNet-X for each edit that declares one."""
    return {name: edit.factor for name, edit in all_edits().items() if edit.factor is not None}


def chosen_edits(patterns: Iterable[str], edits: Sequence[str]) -> list[str]:
    """The edits that these names and patterns such as `size-*` choose, in the order of `edits`.

    >>> chosen_edits(["size-*", "average"], ["original", "size-0.05", "size-0.1", "average"])
    ['size-0.05', 'size-0.1', 'average']
    """
    wanted: set[str] = set()
    for pattern in patterns:
        matching = {pattern} & set(edits) or set(fnmatch.filter(edits, pattern))
        if not matching:
            raise unknown("edit", pattern, edits)
        wanted |= matching
    return [edit for edit in edits if edit in wanted]


def averaged_edits(edits: Iterable[str], facts: Facts) -> list[str]:
    """Return the edits of the average: the paper's ten if all are there, otherwise all but originals and controls.

    An edit that was made to attack one of the evaluated models is left out for all of them: averages over different
    edits could not be compared.
    """
    present = set(edits)
    direction = "direction-small" if "direction-small" in present else "direction"
    ten = [*_PAPER, direction]
    others = (edit for edit in present - {ORIGINAL, SOURCE} if not facts.is_control(edit))
    chosen = ten if present.issuperset(ten) else facts.sorted(others)
    return [edit for edit in chosen if not any(facts.is_white_box(model, edit) for model in facts.white_box)]


def read_facts(
    predictions: Predictions,
    benchmark: str | Path | None = None,
    *,
    models: Sequence[str] | None = None,
    common: bool = False,
) -> Facts:
    """Return the facts of a predictions folder; its benchmark is given or found through the cards, and never another.

    models: those that will be looked at, all if None; they must come from one benchmark unless `common` says that
    only their common pictures are used. From a data frame only its white-box rows are known, through the column that
    `read_predictions` adds.
    """
    cards = read_cards(predictions)
    if not common:
        require_one_benchmark(cards, models)
    white_box = frozenset(name for name, card in cards.items() if card.get("white_box"))
    guided = frozenset[str]()
    if is_frame(predictions):
        white_box, guided = _marked(polars_frame(predictions))
    known = find_benchmark(predictions, cards, benchmark, models)
    if known.manifest is not None:
        facts = _with_manifest(known.manifest, known.card, white_box, cards)
        return replace(facts, root=known.root, benchmark=known.card)
    return Facts(guided=guided, white_box=white_box, cards=cards, classes=_classes(cards), absent=known.absent)


def _marked(predictions: pl.DataFrame | pl.LazyFrame) -> tuple[frozenset[str], frozenset[str]]:
    """Return the models and the edits of the rows that a data frame marks as white-box."""
    if predictions.collect_schema().get(WHITE_BOX) != pl.Boolean:
        return frozenset(), frozenset()
    pair = pl.col("model", "edit").cast(pl.String)
    rows = predictions.lazy().filter(pl.col(WHITE_BOX)).select(pair).unique().collect()
    return frozenset(rows["model"]), frozenset(rows["edit"])


def _with_manifest(
    manifest: pl.DataFrame, card: Mapping[str, Any], white_box: frozenset[str], cards: Mapping[str, Mapping[str, Any]]
) -> Facts:
    edits = manifest.unique("edit", keep="first", maintain_order=True)
    listed = [item["name"] for item in _listed(card)]
    order = tuple(dict.fromkeys([*listed, *edits["edit"].to_list()]))
    controls: dict[str, str] = {}
    if "control" in edits.columns:
        controls = dict(edits.drop_nulls("control").select("edit", "control").iter_rows())
    guided = frozenset[str]()
    if "guide" in manifest.columns:
        guided = frozenset(manifest.filter(pl.col("guide").is_not_null())["edit"].unique().to_list())
    return Facts(
        order, controls, guided, white_box, _is_official(card), _classes(cards, card), manifest=manifest, cards=cards
    )


def _listed(card: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the edits of the benchmark's recipe, as its card lists them."""
    recipe = card.get("recipe")
    edits = recipe.get("edits") or [] if isinstance(recipe, dict) else []
    return [item for item in edits if isinstance(item, dict) and "name" in item]


def _is_official(card: Mapping[str, Any]) -> bool:
    """Return whether the benchmark was imported from the published folders."""
    folders = {str((item.get("parameters") or {}).get("folder")) for item in _listed(card)}
    return card.get("kind") == "import" and folders.issuperset(_OFFICIAL_FOLDERS)


def _classes(cards: Mapping[str, Mapping[str, Any]], card: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    from unswayed.labels import LabelSpace

    for labels in [(card or {}).get("labels"), *(stated.get("labels") for stated in cards.values())]:
        if isinstance(labels, dict):
            try:
                return LabelSpace.from_json(labels).classes
            except UserError:
                continue
    return ()
