"""The results that Browse and Compare show if no predictions are given: three models on the embedded sample.

The predictions were made by COMMANDS. The pictures are not stored: each is made again, with the same bytes, when it is
looked at.
"""

from __future__ import annotations

import functools
from importlib import resources
from pathlib import Path

import numpy as np
import polars as pl

from unswayed.edits import edit_from
from unswayed.edits.composition import Pool
from unswayed.edits.layers import realize
from unswayed.edits.recipes import Item
from unswayed.files.whole import parse_json
from unswayed.rendering.backgrounds import Backgrounds
from unswayed.rendering.layers import Rendered
from unswayed.rendering.photograph import Request
from unswayed.scene import frame

from .photographs import open_sample, sample_names
from .placing import SIDE
from .results import Results
from .studio import remembered_removal

RECIPE = "size-0.1,size-0.05,position,direction,color-gray"
MODELS = ("lite:0", "lite:1", "lite:2")
COMMANDS = (
    f"unswayed build sample -o benchmark --renderer paste --recipe {RECIPE}\n"
    f"unswayed evaluate benchmark {' '.join(f'-m {model}' for model in MODELS)} -o predictions"
)
NOTE = (
    "No predictions were given, so these are the results of three models on the 20 photographs of the sample, with "
    f"pasted edits:\n{COMMANDS}\nYour own: unswayed app --predictions predictions"
)


class Remade:
    """The pictures of a pasted benchmark of the sample by sample id, made again from the rows of its manifest."""

    def __init__(self, manifest: pl.DataFrame) -> None:
        made = manifest.filter(status="ok").select("sample_id", "source_id", "edit", "parameters", "seed")
        self.rows = {row["sample_id"]: row for row in made.iter_rows(named=True) if row["edit"] != "source"}
        self.gone: dict[str, str] = {}
        self._made = functools.lru_cache(maxsize=256)(self._make)

    def picture(self, sample_id: str) -> np.ndarray | None:
        """Return (S, S, 3) uint8, or None if there is no such picture; the last ones are remembered."""
        return self._made(sample_id)

    def _make(self, sample_id: str) -> np.ndarray | None:
        row = self.rows.get(sample_id)
        if row is None:
            return None
        chain = tuple(edit_from(step) for step in parse_json(row["parameters"], "parameters")["chain"])
        scene = frame(open_sample(row["source_id"]).scene)
        pool = Pool(sample_names(), lambda one: frame(open_sample(one).scene), SIDE)
        composition = Item("edit", chain).compose(scene, np.random.default_rng(row["seed"]), pool)
        layers = realize(composition, Backgrounds(pool, remembered_removal, SIDE), row["seed"])
        [made] = Request(chain, renderer="paste").open_renderer().render([layers])
        return made.image if isinstance(made, Rendered) else None


def demo_results() -> Results:
    """Return the predictions in the package, with their pictures."""
    root = Path(str(resources.files("unswayed.data").joinpath("demo")))
    results = Results(root / "predictions", root / "benchmark", note=NOTE)
    assert results.facts.manifest is not None
    results.album = Remade(results.facts.manifest)
    return results
