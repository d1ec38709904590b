"""The data of Browse and Compare: filtered flips of a folder of predictions, and the comparison of two models."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from unswayed.analyses.drops.compare import compare
from unswayed.analyses.drops.drop import dropped_accuracy
from unswayed.analyses.flips import FLIP_COLUMNS, Flip, Flips, find_flips
from unswayed.analyses.settings import CompareSettings
from unswayed.edits import edit_from
from unswayed.edits.composition import Pool
from unswayed.edits.layers import realize
from unswayed.edits.recipes import Item
from unswayed.errors import UserError
from unswayed.evaluation.evaluator import is_evaluated
from unswayed.evaluation.facts import AVERAGE, ORIGINAL, SOURCE, Facts, read_facts
from unswayed.evaluation.model_cards import sentences
from unswayed.evaluation.predictions import in_memory, model_names
from unswayed.files.whole import parse_json
from unswayed.rendering.layers import Backgrounds, Rendering
from unswayed.rendering.photograph import Request
from unswayed.scene import frame
from unswayed.views.report.pictures import CHANGED, CHANGED_WORDS, Album
from unswayed.views.text import data_address, interval, number, percent, plural

from .controls import SIDE
from .photographs import open_sample, sample_names
from .studio import ObjectPicture, Studio, remembered_removal

SHOWN = 24
PRECISE = 1000  # photographs, below which a decimal of a drop says nothing


@dataclass(frozen=True)
class Filter:
    """Which flips are requested; None: all of them."""

    model: str | None = None
    edit: str | None = None
    label: int | None = None


class Results:
    """A folder of predictions and its pictures, and a note about them; the last few results are cached."""

    def __init__(self, predictions: str | Path, benchmark: str | Path | None = None, note: str = "") -> None:
        self.predictions, self.note = Path(predictions), note
        self.facts: Facts = read_facts(self.predictions, benchmark)
        self.root = self.facts.root
        self.album: Album | RemadePictures = Album(self.root, self.facts.manifest)
        self.models = model_names(self.predictions)
        self.flips = functools.lru_cache(maxsize=32)(self._flips)
        self.comparison = functools.lru_cache(maxsize=32)(self._comparison)

    @functools.cached_property
    def edits(self) -> list[str]:
        names = self._scan().select(pl.col("edit").unique()).collect()["edit"].to_list()
        return [edit for edit in self.facts.sorted(names) if edit not in (ORIGINAL, SOURCE)]

    @functools.cached_property
    def words(self) -> dict[str, str]:
        """Return what a stranger would call each edit."""
        return {AVERAGE: AVERAGE, ORIGINAL: ORIGINAL, **self.facts.words(self.edits)}

    @functools.cached_property
    def classes(self) -> dict[str, int]:
        """Return name -> label of the classes that occur; classes with the same name get their number."""
        labels = self._scan().select(pl.col("label").unique()).collect()["label"].drop_nulls().to_list()
        told = {label: self.facts.class_name(label) for label in labels}
        counts = Counter(told.values())
        return dict(sorted((name if counts[name] == 1 else f"{name} ({label})", label) for label, name in told.items()))

    def _flips(self, chosen: Filter) -> Flips | None:
        """Return up to SHOWN flips that pass the filter, sampled evenly over models and edits, and the total number."""
        if chosen == Filter():
            return find_flips(self.predictions, SHOWN)
        rows = self._scan()
        for column, value in vars(chosen).items():
            if value is not None:
                rows = rows.filter(pl.col(column).is_in([ORIGINAL, value] if column == "edit" else [value]))
        return find_flips(rows, SHOWN) if rows.select(pl.len()).collect().item() else None

    def _scan(self) -> pl.LazyFrame:
        return in_memory(self.predictions, FLIP_COLUMNS).lazy().with_columns(pl.col(pl.Categorical).cast(pl.String))

    def pair(self, flip: Flip) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the photograph and the edited picture of a flip; None if one is not available."""
        return self.album.picture(f"{flip.source_id}/{ORIGINAL}/0"), self.album.picture(flip.sample_id)

    def why_not_shown(self, flip: Flip) -> tuple[str, str]:
        """Return why the pictures of a flip are not shown, and what helps."""
        gone = [self.album.gone.get(sample_id) for sample_id in (f"{flip.source_id}/{ORIGINAL}/0", flip.sample_id)]
        if CHANGED in gone:
            return f"not shown: a picture {CHANGED_WORDS}", "restore the benchmark, or evaluate the models on it again"
        if any(gone):
            return "not shown: a picture could not be read", f"restore the files of {self.root}"
        return "no pictures available", "start the page with --benchmark BENCH"

    def warm_pair(self, studio: Studio, flip: Flip) -> tuple[list[np.ndarray], str]:
        """Return both pictures with the heat maps of their predictions, or none and the reason."""
        before, after = self.pair(flip)
        if before is None or after is None:
            reason, helps = self.why_not_shown(flip)
            return [], f"{reason.capitalize()}; {helps}."
        if flip.model not in studio.models:
            return [], f"For heat maps start the page with -m {flip.model}."
        try:
            if not is_evaluated(studio.model(flip.model), self.facts.cards.get(flip.model, {})):
                return [], f"No heat maps: {flip.model} has other weights or code than were evaluated."
            said = studio.answers(flip.model, [ObjectPicture(before), ObjectPicture(after)])
            return studio.heat(flip.model, [before, after], [int(answer.best or 0) for answer in said]), ""
        except UserError as error:
            return [], f"No heat maps: {error.given}"

    def _comparison(self, first: str, second: str) -> dict[str, object]:
        """Return the paired comparison of two models and the pictures they disagree about, as JSON for the page."""
        table = compare(self.predictions, first, second, CompareSettings(), facts=self.facts)
        average = dropped_accuracy(self.predictions, models=[first, second], facts=self.facts).filter(edit=AVERAGE)
        net = dict(average.select("model", "net_drop").iter_rows())
        digits = 0 if min(table["n"].to_list()) < PRECISE else 1
        tests = table.filter(pl.col("edit") != AVERAGE)["p_value"].count()  # corrected together
        told = list(sentences(self.facts.cards, (first, second)))
        if table.filter(edit=AVERAGE).height and None not in net.values() and set(net) == {first, second}:
            told.append(
                "The report's average is net of the control, which subtracts what the rendering alone costs: "
                f"{first} {number(net[first], digits)} and {second} {number(net[second], digits)} points."
            )
        told.append("n is the number of photographs that both classified.")
        rows = []
        for row in table.filter(pl.col("first_drop").is_not_null()).iter_rows(named=True):
            drops = row["first_drop"], row["second_drop"]
            shown = f"{first} {number(drops[0], digits)}, {second} {number(drops[1], digits)}"
            difference = f"{number(row['drop_difference'], digits)} ({interval(row['low'], row['high'], digits)})"
            verdict = row["verdict"].replace("first", first).replace("second", second)
            if row["verdict"] == "no difference shown" and not row["low"] <= 0 <= row["high"]:
                verdict += f": of {tests} differences that are tested, one may be as large by chance"
            words = f"{shown} points; difference {difference}, n = {row['n']:,}"
            rows.append({"edit": self.words[row["edit"]], "drops": drops, "words": words, "verdict": verdict})
        disagreed = self._disagreements(first, second)
        alone = int(disagreed["correct"].sum())
        said = f"On {plural(disagreed.height, 'picture')} one of them is right and the other wrong: {first} is right "
        said += f"on {alone}, {second} on {disagreed.height - alone}. The most confident mistakes come first."
        pictures = [self._card(first, second, row) for row in disagreed.head(SHOWN).iter_rows(named=True)]
        models = [first, second]
        return {"models": models, "rows": rows, "told": " ".join(told), "disagreed": said, "pictures": pictures}

    def _card(self, first: str, second: str, row: Mapping[str, Any]) -> dict[str, Any]:
        image = self.album.picture(row["sample_id"])
        said = [
            f"{'✓' if row[f'correct{end}'] else '✗'} {model}: {self.facts.class_name(row[f'predicted{end}'])} "
            f"{percent(row[f'probability{end}'], 0)}".replace(" %", "\N{NO-BREAK SPACE}%")
            for model, end in ((first, ""), (second, "_second"))
        ]
        title = f"{self.facts.class_name(row['label'])}, {self.words[row['edit']]}".replace(" %", "\N{NO-BREAK SPACE}%")
        return {"title": title, "said": said, "picture": None if image is None else data_address(image, 128)}

    def _disagreements(self, first: str, second: str) -> pl.DataFrame:
        """Return the pictures that one model gets right and the other wrong, the most confident mistakes first."""
        columns = ["sample_id", "edit", "label", "predicted", "probability", "correct"]
        rows = in_memory(self.predictions, ["model", *columns]).lazy()
        rows = rows.with_columns(pl.col(pl.Categorical).cast(pl.String))
        mine, theirs = (rows.filter(pl.col("model") == name).select(columns) for name in (first, second))
        both = mine.join(theirs.select("sample_id", *columns[3:]), on="sample_id", suffix="_second")
        wrong = pl.when("correct").then("probability_second").otherwise("probability")
        differ = (pl.col("correct") != pl.col("correct_second")) & (pl.col("edit") != SOURCE)
        return both.filter(differ).sort(wrong, "sample_id", descending=[True, False]).collect()


RECIPE = "size-0.1,size-0.05,position,direction,color-gray"
MODELS = ("lite:0", "lite:1", "lite:2")
COMMANDS = (
    f"unswayed build sample -o benchmark --renderer paste --removal diffusion --recipe {RECIPE}\n"
    f"unswayed evaluate benchmark {' '.join(f'-m {model}' for model in MODELS)} -o predictions"
)
NOTE = (
    "No predictions were given, so these are the results of three models on the 20 photographs of the sample, with "
    f"pasted edits:\n{COMMANDS}\nYour own: unswayed app --predictions predictions"
)


class RemadePictures:
    """The pictures of a pasted benchmark of the sample by sample id, made again from the rows of its manifest."""

    def __init__(self, manifest: pl.DataFrame) -> None:
        made = manifest.filter(status="ok").select("sample_id", "source_id", "edit", "parameters", "seed")
        self.rows = {row["sample_id"]: row for row in made.iter_rows(named=True) if row["edit"] != "source"}
        self.gone: dict[str, str] = {}
        self.picture = functools.lru_cache(maxsize=256)(self._picture)

    def _picture(self, sample_id: str) -> np.ndarray | None:
        """Return (S, S, 3) uint8, or None if there is no such picture."""
        row = self.rows.get(sample_id)
        if row is None:
            return None
        chain = tuple(edit_from(step) for step in parse_json(row["parameters"], "parameters")["chain"])
        scene = frame(open_sample(row["source_id"]).scene)
        pool = Pool(sample_names(), lambda name: frame(open_sample(name).scene), SIDE)
        composition = Item("edit", chain).compose(scene, np.random.default_rng(row["seed"]), pool)
        layers = realize(composition, Backgrounds(pool, remembered_removal("diffusion"), SIDE), row["seed"])
        [made] = Request(chain, renderer="paste").open_renderer().render([layers])
        return made.image if isinstance(made, Rendering) else None


def demo_results() -> Results:
    """Return the predictions in the package, with their pictures."""
    root = Path(str(resources.files("unswayed.data").joinpath("demo")))
    results = Results(root / "predictions", root / "benchmark", note=NOTE)
    assert results.facts.manifest is not None
    results.album = RemadePictures(results.facts.manifest)
    return results
