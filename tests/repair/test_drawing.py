"""`--from` and `--mixture`: which edits are drawn to train with, by the drops of the same model or by a file."""

from __future__ import annotations

import polars as pl
import pytest

from unswayed.edits.mixture import KINDS
from unswayed.errors import UserError
from unswayed.evaluation.facts import Facts
from unswayed.repair.settings import mixture_from, weights_of
from unswayed.transforms import EditMixture


def predictions(model: str, **wrong: int) -> pl.DataFrame:
    """Ten photographs, all answered right; of each edit so many wrong."""
    edits = {"original": 0, **{name.replace("_", "-"): count for name, count in wrong.items()}}
    return pl.DataFrame(
        [
            {"model": model, "source_id": str(number), "edit": edit, "run": 0, "correct": number >= count}
            for edit, count in edits.items()
            for number in range(10)
        ]
    )


def test_more_of_what_hurts_is_drawn():
    weights = weights_of({"size-0.05": 20.0, "direction": 5.0, "color-60": -3.0, "background-random": 12.0})
    assert weights["size"] == 1.0 and weights["direction"] == 0.25 and weights["background"] == 0.6
    assert weights["color"] == weights["blur"] == 0.1
    assert weights_of({"size-0.05": -1.0}) == dict.fromkeys(KINDS, 1.0)


def test_an_edit_of_the_background_is_no_other_background():
    answers = predictions("lite:0", blur_background_8=4, lighting_background_3=2, background_random=1)
    weights = mixture_from(answers, "lite:0", EditMixture(probability=0.3, most=1))
    assert weights.weights == {**dict.fromkeys(KINDS, 0.1), "blur": 1.0, "lighting": 0.5, "background": 0.25}
    assert weights.probability == 0.3 and weights.most == 1


def test_the_attributes_come_from_the_record_of_an_edit():
    chain = '{"chain": [{"edit": "size", "rate": 0.05}, {"edit": "color", "hue": 60.0}]}'
    facts = Facts(manifest=pl.DataFrame({"edit": ["blur-of-mine"], "parameters": [chain]}))
    assert facts.attributes("blur-of-mine") == ("size", "color")
    weights = weights_of({"blur-of-mine": 3.0}, facts.attributes)
    assert weights["size"] == weights["color"] == 1.0 and weights["blur"] == 0.1


def test_the_drops_of_another_model_are_refused_by_the_names_of_those_there_are():
    with pytest.raises(UserError, match="lite:1") as caught:
        mixture_from(predictions("lite:1", size=4), "timm:resnet50", EditMixture())
    assert "timm:resnet50" in str(caught.value)
