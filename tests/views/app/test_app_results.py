"""Browse and Compare without a page: filters, heat maps only of models that were asked for, texts that stay texts."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from unswayed.analyses.drops.drop import dropped_accuracy
from unswayed.errors import UserError
from unswayed.views.app import figures
from unswayed.views.app.photographs import open_sample
from unswayed.views.app.results import SHOWN, Filter, Results
from unswayed.views.app.stage import ModelAnswers, StageContent, stage
from unswayed.views.app.studio import Answer, ObjectPicture, Studio
from unswayed.views.report.pictures import Album

HOSTILE = "<script>window.hacked=1</script>"


@pytest.fixture(scope="module")
def results(predictions):
    return Results(predictions)


def test_filters_keep_what_they_say(results):
    everything = results.flips(Filter())
    assert 0 < len(everything.shown) <= SHOWN
    of_model = results.flips(Filter(model="lite:0"))
    assert {flip.model for flip in of_model.shown} == {"lite:0"}
    edit = of_model.shown[0].edit
    label = of_model.shown[0].label
    narrow = results.flips(Filter("lite:0", edit, label))
    assert {(flip.edit, flip.label) for flip in narrow.shown} == {(edit, label)}
    assert narrow.total <= of_model.total <= everything.total
    assert results.flips(Filter(label=999)) is None


def test_what_is_offered_is_what_there_is(results):
    assert HOSTILE in results.models
    assert {"size-0.02", "size-0.05"} <= set(results.edits)
    assert results.classes[results.facts.class_name(next(iter(results.classes.values())))] in results.classes.values()
    assert "original" not in results.edits


def test_heat_maps_are_made_only_by_models_of_the_page(results):
    studio = Studio(["lite:0"])
    flip = results.flips(Filter(model="lite:0")).shown[0]
    warm, note = results.warm_pair(studio, flip)
    assert [one.shape for one in warm] == [(256, 256, 3)] * 2
    assert note == ""
    other = results.flips(Filter(model="lite:1")).shown[0]
    assert results.warm_pair(studio, other) == ([], "For heat maps start the page with -m lite:1.")


@pytest.mark.parametrize(
    ("album", "reason", "helps"),
    [
        (
            lambda root, rows: Album(root, rows.with_columns(sha256=pl.lit("0" * 64))),
            "not shown: a picture changed since the evaluation",
            "restore the benchmark, or evaluate the models on it again.",
        ),
        (
            lambda root, rows: Album(root / "none", rows),
            "not shown: a picture could not be read",
            "restore the files of",
        ),
        (lambda root, rows: Album(None, None), "no pictures available", "start the page with --benchmark BENCH."),
    ],
)
def test_pictures_that_are_not_shown_have_their_reason_and_what_helps(predictions, album, reason, helps):
    results = Results(predictions)
    results.album = album(results.root, results.facts.manifest)
    flips = results.flips(Filter(model="lite:0"))
    listed = figures.flips_list(results, flips)
    assert reason in listed and "<img" not in listed
    warm, note = results.warm_pair(Studio(["lite:0"]), flips.shown[0])
    assert warm == [] and note.startswith(f"{reason.capitalize()}; {helps}")


def test_two_models_are_compared_and_where_they_disagree_is_shown(results):
    comparison = results.comparison("lite:0", "lite:1")
    drops = dropped_accuracy(results.predictions, models=["lite:0"]).filter(edit="average").row(0, named=True)
    assert f"what the rendering alone costs: lite:0 {drops['net_drop']:.0f} and" in comparison["told"]
    rows = {row["edit"]: row for row in comparison["rows"]}
    assert rows["average"]["drops"][0] == pytest.approx(drops["drop"])
    numbers = [re.match(r"lite:0 (\S+), lite:1 (\S+) points", row["words"]) for row in rows.values()]
    assert all(found and "." not in found[1] + found[2] for found in numbers), "4 photographs have no decimals"
    marks = [[line[0] for line in card["said"]] for card in comparison["pictures"]]
    assert marks and all(sorted(pair) == sorted("✓✗") for pair in marks)
    assert str(len(marks)) in comparison["disagreed"]
    assert json.loads(json.dumps(comparison))["models"] == ["lite:0", "lite:1"]
    with pytest.raises(UserError, match="compared with itself"):
        results.comparison("lite:0", "lite:0")


def test_every_text_is_escaped(results):
    answer = Answer((0,), (HOSTILE,), (0.5,))
    picture = np.zeros((8, 8, 3), np.uint8)
    flips = results.flips(Filter(model=HOSTILE))
    flip = flips.shown[0]
    said = ModelAnswers(HOSTILE, answer, answer)
    written = [
        figures.message(HOSTILE, "problem"),
        figures.drawn("answer_bars", model=HOSTILE, before=answer, after=answer, true_class=0),
        figures.drawn("heat_pair", model=HOSTILE, images=[picture, picture], names=[HOSTILE, HOSTILE]),
        stage(
            replace(open_sample("koala"), name=HOSTILE),
            StageContent(ObjectPicture(picture), ObjectPicture(picture)),
            HOSTILE,
            [said],
        ),
        figures.flips_list(results, flips),
        figures.drawn("flip_markup", results=results, flip=flip, warm=[picture, picture], note=HOSTILE),
    ]
    for one in written:
        assert "<script" not in one
        assert "&lt;script&gt;" in one
