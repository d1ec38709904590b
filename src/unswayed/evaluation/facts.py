"""Facts about the edits from the cards and the benchmark, which is given or found through the cards."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import polars as pl

from unswayed.benchmark.rows import CARD, MANIFEST, REVIEWS, VALID, read_card, read_manifest, read_reviews
from unswayed.edits import all_edits, edit_from, edit_named_in, words_of
from unswayed.edits.edit import Edit
from unswayed.edits.recipes import CONTROLS, named_item
from unswayed.errors import UserError, unknown
from unswayed.files.storage import address, is_address, local_copy, place_of, reachable_copy
from unswayed.files.whole import Json, parse_json, sha256
from unswayed.labels import Task
from unswayed.scene import LOOK_BELOW, MASKS_DOUBTED, WARNING, MaskOrigin

from .model_cards import (
    KEYS,
    REPEAT,
    WHITE_BOX,
    identity_in,
    identity_of,
    prediction_files,
    read_cards,
    require_one_benchmark,
    rows_of,
    stored_differences,
    suspicion_in,
    tasks_in,
)
from .predictions import Predictions, in_memory, is_frame, polars_frame

ORIGINAL, SOURCE, AVERAGE = "original", "source", "average"
_PHOTOGRAPHS = {
    ORIGINAL: "the photograph, framed as a square; every drop is measured against it",
    SOURCE: "the unchanged source file, before framing",
    REPEAT: "control: the same question about the photograph again, which shows the model's own noise",
}

# The ten edits whose mean is the paper's average; its direction is the one after size 0.05.
_PAPER = (
    *("background-simple", "background-complex", "background-adversarial", "background-random"),
    *("size-full", "size-0.1", "size-0.08", "size-0.05", "position"),
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
    cards: Mapping[str, Json] = field(default_factory=dict)
    root: Path | None = None
    benchmark: Json = field(default_factory=dict)
    absent: tuple[str, ...] = ()

    @property
    def tasks(self) -> frozenset[Task]:
        """Return the tasks of the models, for the words of their results (`labels.worded`)."""
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
        """Return the name of a class, or its number as text if it has none; a detector may find nothing."""
        if label == -1:
            return "nothing"
        return self.classes[label] if 0 <= label < len(self.classes) else str(label)

    def is_control(self, edit: str) -> bool:
        """Return whether the edit is a control, built in or declared by the benchmark."""
        return edit in CONTROLS or edit == REPEAT or edit in self.controls.values()

    def describe(self, edit: str) -> str:
        """Return a short description of an edit; empty if neither the benchmark nor a recipe describes it."""
        if edit in _PHOTOGRAPHS:
            return _PHOTOGRAPHS[edit]
        return "; ".join([part.describe() for part in self._chain(edit)])

    @functools.cached_property
    def chains(self) -> dict[str, tuple[Edit, ...]]:
        """Return the edits of each item whose parameters are in the manifest, by the item's name."""
        if self.manifest is None or "parameters" not in self.manifest.columns:
            return {}
        chains = {}
        for name, parameters in self.manifest.unique("edit", keep="first").select("edit", "parameters").iter_rows():
            # An item without edits, or with one that is not installed, has no chain.
            with contextlib.suppress(UserError, KeyError, TypeError, ValueError, AttributeError):
                if chain := tuple(map(edit_from, parse_json(parameters or "{}", "").get("chain", []))):
                    chains[name] = chain
        return chains

    def attributes(self, edit: str) -> tuple[str, ...]:
        """Return what an edit of the benchmark changes, such as `size`: as its record says, or the recipe that has it,
        or else the edit that its name begins with."""
        if chain := self._chain(edit):
            return tuple(edit.name for edit in chain)
        declared = edit_named_in(edit)
        return () if declared is None else (declared.name,)

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
        """Return what each edit changes: an attribute, `alone` if another edit changes it among others, or for several
        at once the edit's words."""
        words = self.words(edits)
        attributes = {edit: self.attributes(edit) for edit in words}
        together = {name for names in attributes.values() if len(names) > 1 for name in names}
        alone = {edit: names[0] for edit, names in attributes.items() if len(names) == 1}
        return words | {edit: name + " alone" * (name in together) for edit, name in alone.items()}

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
    known = replace(find_benchmark(predictions, cards, benchmark, models), white_box=white_box, cards=cards)
    if known.manifest is None:
        return replace(known, guided=guided, classes=_classes(cards))
    return _with_manifest(known, known.manifest)


def find_benchmark(
    predictions: Predictions,
    cards: Mapping[str, Json],
    given: str | Path | None = None,
    models: Sequence[str] | None = None,
) -> Facts:
    """Return the facts of the benchmark of these models, or of all; a `given` one that is another is refused.

    A copy is the same benchmark, and so is one that has grown since. Cards of other programs state no identity, so
    their benchmark is used unchecked.
    """
    stated = [card for name, card in cards.items() if models is None or name in models]
    if given is not None:
        root = local_copy(given)
        card = read_card(root)
        manifest = pl.DataFrame(read_manifest(root, (), outside=True))
        lines = _differences(predictions, stated, root, card)
        if lines:
            raise UserError(
                f"{given} is not the benchmark that was evaluated; what differs:\n  " + "\n  ".join(lines),
                allowed="the benchmark of these predictions, wherever it is now, or a copy of it",
                run=f"unswayed evaluate {given} -m MODEL -o ANOTHER, for predictions on this benchmark",
            )
        return Facts(root=root, manifest=manifest, benchmark=card)
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
                manifest = pl.DataFrame(read_manifest(root, (), outside=True))
                return Facts(root=root, manifest=manifest, benchmark=card)
            absent.append(f"the benchmark in {path} is not the one that was evaluated ({'; '.join(lines)})")
    without = "so its controls and levels are unknown and its pictures are not shown: give its place by --benchmark"
    return Facts(absent=tuple(f"{reason}, {without}" for reason in absent))


def _is_foreign(path: str, predictions: Predictions) -> bool:
    """Whether a card names an address in a storage other than that of the predictions, which the user gave."""
    if not is_address(path):
        return False
    bucket = "/".join(address(place_of(path)).split("/")[:3])
    return is_frame(predictions) or not address(place_of(predictions)).startswith(f"{bucket}/")


def _differences(predictions: Predictions, stated: Sequence[Json], root: Path, card: Json) -> list[str]:
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


def _marked(predictions: pl.DataFrame | pl.LazyFrame) -> tuple[frozenset[str], frozenset[str]]:
    """Return the models and the edits of the rows that a data frame marks as white-box."""
    if predictions.collect_schema().get(WHITE_BOX) != pl.Boolean:
        return frozenset(), frozenset()
    pair = pl.col("model", "edit").cast(pl.String)
    rows = predictions.lazy().filter(pl.col(WHITE_BOX)).select(pair).unique().collect()
    return frozenset(rows["model"]), frozenset(rows["edit"])


def _with_manifest(known: Facts, manifest: pl.DataFrame) -> Facts:
    """What the rows and the card of the benchmark say about its edits, besides what is known."""
    card, edits = known.benchmark, manifest.unique("edit", keep="first", maintain_order=True)
    recipe = card.get("recipe")
    entries = recipe.get("edits") or [] if isinstance(recipe, dict) else []
    listed = [item for item in entries if isinstance(item, dict) and "name" in item]
    folders = {str((item.get("parameters") or {}).get("folder")) for item in listed}
    there = set(manifest.columns)
    return replace(
        known,
        order=tuple(dict.fromkeys([*(item["name"] for item in listed), *edits["edit"].to_list()])),
        controls=dict(edits.drop_nulls("control").select("edit", "control").iter_rows()) if "control" in there else {},
        guided=frozenset(manifest.drop_nulls("guide")["edit"] if "guide" in there else ()),
        official=card.get("kind") == "import" and folders.issuperset(_OFFICIAL_FOLDERS),
        classes=_classes(known.cards, card),
    )


def _classes(cards: Mapping[str, Mapping[str, object]], card: Mapping[str, object] | None = None) -> tuple[str, ...]:
    from unswayed.labels import LabelSpace

    for labels in [(card or {}).get("labels"), *(stated.get("labels") for stated in cards.values())]:
        if isinstance(labels, dict):
            try:
                return LabelSpace.from_json(labels).classes
            except UserError:
                continue
    return ()


Condition = Literal["measured", "human"]


def on_valid_pictures(predictions: Predictions, facts: Facts, by: Condition, columns: list[str]) -> pl.DataFrame:
    """The predictions on valid pictures alone, with these further columns where they are there.

    by: `measured` keeps pictures whose validity is one half or more, or was never measured (the photographs
    themselves); `human` keeps those that more than half of their raters called valid, and all photographs.
    """
    measured = by == "measured"
    pictures = _invalid(facts) if measured else _ratings(facts).filter(pl.col("valid_share") > 0.5)
    photographs = pl.col("edit").is_in(["original", "source"])

    def keep(rows: pl.DataFrame) -> pl.DataFrame:
        rows = rows.with_columns(pl.col("run").fill_null(0).cast(pl.Int64))
        if measured:
            return rows.join(pictures, on=KEYS, how="anti")
        kept = rows.filter(~photographs).join(pictures, on=KEYS, how="semi")
        return pl.concat([rows.filter(photographs), kept])

    return in_memory(predictions, columns, keep)


def without_doubted(predictions: Predictions, facts: Facts, columns: Sequence[str]) -> tuple[pl.DataFrame, Facts]:
    """The predictions on photographs whose masks are not doubted, with these further columns; and facts of them alone.

    A mask is doubted if it has a warning, or if it was made automatically and should be looked at.
    """
    if facts.manifest is None:
        raise UserError("the benchmark of these predictions is not available", run="the command with --benchmark BENCH")
    names = [name for name in ("source_id", "notes", "values") if name in facts.manifest.columns]
    doubted = sorted(
        {row["source_id"] for row in facts.manifest.select(names).iter_rows(named=True) if _is_doubted(row)}
    )
    kept = in_memory(predictions, columns, lambda rows: rows.filter(~pl.col("source_id").is_in(doubted)))
    if kept.is_empty():
        raise UserError("every photograph has a doubted mask", allowed="other masks, or no --leave-out")
    return kept, replace(facts, cards={name: _of_sure_masks(card) for name, card in facts.cards.items()})


def _is_doubted(row: Json) -> bool:
    """Whether the mask of a row of the manifest, with its notes and values as JSON, has a warning or is unsure."""
    notes, values = (parse_json(row.get(name) or "null", row["source_id"]) for name in ("notes", "values"))
    origin = MaskOrigin.from_values(values or {})
    unsure = origin is not None and origin.confidence < LOOK_BELOW
    return unsure or any(str(note).startswith(WARNING) for note in notes or ())


def _of_sure_masks(card: Json) -> Json:
    """The card without what it says against the masks."""
    others = [part for part in (suspicion_in(card) or "").split("; ") if not part.startswith(MASKS_DOUBTED)]
    masks = {"below_limit": 0, "of": 1}
    benchmark = {**(card.get("benchmark") or {}), "masks": masks}
    return {**card, "benchmark": benchmark, "suspicion": "; ".join(filter(None, others)) or None}


def has_invalid(facts: Facts) -> bool:
    """Return whether the benchmark is available and contains invalid pictures."""
    return facts.manifest is not None and _measured(facts.manifest) and not _invalid(facts).is_empty()


def _measured(manifest: pl.DataFrame) -> bool:
    """Whether validity was measured for any picture; it is not for an imported dataset."""
    return "validity" in manifest.columns and not manifest["validity"].is_null().all()


def human_accuracy(facts: Facts) -> pl.DataFrame | None:
    """One row per edit that people rated: `human_accuracy`, the mean share of raters who could tell the object, and
    `human_n`, the pictures; None where there are no reviews."""
    if facts.root is None or not (facts.root / REVIEWS).is_file():
        return None
    ratings = _ratings(facts)
    return ratings.group_by("edit").agg(human_accuracy=pl.col("told_share").mean(), human_n=pl.len().cast(pl.Int64))


def _invalid(facts: Facts) -> pl.DataFrame:
    if facts.manifest is None:
        raise UserError(
            "the benchmark of these predictions is not available", run="unswayed analyze … --benchmark BENCH"
        )
    if not _measured(facts.manifest):
        raise UserError(
            "the manifest of this benchmark has no validity", run="unswayed build … --quality report, into a new folder"
        )
    made = facts.manifest.filter((pl.col("validity") < VALID) & (pl.col("status") == "ok"))
    return made.select(*KEYS).with_columns(pl.col("run").cast(pl.Int64))


def _ratings(facts: Facts) -> pl.DataFrame:
    """One row per rated picture: the shares of its raters who called it valid and who could tell the object."""
    if facts.root is None or not (facts.root / REVIEWS).is_file():
        raise UserError("nobody has reviewed the pictures of this benchmark", run="unswayed review BENCH --rater NAME")
    reviews = pl.DataFrame([asdict(review) for review in read_reviews(facts.root)])
    return reviews.group_by(KEYS).agg(
        valid_share=(pl.col("answer") == "valid").mean(), told_share=(pl.col("answer") != "unrecognizable").mean()
    )
